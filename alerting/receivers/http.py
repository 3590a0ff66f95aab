"""Posting bytes over HTTP so that nothing is lost, leaked, or held up for long."""

from __future__ import annotations

import logging
import ssl
import threading
import time
from collections.abc import Callable, Mapping

import requests
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError

from ...listener.version import VERSION
from .address import public_part
from .answer import Answer, classify, may_have_arrived, wait_asked_for
from .attempts import attempts
from .receiver import DeliveryError
from .wire import Wire

TOTAL_SECONDS = 10.0
CONNECT_SECONDS = 3.0
READ_SECONDS = 5.0
MAX_ANSWER_BYTES = 64 * 1024
USER_AGENT = f"querypulse/{VERSION}"

NOTHING_LEFT = (ConnectTimeoutError, NewConnectionError, ssl.SSLCertVerificationError)
"""Errors from before a request could leave."""

HeadersAt = Callable[[float], Mapping[str, str]]
"""Headers of one attempt, made for the Unix time at which it leaves."""


class HttpError(DeliveryError):
    """A post failed; ``status`` is the HTTP status, None without an answer."""

    status: int | None = None


class HttpPoster:
    """Posts JSON bytes to one URL: a few attempts within about ten seconds, then an error.

    Built on requests' transport alone. Its ``Session`` adds what an alert must not meet:
    redirects (whose bodies it reads whole even when told not to follow), proxies and
    credentials from the environment and ~/.netrc, cookies. Looking up a name has no timeout
    at all, so only a delivery's own thread may post.
    """

    def __init__(
        self,
        url: str,
        *,
        setting: str,
        allow_http: bool = False,
        total_seconds: float = TOTAL_SECONDS,
    ) -> None:
        """Check ``url``.

        Raises:
            ValueError: it cannot be posted to; the message names ``setting``.

        """
        self.place = public_part(url, setting=setting, allow_http=allow_http)
        self._url = url
        self._total_seconds = total_seconds
        self._wire = Wire()
        self._closing = threading.Event()

    def post(self, body: bytes, wall: float, headers: HeadersAt = lambda _: {}) -> bytes:
        """Post ``body`` at Unix time ``wall``; returns the first 64 KiB of a 2xx answer.

        Raises:
            HttpError: no 2xx came; the message shows scheme, host and status, nothing else.

        """
        began = time.monotonic()
        self._wire.deadline = began + self._total_seconds
        doubt = False

        def attempt() -> bytes:
            nonlocal doubt
            now_wall = wall + time.monotonic() - began
            try:
                return self._attempt(body, now_wall, headers(now_wall))
            except HttpError as error:
                # One doubtful attempt leaves the doubt, however clearly the next one fails.
                doubt = error.may_have_arrived = error.may_have_arrived or doubt
                raise

        return attempts(self._total_seconds, self._closing)(attempt)

    def close(self) -> None:
        """Give the connection back; a post under way ends at once."""
        self._closing.set()
        self._wire.cut()
        self._wire.close()

    def _attempt(self, body: bytes, now_wall: float, headers: Mapping[str, str]) -> bytes:
        if self._closing.is_set():
            raise HttpError(f"{self.place}: closed", transient=True)
        fixed = {"Content-Type": "application/json", "User-Agent": USER_AGENT}
        request = requests.Request("POST", self._url, data=body, headers={**fixed, **headers})
        left = max(0.001, self._wire.seconds_left())
        timeout = (min(CONNECT_SECONDS, left), min(READ_SECONDS, left))
        try:
            with _Unlogged():
                response = self._wire.send(request.prepare(), stream=True, timeout=timeout)
        except (requests.RequestException, HTTPError, OSError) as error:
            raise self._unanswered(error) from None
        with response:
            answer = _read(response)
        if classify(response.status_code) is not Answer.DELIVERED:
            raise self._unaccepted(response, now_wall)
        return answer

    def _unanswered(self, error: Exception) -> HttpError:
        chain = _chain(error)
        unsent = any(isinstance(one, NOTHING_LEFT) for one in chain)
        reason = type(chain[-1]).__name__
        detail = getattr(chain[-1], "strerror", None)
        return HttpError(
            f"{self.place} did not answer: {reason}{f' ({detail})' if detail else ''}",
            transient=True,
            may_have_arrived=not unsent,
        )

    def _unaccepted(self, response: requests.Response, now_wall: float) -> HttpError:
        status = response.status_code
        error = HttpError(
            f"{self.place} answered {status}",
            transient=classify(status) is Answer.TRANSIENT,
            retry_after=wait_asked_for(status, response.headers.get("Retry-After"), now_wall),
            may_have_arrived=may_have_arrived(status),
        )
        error.status = status
        return error


class _Unlogged(logging.Filter):
    """While entered, keeps this thread's requests, paths included, out of urllib3's debug log."""

    def __enter__(self) -> None:
        self._thread = threading.get_ident()
        logging.getLogger("urllib3.connectionpool").addFilter(self)

    def __exit__(self, *_: object) -> None:
        logging.getLogger("urllib3.connectionpool").removeFilter(self)

    def filter(self, _: logging.LogRecord) -> bool:
        return threading.get_ident() != self._thread


def _read(response: requests.Response) -> bytes:
    try:
        return bytes(response.raw.read(MAX_ANSWER_BYTES, decode_content=False))
    except (HTTPError, OSError):
        return b""  # the status has come, and it decides


def _chain(error: BaseException) -> list[BaseException]:
    """The error and what it came from, the root last."""
    chain = [error]
    while (cause := chain[-1].__context__) is not None:
        chain.append(cause)
    return chain
