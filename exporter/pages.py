"""The answer to each HTTP path, and the notice of a shutdown."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Any

import msgspec

from ..core.guard import Guard
from . import exposition
from .metrics import all_families
from .published_state import PublishedState
from .status import readiness, status
from .status_page.assembly import policy, status_page

# -- shutdown notice --------------------------------------------------------------------------
# Notifies external watchers that this server shuts down, and why.


WAIT_SECONDS = 20.0
"""How long one request may wait; short enough for any proxy in between."""
MAX_WAITING = 4
"""How many requests may wait at once; half of the server's slots stay free for others. One
more ends the oldest, so that nobody keeps all places."""
MAX_PAGES = 2
"""How many of them may be status pages, of which a person can open any number."""
RETURN_SECONDS = 0.5
"""A watcher whose request has ended asks again within this time."""


class Notice(str, Enum):
    """Why a server shuts down; a crash gives no notice."""

    STOPPED = "stopped"
    """The application ends as intended; no restart is expected."""
    TERMINATED = "terminated"
    """A signal ends it; a scheduler may start it again."""


class ShutdownNotice:
    """``say`` gives the notice once; every current and later ``wait`` returns it.

    After ``end`` without a notice, none waits either.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._said: Notice | None = None
        self._is_over = False
        self._waiting: deque[object] = deque()
        """Oldest first."""
        self._pages = 0
        self._came_late = 0
        self._released_at = self._displaced_at = -math.inf
        self._changed = threading.Condition()

    @property
    def said(self) -> Notice | None:
        """Why the server is shutting down; None while it runs."""
        return self._said

    def wait(self) -> Notice | None:
        """Wait up to ``WAIT_SECONDS`` for the notice; None if none was given.

        If ``MAX_WAITING`` requests wait already, the oldest of them returns at once.
        """
        with self._changed:
            if self._said:
                self._came_late += 1
                self._changed.notify_all()
            elif not self._is_over:
                place = self._take_place()
                self._changed.wait_for(
                    lambda: self._is_over or place not in self._waiting, WAIT_SECONDS
                )
                self._leave(place)
            return self._said

    def wait_as_page(self) -> Notice | None:
        """Wait like ``wait``, but only on a free place; a new watcher takes that place."""
        with self._changed:
            if not self._is_over and self._pages < MAX_PAGES and self._places_left() > 0:
                self._pages += 1
                self._changed.wait_for(
                    lambda: self._is_over or self._places_left() < 0, WAIT_SECONDS
                )
                self._pages -= 1
            return self._said

    def say(self, notice: Notice, timeout: float) -> bool:
        """Give the notice; True if a client receives it.

        A watcher whose request just ended is about to ask again. Waits for it up to ``timeout``
        seconds, and at most ``RETURN_SECONDS``. If its place was taken, others may come first, so
        all of this time passes.
        """
        with self._changed:
            waiting, self._said = len(self._waiting) + self._pages, notice
            self.end()
            since = self._clock() - max(self._released_at, self._displaced_at)
            displaced = self._clock() - self._displaced_at < RETURN_SECONDS
            self._changed.wait_for(
                lambda: self._came_late and not displaced,
                min(timeout, max(0.0, RETURN_SECONDS - since)),
            )
            return waiting + self._came_late > 0

    def end(self) -> None:
        """End every wait."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def _take_place(self) -> object:
        place = object()
        self._waiting.append(place)
        if len(self._waiting) > MAX_WAITING:
            self._waiting.popleft()
            self._displaced_at = self._clock()
        self._changed.notify_all()
        return place

    def _leave(self, place: object) -> None:
        if place in self._waiting:
            self._waiting.remove(place)
        self._released_at = self._clock()

    def _places_left(self) -> int:
        return MAX_WAITING - len(self._waiting) - self._pages


# -- pages ------------------------------------------------------------------------------------
# The answer to each HTTP path, without sockets.


TEXT = "text/plain; charset=utf-8"
JSON = "application/json"
HTML = "text/html; charset=utf-8"
SILENCES = "/silences"
"""Accepts a POST, only with the token, because a silence suppresses pages."""
RUNBOOKS = "/runbooks/"
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
    """What the pages show; the threads of the requests call all of it.

    ``published`` returns the newest published state, ``alive`` whether the worker's loop runs,
    ``runbook`` an alert's runbook. ``silence`` handles the body of ``POST /silences``.
    """

    published: Callable[[], PublishedState | None]
    alive: Callable[[], bool]
    runbook: Callable[[str], str | None] = lambda _: None
    silence: Callable[[bytes], tuple[int, dict[str, object]]] | None = None


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
            "/watch": self._watch,
            "/watch/page": self._watch_as_page,
        }

    def get(self, path: str, accept: str) -> Reply:
        """Answer a GET of ``path`` with this Accept header; a page that raises answers 500."""
        page = self._pages.get(path)
        if path.startswith(RUNBOOKS):
            page = partial(self._runbook, path.removeprefix(RUNBOOKS))
        if page is None:
            return Reply(404, f"not found; there is {', '.join(self._pages)}\n".encode())
        return self._guarded(lambda: page(accept))

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

    def _runbook(self, alertname: str, _accept: str) -> Reply:
        """The runbook as Markdown, which is readable as plain text."""
        text = self._content.runbook(alertname)
        if text is None:
            return Reply(404, b"no such runbook\n")
        return Reply(200, text.encode())

    def _watch(self, _accept: str) -> Reply:
        """A long poll by which external watchers receive the shutdown notice."""
        return _running(self._shutdown_notice.wait())

    def _watch_as_page(self, _accept: str) -> Reply:
        """The same for the status page, which gives up its place to watchers."""
        return _running(self._shutdown_notice.wait_as_page())


def _running(notice: Notice | None) -> Reply:
    return _json(200, {"status": "running" if notice is None else notice.value})


def _json(code: int, value: Any) -> Reply:
    return Reply(code, msgspec.json.encode(value), JSON)
