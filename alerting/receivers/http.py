"""Posts bytes over HTTP so that nothing is lost, leaked, or delayed for long."""

from __future__ import annotations

import logging
import math
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from datetime import timezone
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter
from urllib3 import connectionpool
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import HTTPError, NewConnectionError, ProxyError

from ...core.installed import VERSION
from ...core.secret import Secret
from ...core.socket_deadline import SocketDeadline
from ...core.states import DeliveryOutcome
from ...core.text import to_json
from ..alert import Incident
from .receiver import (
    DeliveryError,
    HttpOptions,
    ReceiverCapabilities,
    ReceiverContext,
    ReceiverSettings,
    public_part,
)

# -- what an answer means -----------------------------------------------------------------------

TOO_MANY_REQUESTS = 429
TRY_AGAIN = frozenset({408, 425, TOO_MANY_REQUESTS})
"""Temporary client errors: timeout, too early (RFC 8470), too many requests."""

REJECTIONS = frozenset({400, 406, 411, 413, 414, 415, 422, 431})
GONE_STATUS = 410
MAY_HAVE_ARRIVED = frozenset({408, 500, 502, 504})
"""The request may have succeeded despite this failure, as with a gateway's error."""
MAX_RETRY_AFTER_SECONDS = 300.0
"""The longest pause that a receiver can ask for: a page is waiting."""
RATE_LIMIT_WAIT_SECONDS = 5.0
"""For a 429 that does not say how long: PagerDuty documents no ``Retry-After``."""
GONE_WAIT_SECONDS = 3600.0
"""A webhook that answers 410 was removed there, possibly by mistake."""


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


# -- why there is no answer ---------------------------------------------------------------------

AT_THE_PROXY = (ProxyError, requests.exceptions.ProxyError)
NOTHING_LEFT = (NewConnectionError, *AT_THE_PROXY)
"""Errors that occur before a request is sent."""

# urllib3 1.26 and 2 have it in different modules, and both use it here.
CertificateError: type[Exception] = vars(connectionpool)["CertificateError"]
UNTRUSTED = (ssl.SSLCertVerificationError, CertificateError)
TUNNEL_REFUSED = re.compile(r"Tunnel connection failed: (\d{3})\b")
"""The error of ``http.client`` when a proxy refuses to connect."""


def diagnose(error: BaseException) -> tuple[str, DeliveryOutcome, bool]:
    """What happened, without secrets; what it means; and whether the request may have arrived."""
    chain = _causes(error)
    for cause in chain:
        if refusal := TUNNEL_REFUSED.search(str(cause)):
            is_transient = classify(int(refusal[1])) is DeliveryOutcome.TRANSIENT
            outcome = DeliveryOutcome.TRANSIENT if is_transient else DeliveryOutcome.MISCONFIGURED
            return f"was not reached, the proxy answered {refusal[1]}", outcome, False
    reason = _reason(chain[-1])
    if _is_any(chain, UNTRUSTED):
        return f"is not trusted: {reason}", DeliveryOutcome.MISCONFIGURED, False
    who = "was not reached, the proxy " if _is_any(chain, AT_THE_PROXY) else ""
    text = f"{who}did not answer: {reason}"
    # A bundle or certificate that existed at the start; of requests, an error without a number.
    is_a_missing_file = isinstance(error, FileNotFoundError)
    is_a_missing_file |= type(error) is OSError and error.errno is None
    if isinstance(error, ValueError) or is_a_missing_file:
        return text, DeliveryOutcome.MISCONFIGURED, False
    return text, DeliveryOutcome.TRANSIENT, not _is_any(chain, NOTHING_LEFT)


def _causes(error: BaseException) -> list[BaseException]:
    """The error and its causes, the root cause last."""
    chain = [error]
    while (context := chain[-1].__context__) is not None:
        chain.append(context)
    # urllib3 wraps some errors without raising the wrapper, which is then a cause only.
    return [*(link.__cause__ for link in chain if link.__cause__ is not None), *chain]


def _is_any(chain: list[BaseException], kinds: tuple[type, ...]) -> bool:
    return any(isinstance(cause, kinds) for cause in chain)


def _reason(error: BaseException) -> str:
    """The kind of the error and the text of the system or OpenSSL; never its whole text."""
    detail = getattr(error, "verify_message", None) or getattr(error, "strerror", None)
    # Of urllib3 1.26, the class may be OpenSSL's own, which has a text for its other problems.
    if isinstance(error, CertificateError) and not detail:
        return "its certificate is for another name"
    return f"{type(error).__name__} ({detail})" if detail else type(error).__name__


