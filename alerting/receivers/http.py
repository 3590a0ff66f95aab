"""Posts bytes over HTTP so that nothing is lost, leaked, or delayed for long."""

from __future__ import annotations

import logging
import re
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from datetime import timezone
from email.utils import parsedate_to_datetime
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError, ProxyError
from urllib3.util.ssl_match_hostname import CertificateError

from ...core.installed import VERSION
from ...core.secret import Secret
from ...core.socket_deadline import SocketDeadline, causes
from ...core.states import DeliveryOutcome
from ..retries import GONE_WAIT_SECONDS, MAX_RETRY_AFTER_SECONDS, RATE_LIMIT_WAIT_SECONDS, attempts
from .receiver import (
    DeliveryError,
    HttpOptions,
    Receiver,
    ReceiverCapabilities,
    ReceiverContext,
    ReceiverType,
    UrlReceiverSettings,
    public_part,
)


class DeadlineAdapter(SocketDeadline, HTTPAdapter):
    """A transport of requests whose exchanges end by ``deadline``, in the head as in the body."""

    def __init__(self) -> None:
        SocketDeadline.__init__(self)
        HTTPAdapter.__init__(self, max_retries=0)

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        """Make pools whose connections end by the deadline."""
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = self.pools()

    def proxy_manager_for(self, *args: Any, **kwargs: Any) -> Any:
        """Make the pools behind a proxy likewise."""
        manager = super().proxy_manager_for(*args, **kwargs)
        manager.pool_classes_by_scheme = self.pools()
        return manager


# -- answer -----------------------------------------------------------------------------------
# What an HTTP answer means for an alert.


TOO_MANY_REQUESTS = 429
TRY_AGAIN = frozenset({408, 425, TOO_MANY_REQUESTS})
"""Temporary client errors: timeout, too early (RFC 8470), too many requests."""

REJECTIONS = frozenset({400, 406, 411, 413, 414, 415, 422, 431})
GONE_STATUS = 410
MAY_HAVE_ARRIVED = frozenset({408, 500, 502, 504})
"""The request may have succeeded despite this failure, as with a gateway's error."""


def classify(status: int) -> DeliveryOutcome:
    """The outcome for an HTTP status; an unknown one is kept and tried again slowly.

    A redirect is a configuration error: following it turns a POST into a GET without its body
    (301 to 303), or sends body and signature to any ``Location`` (307, 308).
    """
    if 200 <= status < 300:  # noqa: PLR2004 - the numbers are RFC 9110's classes
        return DeliveryOutcome.DELIVERED
    if status in TRY_AGAIN or 500 <= status < 600:  # noqa: PLR2004 - as above
        return DeliveryOutcome.TRANSIENT
    if status in REJECTIONS:
        return DeliveryOutcome.REJECTED
    return DeliveryOutcome.MISCONFIGURED


def wait_asked_for(status: int, retry_after: str | None, now_wall: float) -> float | None:
    """Seconds to pause after a failure; None if the receiver did not ask for a pause."""
    if status == GONE_STATUS:
        return GONE_WAIT_SECONDS
    seconds = parse_retry_after(retry_after, now_wall)
    if seconds is None and status == TOO_MANY_REQUESTS:
        return RATE_LIMIT_WAIT_SECONDS
    return seconds


def parse_retry_after(text: str | None, now_wall: float) -> float | None:
    """Seconds to wait by a ``Retry-After`` header (RFC 9110, 10.2.3), or None if it says nothing.

    ``text`` is whole seconds or an HTTP-date, ``now_wall`` Unix seconds. The answer lies
    between 0 and ``MAX_RETRY_AFTER_SECONDS``.
    """
    text = (text or "").strip()
    if text.isascii() and text.isdigit():
        return min(float(text), MAX_RETRY_AFTER_SECONDS)
    try:
        date = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=timezone.utc)
    return min(max(0.0, date.timestamp() - now_wall), MAX_RETRY_AFTER_SECONDS)


