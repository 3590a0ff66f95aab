"""The answer to each HTTP path, without sockets."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from ..core.guard import Guard
from . import exposition
from .published_state import PublishedState
from .query_collector import all_families
from .readiness import readiness
from .shutdown_notice import Notice, ShutdownNotice
from .status import status
from .status_page.assembly import policy, status_page

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
