"""Why an e-mail was not accepted, and what that means for the alert. Pure."""

from __future__ import annotations

import smtplib
import ssl

from ...core.outcomes import DeliveryOutcome
from .transport_failure import MISFITS

PERMANENT = 500
"""From this code on a refusal is permanent, from 400 on temporary (RFC 5321, 4.2.1)."""
UNUSABLE: dict[type[Exception], str] = {
    smtplib.SMTPNotSupportedError: "offers no STARTTLS, or no login that we know",
    FileNotFoundError: "was not reached: ca_file is gone",
    UnicodeError: "was not sent the login: it is not ASCII",
}


def diagnose_smtp(error: Exception) -> tuple[str, DeliveryOutcome]:
    """What happened, without the server's own words, and what that means for the alert."""
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        codes = sorted(code for code, _ in error.recipients.values())
        return f"refused every recipient: {codes[0]}", _by_code(codes[0])
    if isinstance(error, smtplib.SMTPDataError):
        return f"refused the message: {error.smtp_code}", _by_code(error.smtp_code)
    if isinstance(error, smtplib.SMTPResponseException):
        return f"answered {error.smtp_code}", _by_code(error.smtp_code)
    for kind, text in UNUSABLE.items():
        if isinstance(error, kind):
            return text, DeliveryOutcome.MISCONFIGURED
    return _no_answer(error)


def _no_answer(error: Exception) -> tuple[str, DeliveryOutcome]:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"is not trusted: {error.verify_message}", DeliveryOutcome.MISCONFIGURED
    detail = getattr(error, "strerror", None)
    kind = type(error).__name__
    text = f"did not answer: {kind} ({detail})" if detail else f"did not answer: {kind}"
    misfit = isinstance(error, ssl.SSLError) and MISFITS.search(error.reason or "")
    return text, DeliveryOutcome.MISCONFIGURED if misfit else DeliveryOutcome.TRANSIENT


def _by_code(code: int) -> DeliveryOutcome:
    """A refusal for good may be a wrong login, sender or recipient: it is kept."""
    return DeliveryOutcome.MISCONFIGURED if code >= PERMANENT else DeliveryOutcome.TRANSIENT