# -- transport failure ------------------------------------------------------------------------
# Why a request got no answer, and what that means for an alert.


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


def diagnose(error: BaseException) -> tuple[str, DeliveryOutcome, bool]:
    """What happened, without secrets; what it means; and whether the request may have arrived."""
    chain = causes(error)
    for cause in chain:
        if refusal := TUNNEL_REFUSED.search(str(cause)):
            return _refused_by_proxy(int(refusal[1]))
    reason = _reason(chain[-1])
    if _is_any(chain, UNTRUSTED):
        return f"is not trusted: {reason}", DeliveryOutcome.MISCONFIGURED, False
    who = "was not reached, the proxy " if _is_any(chain, AT_THE_PROXY) else ""
    text = f"{who}did not answer: {reason}"
    if isinstance(error, ValueError) or _is_a_missing_file(error) or any(map(is_misfit, chain)):
        return text, DeliveryOutcome.MISCONFIGURED, False
    return text, DeliveryOutcome.TRANSIENT, not _is_any(chain, NOTHING_LEFT)


def _refused_by_proxy(status: int) -> tuple[str, DeliveryOutcome, bool]:
    """Transient if the proxy cannot reach the server (502, 504), else misconfigured."""
    is_transient = classify(status) is DeliveryOutcome.TRANSIENT
    outcome = DeliveryOutcome.TRANSIENT if is_transient else DeliveryOutcome.MISCONFIGURED
    return f"was not reached, the proxy answered {status}", outcome, False


def _is_any(chain: list[BaseException], kinds: tuple[type, ...]) -> bool:
    return any(isinstance(cause, kinds) for cause in chain)


def is_misfit(error: BaseException) -> bool:
    """Whether it is an error of TLS that no retry fixes."""
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


class Unlogged(logging.Filter):
    """While entered, keeps this thread's requests, paths included, out of urllib3's debug log."""

    def __enter__(self) -> None:
        self._thread = threading.get_ident()
        logging.getLogger("urllib3.connectionpool").addFilter(self)

    def __exit__(self, *_: object) -> None:
        logging.getLogger("urllib3.connectionpool").removeFilter(self)

    def filter(self, _: logging.LogRecord) -> bool:
        """Whether another thread wrote it."""
        return threading.get_ident() != self._thread


# -- http -------------------------------------------------------------------------------------


TOTAL_SECONDS = 10.0
CONNECT_SECONDS = 3.0
READ_SECONDS = 5.0
MAX_IDLE_SECONDS = 30.0
"""A connection that was idle for longer is not used again: firewalls drop such ones silently, and
the page would wait for a timeout.
"""
MAX_ANSWER_BYTES = 64 * 1024
MAX_LIST_BYTES = 4 * 1024 * 1024
USER_AGENT = f"querypulse/{VERSION}"

HeadersAt = Callable[[float], Mapping[str, str]]
"""Headers of one attempt, made for the Unix time at which it leaves."""


class HttpError(DeliveryError):
    """A post failed; ``status`` is the HTTP status, None without an answer.

    ``body`` is the answer's first 64 KiB: for a decision, not to be shown.
    """

    def __init__(
        self,
        message: str,
        answer: DeliveryOutcome,
        *,
        status: int | None = None,
        body: bytes = b"",
        retry_after: float | None = None,
        may_have_arrived: bool = False,
    ) -> None:
        super().__init__(
            message, answer, retry_after=retry_after, may_have_arrived=may_have_arrived
        )
        self.status = status
        self.body = body