# -- http -------------------------------------------------------------------------------------

TOTAL_SECONDS = 10.0
MAX_ANSWER_BYTES = 64 * 1024
MAX_LIST_BYTES = 4 * 1024 * 1024
USER_AGENT = f"querypulse/{VERSION}"

_ours = threading.local()
"""Whether this thread posts: then urllib3 logs nothing, or a path would be in its debug log."""
logging.getLogger("urllib3.connectionpool").addFilter(lambda _: not getattr(_ours, "posts", False))


class DeadlineAdapter(HTTPAdapter):
    """A transport of requests whose exchanges end in time, in the head as in the body."""

    def __init__(self) -> None:
        self.wire = SocketDeadline()
        bases = {"http": HTTPConnectionPool, "https": HTTPSConnectionPool}
        self._pools = {scheme: _limited(base, self.wire) for scheme, base in bases.items()}
        super().__init__(max_retries=0)

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        """Make pools whose connections end in time."""
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = self._pools

    def proxy_manager_for(self, *args: Any, **kwargs: Any) -> Any:
        """Make the pools behind a proxy likewise."""
        manager = super().proxy_manager_for(*args, **kwargs)
        manager.pool_classes_by_scheme = self._pools
        return manager


def _limited(base: Any, wire: SocketDeadline) -> type[HTTPConnectionPool]:
    """One of urllib3's pools, whose connections end in time."""

    class Connection(base.ConnectionCls):  # type: ignore[misc]  # its base depends on the scheme
        response_class = staticmethod(wire.response)

        def _new_conn(self) -> socket.socket:
            try:
                return wire.connect(self._dns_host, self.port)
            except OSError as error:
                raise NewConnectionError(self, "not connected") from error

    return type(base.__name__, (base,), {"ConnectionCls": Connection})


class HttpPoster:
    """Posts bytes to one URL, once, within about ten seconds.

    It uses only the transport of requests. A ``Session`` adds what is unsafe for alerts:
    redirects (it reads their whole bodies even when it does not follow them), credentials from
    ~/.netrc, cookies. Each post has a connection of its own: firewalls drop idle ones silently.
    A DNS lookup has no timeout at all, so only a delivery's own thread may post.
    """

    def __init__(
        self,
        url: Secret,
        *,
        setting: str,
        http: HttpOptions | None = None,
        credentials: Secret | None = None,
        total_seconds: float = TOTAL_SECONDS,
    ) -> None:
        """Check the URL, and the ``credentials``, which are sent as the header ``Authorization``.

        Raises:
            ValueError: one cannot be used; the message names ``setting``, or the setting of the
                credentials.

        """
        self._url = url
        self._setting = setting
        self._http = http or HttpOptions()
        self.place = ""
        """What may be shown of the URL."""
        self._check(url.reveal())
        self._credentials = credentials
        self._authorization()
        self._total_seconds = total_seconds
        self._adapter = DeadlineAdapter()

    def post(
        self,
        body: bytes | None,
        headers: Mapping[str, str] = {},
        *,
        address: Callable[[str], str] = str,
        method: str = "POST",
    ) -> bytes:
        """Post ``body``; returns the first 64 KiB of a 2xx answer, of a ``GET`` the first 4 MiB.

        ``address`` makes of the URL the one to post to, on the same host.

        Raises:
            DeliveryError: no 2xx came; the message shows scheme, host and status, nothing else.

        """
        url = self._url.reveal()
        try:
            # Files may have changed since the last post.
            self._check(url)
            fixed = {"User-Agent": USER_AGENT, "Connection": "close", **self._authorization()}
        except ValueError as error:
            raise DeliveryError(str(error), DeliveryOutcome.MISCONFIGURED) from None
        url = address(url)
        if body is not None:
            fixed["Content-Type"] = "application/json"
        request = requests.Request(method, url, data=body, headers={**fixed, **headers})
        _ours.posts = True
        try:
            with (
                self._adapter.wire.within(self._total_seconds),
                self._adapter.send(
                    request.prepare(),
                    stream=True,
                    timeout=self._total_seconds,
                    verify=self._http.verify,
                    cert=self._http.cert,
                    proxies=self._http.proxies(url),
                ) as response,
            ):
                answer = _read(response, MAX_LIST_BYTES if method == "GET" else MAX_ANSWER_BYTES)
        except (requests.RequestException, HTTPError, OSError) as error:
            text, outcome, may_have_arrived = diagnose(error)
            raise DeliveryError(
                f"{self.place} {text}", outcome, may_have_arrived=may_have_arrived
            ) from None
        finally:
            _ours.posts = False
            self._adapter.close()
        status, outcome = response.status_code, classify(response.status_code)
        if outcome is DeliveryOutcome.DELIVERED:
            return answer
        raise DeliveryError(
            f"{self.place} answered {status}",
            outcome,
            status=status,
            body=answer,
            retry_after=wait_asked_for(status, response.headers.get("Retry-After"), time.time()),
            may_have_arrived=status in MAY_HAVE_ARRIVED,
        )

    def close(self) -> None:
        """A post in flight ends at once, and no other begins."""
        self._adapter.wire.cut()

    def _check(self, url: str) -> None:
        # Of a file that has changed, the name of its setting helps.
        setting = self._url.setting or self._setting
        self.place = public_part(url, setting=setting, allow_http=self._http.allow_http)

    def _authorization(self) -> dict[str, str]:
        if self._credentials is None:
            return {}
        if "@" in urlsplit(self._url.known).netloc:
            raise ValueError(f"{self._credentials.setting}: there is a user in the URL already")
        return {"Authorization": self._credentials.authorization()}


