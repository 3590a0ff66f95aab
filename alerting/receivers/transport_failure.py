"""Why a request got no answer, and what that means for an alert. Pure."""

from __future__ import annotations

import re
import ssl

import msgspec
import requests
from urllib3.exceptions import ConnectTimeoutError, NewConnectionError, ProxyError
from urllib3.util.ssl_match_hostname import CertificateError

from ...core.outcomes import DeliveryOutcome
from .answer import classify

AT_THE_PROXY = (ProxyError, requests.exceptions.ProxyError)
NOTHING_LEFT = (ConnectTimeoutError, NewConnectionError, *AT_THE_PROXY)
"""Errors that occur before a request is sent."""

UNTRUSTED = (ssl.SSLCertVerificationError, CertificateError)
MISFITS = re.compile(
    "CERTIFICATE_(?:REQUIRED|REVOKED|EXPIRED|UNKNOWN)|BAD_CERTIFICATE|UNSUPPORTED_CERTIFICATE"
    "|UNKNOWN_CA|ACCESS_DENIED|HANDSHAKE_FAILURE|PROTOCOL_VERSION|UNSUPPORTED_PROTOCOL"
    "|WRONG_VERSION_NUMBER|HTTP_REQUEST|UNRECOGNIZED_NAME"
    "|NO_CERTIFICATE_OR_CRL_FOUND|PEM_LIB|KEY_VALUES_MISMATCH"
)
"""OpenSSL's names for errors that no retry fixes: our certificate is missing or wrong, a file
contains none, the server does not speak TLS, or it supports no TLS version that we do.
"""

TUNNEL_REFUSED = re.compile(r"Tunnel connection failed: (\d{3})\b")
"""The error of ``http.client`` when a proxy refuses to connect."""


class TransportFailure(msgspec.Struct, frozen=True):
    """``text`` says what happened and holds no secret."""

    text: str
    answer: DeliveryOutcome
    may_have_arrived: bool


def diagnose(error: BaseException) -> TransportFailure:
    """The failure for a request without an answer, by the cause of its error."""
    chain = _chain(error)
    for one in chain:
        if refusal := TUNNEL_REFUSED.search(str(one)):
            return _refused_by_proxy(int(refusal[1]))
    reason = _reason(chain[-1])
    if _is_any(chain, UNTRUSTED):
        return TransportFailure(
            f"is not trusted: {reason}", DeliveryOutcome.MISCONFIGURED, may_have_arrived=False
        )
    who = "was not reached, the proxy " if _is_any(chain, AT_THE_PROXY) else ""
    text = f"{who}did not answer: {reason}"
    if isinstance(error, ValueError) or _is_a_missing_file(error) or any(map(_is_misfit, chain)):
        return TransportFailure(text, DeliveryOutcome.MISCONFIGURED, may_have_arrived=False)
    return TransportFailure(
        text, DeliveryOutcome.TRANSIENT, may_have_arrived=not _is_any(chain, NOTHING_LEFT)
    )


def _refused_by_proxy(status: int) -> TransportFailure:
    """Transient if the proxy cannot reach the server (502, 504), else misconfigured."""
    answer = (
        DeliveryOutcome.TRANSIENT
        if classify(status) is DeliveryOutcome.TRANSIENT
        else DeliveryOutcome.MISCONFIGURED
    )
    return TransportFailure(
        f"was not reached, the proxy answered {status}", answer, may_have_arrived=False
    )


def _is_any(chain: list[BaseException], kinds: type | tuple[type, ...]) -> bool:
    return any(isinstance(one, kinds) for one in chain)


def _is_misfit(error: BaseException) -> bool:
    return isinstance(error, ssl.SSLError) and bool(MISFITS.search(error.reason or ""))


def _is_a_missing_file(error: BaseException) -> bool:
    """Whether requests cannot find a bundle or certificate that existed at the start."""
    return type(error) is OSError and error.errno is None


def _reason(error: BaseException) -> str:
    """The kind of the error and the text of the system or OpenSSL; never its whole text."""
    if isinstance(error, CertificateError):
        return "its certificate is for another name"
    detail = getattr(error, "verify_message", None) or getattr(error, "strerror", None)
    return f"{type(error).__name__} ({detail})" if detail else type(error).__name__


def _chain(error: BaseException) -> list[BaseException]:
    """The error and its causes, the root cause last."""
    chain = [error]
    while (context := chain[-1].__context__) is not None:
        chain.append(context)
    # urllib3 wraps some errors without raising the wrapper, which is then a cause only.
    return [*(one.__cause__ for one in chain if one.__cause__ is not None), *chain]