class HttpPoster:
    """Posts bytes to one URL: a few attempts within about ten seconds, then an error.

    It uses only the transport of requests. A ``Session`` adds what is unsafe for alerts:
    redirects (it reads their whole bodies even when it does not follow them), credentials from
    ~/.netrc, cookies. A DNS lookup has no timeout at all, so
    only a delivery's own thread may post.
    """

    def __init__(
        self,
        url: Secret,
        *,
        setting: str,
        http: HttpOptions | None = None,
        total_seconds: float = TOTAL_SECONDS,
    ) -> None:
        """Check the URL and the options.

        Raises:
            ValueError: it cannot be posted to; the message names ``setting`` or the option.

        """
        self._url = url
        self._setting = setting
        self._http = http or HttpOptions()
        self._http.check()
        self.place = self._place(url.reveal())
        self._total_seconds = total_seconds
        self._wire = DeadlineAdapter()
        self._closing = threading.Event()
        self._used_at = time.monotonic()

    def post(
        self,
        body: bytes,
        wall: float,
        headers: HeadersAt = lambda _: {},
        *,
        address: Callable[[str], str] = str,
        method: str = "POST",
    ) -> bytes:
        """Post ``body`` at Unix time ``wall``; returns the first 64 KiB of a 2xx answer.

        ``address`` makes of the URL the one to post to, on the same host. ``method`` may also be
        another one that may be repeated, such as ``PUT``.

        Raises:
            HttpError: no 2xx came; the message shows scheme, host and status, nothing else.

        """
        return self._exchange(
            lambda url, now: self._send(method, url, body, headers(now)),
            address,
            wall,
            MAX_ANSWER_BYTES,
        )

    def get(self, wall: float, *, address: Callable[[str], str]) -> bytes:
        """The first 4 MiB of what a GET is answered with; else as ``post``."""
        return self._exchange(
            lambda url, _: self._send("GET", url, None, {}), address, wall, MAX_LIST_BYTES
        )

    def _exchange(
        self,
        send: Callable[[str, float], requests.Response],
        address: Callable[[str], str],
        wall: float,
        most_bytes: int,
    ) -> bytes:
        """``send`` to a URL at a Unix time, and again if that may help."""
        began = time.monotonic()
        if began - self._used_at > MAX_IDLE_SECONDS:
            self._wire.close()
        self._wire.deadline = began + self._total_seconds
        url = address(self._present_url())
        doubt = False

        def attempt() -> bytes:
            nonlocal doubt
            if self._closing.is_set():
                raise HttpError(f"{self.place}: closed", DeliveryOutcome.TRANSIENT)
            now_wall = wall + time.monotonic() - began
            try:
                with send(url, now_wall) as response:
                    answer = _read(response, most_bytes)
                if classify(response.status_code) is not DeliveryOutcome.DELIVERED:
                    raise self._unaccepted(response, answer, now_wall)
            except HttpError as error:
                # If one attempt may have arrived, so may the post, even if the next one fails.
                doubt = error.may_have_arrived = error.may_have_arrived or doubt
                raise
            finally:
                self._used_at = time.monotonic()
            return answer

        return attempts(self._total_seconds, self._closing)(attempt)

    def close(self) -> None:
        """Close the connection; a post in flight ends at once."""
        self._closing.set()
        self._wire.cut()
        self._wire.close()

    def _place(self, url: str) -> str:
        return public_part(url, setting=self._setting, allow_http=self._http.allow_http)

    def _present_url(self) -> str:
        """The URL, which a file may have changed since the last post."""
        url = self._url.reveal()
        try:
            self.place = self._place(url)
        except ValueError as error:
            raise HttpError(str(error), DeliveryOutcome.MISCONFIGURED) from None
        return url

    def _send(
        self, method: str, url: str, body: bytes | None, headers: Mapping[str, str]
    ) -> requests.Response:
        fixed = {"User-Agent": USER_AGENT}
        if body is not None:
            fixed["Content-Type"] = "application/json"
        left = max(0.001, self._wire.seconds_left())
        try:
            request = requests.Request(method, url, data=body, headers={**fixed, **headers})
            with Unlogged():
                return self._wire.send(
                    request.prepare(),
                    stream=True,
                    timeout=(min(CONNECT_SECONDS, left), min(READ_SECONDS, left)),
                    verify=self._http.verify,
                    cert=self._http.cert,
                    proxies=self._http.proxies(url),
                )
        except (requests.RequestException, HTTPError, OSError) as error:
            text, outcome, may_have_arrived = diagnose(error)
            raise HttpError(
                f"{self.place} {text}", outcome, may_have_arrived=may_have_arrived
            ) from None

    def _unaccepted(self, response: requests.Response, answer: bytes, now_wall: float) -> HttpError:
        status = response.status_code
        return HttpError(
            f"{self.place} answered {status}",
            classify(status),
            status=status,
            body=answer,
            retry_after=wait_asked_for(status, response.headers.get("Retry-After"), now_wall),
            may_have_arrived=status in MAY_HAVE_ARRIVED,
        )


