"""The answer to each HTTP path, and the notice of a shutdown."""

from __future__ import annotations

import asyncio
import math
from base64 import b64encode
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from functools import cache, partial
from hashlib import sha256
from importlib.resources import files
from typing import Any

import msgspec

from ..core.guard import Guard
from . import exposition
from .metrics import all_families
from .published_state import PublishedState
from .status import readiness, status

WAIT_SECONDS = 20.0
"""How long one request to ``/watch`` may wait; short enough for any proxy in between."""
MAX_WATCHERS = 64
"""How many may wait at once; one more ends the oldest, so that nobody keeps all places."""
RETURN_SECONDS = 0.5
"""A watcher whose request has ended asks again within this time."""


class Notice(str, Enum):
    """Why a server shuts down; a crash gives no notice."""

    STOPPED = "stopped"
    """The application ends as intended; no restart is expected."""
    TERMINATED = "terminated"
    """A signal ends it; a scheduler may start it again."""
    FAILED = "failed"
    """It has crashed, and its receivers know why; a scheduler may start it again."""


class ShutdownNotice:
    """``say`` gives the notice once; every present and later ``wait`` returns it.

    Both run in the event loop of the server.
    """

    def __init__(self) -> None:
        self.said: Notice | None = None
        """Why the server is shutting down; None while it runs."""
        self._waiting: deque[asyncio.Future[None]] = deque()
        """Oldest first."""
        self._left_at = -math.inf
        self._came_late = asyncio.Event()

    async def wait(self) -> Notice | None:
        """Wait up to ``WAIT_SECONDS`` for the notice; None if none was given."""
        if self.said:
            self._came_late.set()
            return self.said
        loop = asyncio.get_running_loop()
        place = loop.create_future()
        self._waiting.append(place)
        if len(self._waiting) > MAX_WATCHERS:
            self._waiting.popleft().set_result(None)
        try:
            await asyncio.wait([place], timeout=WAIT_SECONDS)
        finally:
            with suppress(ValueError):
                self._waiting.remove(place)
            self._left_at = loop.time()
        return self.said

    async def say(self, notice: Notice, timeout: float) -> None:
        """Give the notice to those who wait.

        A watcher whose request just ended is about to ask again: it is waited for, up to
        ``timeout`` seconds, and at most ``RETURN_SECONDS``.
        """
        returns_in = self._left_at + RETURN_SECONDS - asyncio.get_running_loop().time()
        self.said = notice
        for place in self._waiting:
            place.set_result(None)
        self._waiting.clear()
        if returns_in > 0:
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._came_late.wait(), min(timeout, returns_in))


# -- status page ------------------------------------------------------------------------------
# One document without external assets and without data; its script polls ``/status``. The policy
# allows only this script and this style, by their hashes (Content Security Policy 3, "script-src").


SCRIPTS = (
    "words.js",
    "symbols.js",
    "dom.js",
    "meters.js",
    "queries.js",
    "flow.js",
    "alerts.js",
    "monitor.js",
    "driver.js",
    "page.js",
)
"""In the order in which they are joined: each file uses only names of earlier files."""
_STYLE_MARK = "/* page.css */"
_SCRIPT_MARK = "/* page.js */"


@cache
def status_page() -> bytes:
    """The document in UTF-8."""
    page = _read("page.html").replace(_STYLE_MARK, _style())
    return page.replace(_SCRIPT_MARK, _script()).encode()


