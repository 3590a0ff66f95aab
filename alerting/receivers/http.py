"""Posts bytes over HTTP so that nothing is lost, leaked, or delayed for long."""

from __future__ import annotations

import logging
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import timezone
from email.utils import parsedate_to_datetime
from functools import partial
from http.client import HTTPResponse
from typing import Any

import msgspec
import requests
from requests.adapters import HTTPAdapter
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError, ProxyError
from urllib3.util.ssl_match_hostname import CertificateError

from ...core.installed import VERSION
from ...core.secret import Secret
from ...core.socket_deadline import SocketDeadline
from ...core.states import DeliveryOutcome
from ..retries import GONE_WAIT_SECONDS, MAX_RETRY_AFTER_SECONDS, RATE_LIMIT_WAIT_SECONDS, attempts
from .receiver import DeliveryError, HttpOptions, public_part

# -- deadline adapter -------------------------------------------------------------------------
# The HTTP connections of a receiver: every request has a deadline and can be aborted.


PIECE_BYTES = 16 * 1024


class DeadlineAdapter(SocketDeadline, HTTPAdapter):
    """A transport of requests whose exchanges end by ``deadline``, in the head as in the body."""

    def __init__(self) -> None:
        SocketDeadline.__init__(self)
        HTTPAdapter.__init__(self, max_retries=0)

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        """Make pools whose answers are read through this adapter."""
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = self._pools()

    def proxy_manager_for(self, *args: Any, **kwargs: Any) -> Any:
        """Make the pools behind a proxy likewise."""
        manager = super().proxy_manager_for(*args, **kwargs)
        manager.pool_classes_by_scheme = self._pools()
        return manager

    def _pools(self) -> dict[str, type[HTTPConnectionPool]]:
        return {"http": self._pool(HTTPConnectionPool), "https": self._pool(HTTPSConnectionPool)}

    def _pool(self, base: type[HTTPConnectionPool]) -> type[HTTPConnectionPool]:
        adapter: DeadlineAdapter = self
        plain: Any = base.ConnectionCls

        class Connection(plain):  # type: ignore[misc]  # its base is a value, chosen by scheme
            response_class = adapter._response

            def send(self, data: Any) -> None:
                for piece in _pieces(data):
                    if self.sock is not None:
                        adapter.limit(self.sock)
                    super().send(piece)

        class Pool(base):  # type: ignore[misc,valid-type]  # as above
            ConnectionCls = Connection

        return Pool

    def _response(self, sock: socket.socket, *args: Any, **kwargs: Any) -> HTTPResponse:
        response = HTTPResponse(sock, *args, **kwargs)
        unbounded = response.fp
        response.fp = self.reader(sock)
        unbounded.close()
        return response


def _pieces(data: Any) -> Iterator[Any]:
    """``data`` in the size of a TLS record: what a whole SSL socket's limit counts for."""
    if not isinstance(data, bytes):
        yield data
        return
    for start in range(0, len(data), PIECE_BYTES):
        yield data[start : start + PIECE_BYTES]


# -- answer -----------------------------------------------------------------------------------
# What an HTTP answer means for an alert.


TOO_MANY_REQUESTS = 429
TRY_AGAIN = frozenset({408, 425, TOO_MANY_REQUESTS})
"""Temporary client errors: timeout, too early (RFC 8470), too many requests."""

REJECTIONS = frozenset({400, 406, 411, 413, 414, 415, 422, 431})
GONE_STATUS = 410


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


def may_have_arrived(status: int) -> bool:
    """Whether the request may have succeeded despite this failure, as with a gateway's error."""
    return status in {408, 500, 502, 504}


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


# -- unlogged ---------------------------------------------------------------------------------
# Keeps the requests of one thread out of urllib3's log.


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

    def with_doubt(self, doubt: bool) -> HttpError:
        """The same error; with ``doubt``, the post may have arrived nevertheless."""
        if self.may_have_arrived or not doubt:
            return self
        return HttpError(
            str(self),
            self.answer,
            status=self.status,
            body=self.body,
            retry_after=self.retry_after,
            may_have_arrived=True,
        )


class HttpPoster:
    """Posts bytes to one URL: a few attempts within about ten seconds, then an error.

    It uses only the transport of requests. A ``Session`` adds what is unsafe for alerts:
    redirects (it reads their whole bodies even when it does not follow them), proxies and
    credentials from the environment and ~/.netrc, cookies. A DNS lookup has no timeout at all, so
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
            address,
            wall,
            lambda url, now: self._attempt(method, url, body, now, headers(now)),
        )

    def get(self, wall: float, *, address: Callable[[str], str]) -> bytes:
        """The first 4 MiB of what a GET is answered with; else as ``post``."""
        once = partial(self._attempt, "GET", headers={}, body=None)
        return self._exchange(address, wall, lambda url, now: once(url, now_wall=now))

    def _exchange(
        self, address: Callable[[str], str], wall: float, once: Callable[[str, float], bytes]
    ) -> bytes:
        """Attempt it ``once`` and again, at a URL and a Unix time each."""
        began = time.monotonic()
        if began - self._used_at > MAX_IDLE_SECONDS:
            self._wire.close()
        self._wire.deadline = began + self._total_seconds
        url = address(self._present_url())
        doubt = False

        def attempt() -> bytes:
            nonlocal doubt
            now_wall = wall + time.monotonic() - began
            try:
                return once(url, now_wall)
            except HttpError as error:
                # If one attempt may have arrived, so may the post, even if the next one fails.
                doubt = doubt or error.may_have_arrived
                raise error.with_doubt(doubt) from None
            finally:
                self._used_at = time.monotonic()

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

    def _attempt(
        self,
        method: str,
        url: str,
        body: bytes | None,
        now_wall: float,
        headers: Mapping[str, str],
    ) -> bytes:
        if self._closing.is_set():
            raise HttpError(f"{self.place}: closed", DeliveryOutcome.TRANSIENT)
        with self._send(method, url, body, headers) as response:
            answer = _read(response, MAX_ANSWER_BYTES if body is not None else MAX_LIST_BYTES)
        if classify(response.status_code) is not DeliveryOutcome.DELIVERED:
            raise self._unaccepted(response, answer, now_wall)
        return answer

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
            trouble = diagnose(error)
            raise HttpError(
                f"{self.place} {trouble.text}",
                trouble.answer,
                may_have_arrived=trouble.may_have_arrived,
            ) from None

    def _unaccepted(self, response: requests.Response, answer: bytes, now_wall: float) -> HttpError:
        status = response.status_code
        return HttpError(
            f"{self.place} answered {status}",
            classify(status),
            status=status,
            body=answer,
            retry_after=wait_asked_for(status, response.headers.get("Retry-After"), now_wall),
            may_have_arrived=may_have_arrived(status),
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
        raise error.with_doubt(doubt) from None
