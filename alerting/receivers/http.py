"""Posts bytes over HTTP so that nothing is lost, leaked, or delayed for long."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from functools import partial

import requests
from urllib3.exceptions import HTTPError

from ...core.outcomes import DeliveryOutcome
from ...core.secret import Secret
from ...core.version import VERSION
from ..retries import attempts
from .address import public_part
from .answer import classify, may_have_arrived, wait_asked_for
from .deadline_adapter import DeadlineAdapter
from .http_options import HttpOptions
from .receiver import DeliveryError
from .transport_failure import diagnose
from .unlogged import Unlogged

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