@cache
def policy() -> tuple[tuple[str, str], ...]:
    """The page's HTTP headers."""
    rules = (
        "default-src 'none'",
        f"script-src {_hash(_script())}",
        f"style-src {_hash(_style())}",
        "img-src data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
    return (("Content-Security-Policy", "; ".join(rules)), ("Referrer-Policy", "no-referrer"))


def _style() -> str:
    return _read("page.css")


def _script() -> str:
    return "\n".join(_read(name) for name in SCRIPTS)


def _read(name: str) -> str:
    return files(__package__).joinpath("status_page").joinpath(name).read_text("utf-8")


def _hash(source: str) -> str:
    return f"'sha256-{b64encode(sha256(source.encode()).digest()).decode()}'"


# -- pages ------------------------------------------------------------------------------------


TEXT = "text/plain; charset=utf-8"
JSON = "application/json"
HTML = "text/html; charset=utf-8"
SILENCES = "/silences"
"""Accepts a POST, only with the token, because a silence suppresses pages; a GET lists them."""
RUNBOOKS = "/runbooks/"
WATCH = ("/watch", "/watch/page")
"""Long polls by which external watchers and the status page receive the shutdown notice."""
_OPENMETRICS = "application/openmetrics-text"


def is_public(path: str) -> bool:
    """Whether a path needs no token because it holds no data: the status page and the runbooks."""
    return path == "/" or path.startswith(RUNBOOKS)


class Reply(msgspec.Struct, frozen=True):
    """One answer; ``code`` is the HTTP status."""

    code: int
    body: bytes
    content_type: str = TEXT
    headers: tuple[tuple[str, str], ...] = ()


class Content(msgspec.Struct, frozen=True):
    """What the pages show; the server's thread calls all of it, and none of it waits.

    ``published`` returns the newest published state, ``alive`` whether the worker's loop runs,
    ``runbook`` an alert's runbook. ``silence`` handles the body of ``POST /silences``,
    and ``silences`` are those in force.
    """

    published: Callable[[], PublishedState | None]
    alive: Callable[[], bool]
    runbook: Callable[[str], str | None] = lambda _: None
    silence: Callable[[bytes], tuple[int, dict[str, object]]] | None = None
    silences: Callable[[], list[dict[str, str]]] = list


class Pages:
    """Answers each path from the newest content."""

    def __init__(self, content: Content, shutdown_notice: ShutdownNotice, guard: Guard) -> None:
        self._content = content
        self._shutdown_notice = shutdown_notice
        self._guard = guard
        self._pages = {
            "/": self._page,
            "/metrics": self._metrics,
            "/status": self._status,
            "/livez": self._livez,
            "/readyz": self._readyz,
            SILENCES: self._silences,
        }

    def get(self, path: str, accept: str) -> Reply:
        """Answer a GET of ``path`` with this Accept header; a page that raises answers 500."""
        page = self._pages.get(path)
        if path.startswith(RUNBOOKS):
            page = partial(self._runbook, path.removeprefix(RUNBOOKS))
        if page is None:
            return Reply(404, f"not found; there is {', '.join((*self._pages, *WATCH))}\n".encode())
        return self._guarded(lambda: page(accept))

    async def watch(self) -> Reply:
        """Answer a GET of a path of ``WATCH``, once there is a notice or the wait is over."""
        notice = await self._shutdown_notice.wait()
        return self._guarded(lambda: _json(200, self._watch_page(notice)))

    def _watch_page(self, notice: Notice | None) -> dict[str, object]:
        """With the notice of a failure, the open alerts: nobody can read them any more."""
        published = self._content.published()
        if notice is not Notice.FAILED or published is None:
            return {"status": "running" if notice is None else notice.value}
        return {"status": notice.value, "alerts": status(published).alerts}

    def post(self, body: bytes) -> Reply:
        """Answer a POST to ``SILENCES`` from a client with the token."""
        silence = self._content.silence
        if silence is None:
            return Reply(404, b"not found\n")
        return self._guarded(lambda: _json(*silence(body)))

    def _guarded(self, answer: Callable[[], Reply]) -> Reply:
        failed = Reply(500, b"internal error, see the log\n")
        return self._guard.attempt("exporter", answer, default=failed)

    def _page(self, _accept: str) -> Reply:
        return Reply(200, status_page(), HTML, policy())

    def _metrics(self, accept: str) -> Reply:
        # Requested versions and escapings are ignored: every scraper reads 1.0.0.
        families = all_families(self._content.published())
        if _OPENMETRICS in accept:
            return Reply(200, exposition.as_openmetrics(families), exposition.OPENMETRICS)
        return Reply(200, exposition.as_text(families), exposition.TEXT)

    def _status(self, _accept: str) -> Reply:
        published = self._content.published()
        if published is None:
            return _json(503, {"error": "nothing has been evaluated yet"})
        return _json(200, status(published))

    def _livez(self, _accept: str) -> Reply:
        if self._shutdown_notice.said:
            return Reply(503, b"shutting down\n")
        alive = self._content.alive()
        return Reply(200 if alive else 503, b"alive\n" if alive else b"the worker is stuck\n")

    def _readyz(self, _accept: str) -> Reply:
        answer = readiness(self._content.published())
        return _json(200 if answer.ready else 503, answer)

    def _silences(self, _accept: str) -> Reply:
        return _json(200, self._content.silences())

    def _runbook(self, alertname: str, _accept: str) -> Reply:
        """The runbook as Markdown, which is readable as plain text."""
        text = self._content.runbook(alertname)
        if text is None:
            return Reply(404, b"no such runbook\n")
        return Reply(200, text.encode())


def _json(code: int, value: Any) -> Reply:
    return Reply(code, msgspec.json.encode(value), JSON)