def _read(response: requests.Response, most: int) -> bytes:
    try:
        return bytes(response.raw.read(most, decode_content=False))
    except (HTTPError, OSError):
        return b""  # the status has come, and it decides


# -- receivers over http ------------------------------------------------------------------------

BODY_DISLIKED = frozenset({400, 413, 422})
"""Rejections that a smaller, plainer body may avoid."""


def not_a_page(answer: bytes, place: str) -> bytes:
    """The body of a 2xx answer of ``place``, if it is not HTML, such as a proxy's login page.

    Raises:
        DeliveryError: it is HTML, which this receiver never sends.

    """
    if answer.lstrip().startswith(b"<"):
        text = f"{place} answered 2xx with a page of HTML"
        raise DeliveryError(text, DeliveryOutcome.MISCONFIGURED, may_have_arrived=True)
    return answer


class HttpReceiver:
    """A receiver at one URL, which takes about one message a second, as chats do.

    A message that is too large or refused is sent again without its details: a page must not
    depend on them.
    """

    capabilities = ReceiverCapabilities(per_minute=60.0)
    max_bytes = math.inf
    """The largest body that it takes."""

    def __init__(
        self, given: ReceiverSettings, context: ReceiverContext, url: Secret | None = None
    ) -> None:
        """Check the settings; see ``ReceiverSettings.makes``."""
        self.name = given.name
        self.external_url = context.external_url
        self.poster = HttpPoster(url or context.secret("url"), setting="url", http=context.http)

    def send(self, incident: Incident, wall: float) -> None:
        """Send one incident; see ``Receiver.send``."""
        body = to_json(self.message(incident))
        if len(body) > self.max_bytes:
            body = to_json(self.message(incident, minimal=True))
        try:
            self._post(incident, wall, body)
        except DeliveryError as refusal:
            if refusal.status not in BODY_DISLIKED:
                raise
            minimal = to_json(self.message(incident, minimal=True))
            if minimal == body:
                raise
            self._post(incident, wall, minimal)

    def close(self) -> None:
        """Close the connection."""
        self.poster.close()

    def message(self, incident: Incident, *, minimal: bool = False) -> dict[str, Any]:
        """What to post of an incident; ``minimal``: without details.

        Raises:
            DeliveryError: a secret in it cannot be used.

        """
        raise NotImplementedError

    def headers(self, incident: Incident, wall: float, body: bytes) -> Mapping[str, str]:  # noqa: ARG002 - for others
        """The headers of a body that is sent at Unix time ``wall``; may raise as ``message``."""
        return {}

    def check(self, answer: bytes) -> None:
        """Raise ``DeliveryError`` for the body of a 2xx answer that is not from the receiver."""
        not_a_page(answer, self.poster.place)

    def _post(self, incident: Incident, wall: float, body: bytes) -> None:
        self.check(self.poster.post(body, self.headers(incident, wall, body)))
