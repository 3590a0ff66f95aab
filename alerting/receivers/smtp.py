"""Sends incidents as e-mail, through an SMTP server with STARTTLS."""

from __future__ import annotations

import logging
import smtplib
import ssl
import time
from collections.abc import Mapping, Sequence
from email.message import EmailMessage
from email.utils import formatdate, parseaddr
from hashlib import sha256
from typing import Annotated, Literal

from msgspec import Meta

from ...core.secret import Secret
from ..alert import Incident
from ..details import NEXT_STEPS, details, links, members, next_steps
from ..headline import called, headline_of, status
from .address import is_loopback
from .answer import DeliveryOutcome
from .declaration import Key, ReceiverContext, ReceiverSettings, ReceiverType, SecretFile, Text
from .encoding import shorten
from .receiver import DeliveryError, ReceiverCapabilities
from .smtp_connection import SmtpConnection

log = logging.getLogger("querypulse")

TOTAL_SECONDS = 10.0
MAX_SUBJECT_CHARACTERS = 200
MAX_TEXT_CHARACTERS = 20_000
TRANSIENT_CODES = range(400, 500)
"""Temporary refusals (RFC 5321, 4.2.1); those from 500 on are permanent."""


class EmailSettings(ReceiverSettings, tag_field="type", tag="email", frozen=True, kw_only=True):
    """``tls``: after STARTTLS, from the start (``implicit``), or not at all on this machine."""

    host: Text
    port: Annotated[int, Meta(ge=1, le=65535)] = 587
    sender: Text
    to: Annotated[tuple[Text, ...], Meta(min_length=1)]
    tls: Literal["starttls", "implicit", "none"] = "starttls"
    user: Text | None = None
    password: Key | None = None
    password_file: SecretFile | None = None
    ca_file: Text | None = None


class Email:
    """One message per incident; the messages of an incident are one thread.

    A new connection for each message: servers close idle ones.
    """

    capabilities = ReceiverCapabilities(per_minute=30.0)

    def __init__(self, given: EmailSettings, password: Secret | None, ca_file: str | None) -> None:
        """Check the settings.

        Raises:
            ValueError: an address or ``tls`` cannot be used; the message names the setting.

        """
        self.name = given.name
        for setting, address in [("sender", given.sender), *(("to", one) for one in given.to)]:
            _require_address(setting, address)
        if given.tls == "none" and not is_loopback(given.host):
            raise ValueError("tls = 'none' is allowed only if host is this machine")
        self._given = given
        self._password = password
        self._ca_file = ca_file
        self._place = f"smtp://{given.host}:{given.port}"
        self._server: SmtpConnection | None = None
        self._closed = False

    def send(self, incident: Incident, wall: float) -> None:
        """Send one incident; see ``Receiver.send``."""
        message = email_message(incident, self._given.sender, self._given.to, wall)
        server = self._server = SmtpConnection(time.monotonic() + TOTAL_SECONDS)
        if self._closed:
            raise DeliveryError(f"{self._place}: closed", DeliveryOutcome.TRANSIENT)
        try:
            self._deliver(server, message)
        except (smtplib.SMTPException, OSError) as error:
            raise self._failure(error, may_have_arrived=server.has_data) from None
        finally:
            server.close()
            self._server = None

    def close(self) -> None:
        """End the message being sent; it may be sent again."""
        self._closed = True
        if (server := self._server) is not None:
            server.cut()

    def _deliver(self, server: SmtpConnection, message: EmailMessage) -> None:
        given = self._given
        server.connect_to(
            given.host, given.port, self._context() if given.tls == "implicit" else None
        )
        if given.tls == "starttls":
            server.starttls(context=self._context())
        if given.user is not None and self._password is not None:
            server.login(given.user, self._password.reveal())
        refused = server.send_message(message, given.sender, given.to)
        for address, (code, _) in refused.items():
            log.warning("querypulse: %s refused the recipient %s: %d", self._place, address, code)
        server.leave()

    def _context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self._ca_file)

    def _failure(self, error: Exception, *, may_have_arrived: bool) -> DeliveryError:
        text, outcome = _diagnosed(error)
        doubt = may_have_arrived and outcome is DeliveryOutcome.TRANSIENT
        return DeliveryError(f"{self._place} {text}", outcome, may_have_arrived=doubt)