def _read(response: requests.Response, most: int) -> bytes:
    try:
        return bytes(response.raw.read(most, decode_content=False))
    except (HTTPError, OSError):
        return b""  # the status has come, and it decides


# -- web page ---------------------------------------------------------------------------------
# Recognises the login page of a proxy, which answers 2xx in place of a receiver.


def not_a_page(answer: bytes, place: str) -> bytes:
    """The body of a 2xx answer of ``place``, if it is not HTML.

    Raises:
        HttpError: it is HTML, which this receiver never sends.

    """
    if answer.lstrip().startswith(b"<"):
        text = f"{place} answered 2xx with a page of HTML"
        raise HttpError(text, DeliveryOutcome.MISCONFIGURED, may_have_arrived=True)
    return answer


# -- minimal payload --------------------------------------------------------------------------
# Retries with a minimal body if a receiver refuses the full one: a page must not depend on it.


BODY_DISLIKED = frozenset({400, 413, 422})
"""The rejections that a smaller, plainer body may avoid."""


def post_or_less(post: Callable[[bytes], bytes], full: bytes, less: bytes) -> bytes:
    """Post ``full``; if the body is refused and ``less`` differs, post ``less``.

    Raises:
        HttpError: neither was accepted.

    """
    try:
        return post(full)
    except HttpError as error:
        in_vain = error.answer is not DeliveryOutcome.REJECTED or error.status not in BODY_DISLIKED
        if in_vain or less == full:
            raise
        doubt = error.may_have_arrived
    try:
        return post(less)
    except HttpError as error:
        error.may_have_arrived = error.may_have_arrived or doubt
        raise


# -- chats ------------------------------------------------------------------------------------
# The incoming webhooks of chats: one message per incident.


class Channel:
    """One channel of a chat. Such webhooks take about one message a second."""

    capabilities = ReceiverCapabilities(per_minute=60.0)
    setting = "url"
    """The setting that an unusable URL is reported under."""

    def __init__(
        self,
        url: Secret,
        *,
        name: str = "",
        http: HttpOptions | None = None,
        external_url: str = "",
    ) -> None:
        """Check the settings; ``external_url`` is the link to more information.

        Raises:
            ValueError: ``url`` cannot be used; the message names the setting.

        """
        self.name = name or type(self).__name__.lower()
        self._external_url = external_url
        self._poster = HttpPoster(url, setting=self.setting, http=http)

    def post(
        self, full: bytes, less: bytes, wall: float, check: Callable[[bytes, str], bytes]
    ) -> None:
        """Post ``full``, or ``less`` if the chat refuses it.

        ``check`` raises ``HttpError`` for the body of a 2xx answer that is not from the chat.
        """
        place = self._poster.place
        post_or_less(lambda body: check(self._poster.post(body, wall), place), full, less)

    def close(self) -> None:
        """Close the connection."""
        self._poster.close()


def channel_type(
    settings: type[UrlReceiverSettings],
    kind: Callable[..., Receiver],
    short_form: Mapping[str, str] | None = None,
) -> ReceiverType:
    """The declaration of a chat's receiver."""

    def make(given: UrlReceiverSettings, context: ReceiverContext) -> Receiver:
        return kind(
            context.secret("url"),
            name=given.name,
            http=context.http,
            external_url=context.external_url,
        )

    return ReceiverType(settings, make, one_of=("url", "url_file"), short_form=short_form or {})