def email_message(incident: Incident, sender: str, to: Sequence[str], wall: float) -> EmailMessage:
    """The message: the headline as subject, and the details as plain text."""
    message = EmailMessage()
    headline = _clean(" ".join(headline_of(incident).split()))
    firing = incident.ends_at is None
    subject = f"{incident.severity}: {headline}" if firing else headline
    message["Subject"] = shorten(subject, MAX_SUBJECT_CHARACTERS)
    message["From"], message["To"] = sender, ", ".join(to)
    message["Date"] = formatdate(wall)
    thread = _message_id(incident, "")
    own = _message_id(incident, f"{status(incident)} {incident.revision}")
    message["Message-ID"] = own
    message["In-Reply-To"] = message["References"] = thread
    message["Auto-Submitted"] = "auto-generated"
    if firing and incident.severity == "critical":
        message["Importance"] = "high"
    message.set_content(shorten(_clean(_text(incident, headline)), MAX_TEXT_CHARACTERS) + "\n")
    return message


def _text(incident: Incident, headline: str) -> str:
    since = f"{incident.name} since {formatdate(incident.starts_at)}"
    return "\n\n".join(filter(None, [headline, _facts(incident), _links(incident), since]))


def _facts(incident: Incident) -> str:
    if len(incident.alerts) == 1:
        return _lines(details(incident.alerts[0]))
    lines = {
        called(one.labels["query"]): one.annotations.get("reason", "") for one in members(incident)
    }
    steps = next_steps(incident)
    return _lines({**lines, **({NEXT_STEPS: steps} if steps else {})})


def _links(incident: Incident) -> str:
    return _lines(links(incident.alerts[0])) if incident.ends_at is None else ""


def _lines(facts: Mapping[str, str]) -> str:
    return "\n".join(f"{name}: {text}" for name, text in facts.items())


def _clean(text: str) -> str:
    """Without lone surrogates, which a broken exception may contain."""
    return text.encode("utf-8", "replace").decode()


def _message_id(incident: Incident, which: str) -> str:
    """The same for every attempt to send the same message, also after a restart."""
    what = f"{incident.key}\n{incident.starts_at!r}\n{which}"
    return f"<{sha256(what.encode('utf-8', 'replace')).hexdigest()[:32]}@querypulse.invalid>"


def _require_address(setting: str, address: str) -> None:
    name, domain = parseaddr(address)[1].rpartition("@")[::2]
    if not name or not domain or any(character in address for character in "\r\n"):
        raise ValueError(f"{setting} must be an e-mail address (given: {address!r})")


def _diagnosed(error: Exception) -> tuple[str, DeliveryOutcome]:
    """What happened, without the server's own words, and what that means for the alert."""
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        codes = [code for code, _ in error.recipients.values()]
        return f"refused every recipient: {codes[0]}", _by_code(max(codes))
    if isinstance(error, smtplib.SMTPDataError) and error.smtp_code not in TRANSIENT_CODES:
        return f"refused the message: {error.smtp_code}", DeliveryOutcome.REJECTED
    if isinstance(error, smtplib.SMTPResponseException):
        return f"answered {error.smtp_code}", _by_code(error.smtp_code)
    if isinstance(error, smtplib.SMTPNotSupportedError):
        return "offers no STARTTLS, or no login that we know", DeliveryOutcome.MISCONFIGURED
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"is not trusted: {error.verify_message}", DeliveryOutcome.MISCONFIGURED
    detail = getattr(error, "strerror", None)
    kind = type(error).__name__
    return f"did not answer: {kind} ({detail})" if detail else f"did not answer: {kind}", (
        DeliveryOutcome.TRANSIENT
    )


def _by_code(code: int) -> DeliveryOutcome:
    if code in TRANSIENT_CODES:
        return DeliveryOutcome.TRANSIENT
    return DeliveryOutcome.MISCONFIGURED


def make(given: EmailSettings, context: ReceiverContext) -> Email:
    """Make an e-mail receiver from its settings."""
    has_password = given.password is not None or given.password_file is not None
    if given.password is not None and given.password_file is not None:
        raise ValueError("give 'password' or 'password_file', not both")
    if has_password != (given.user is not None):
        raise ValueError("'user' and 'password' or 'password_file' go together")
    password = context.secret("password") if has_password else None
    return Email(given, password, context.http.ca_file)


def urls(given: EmailSettings) -> Sequence[str]:
    """The server."""
    return (f"smtp://{given.host}:{given.port}",)


TYPE = ReceiverType(EmailSettings, make, urls=urls)
