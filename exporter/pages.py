"""The answer to each HTTP path, and the notice of a shutdown."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

from ..core.redaction import redact
from ..recording.lines import RecordingError, first_part
from ..recording.page import hash_of, page_of, policy, style
from ..recording.timeline import Summary, Timeline
from . import exposition
from .metrics import all_families
from .published_state import PublishedState
from .status import status, why_unready

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
    ENDED = "ended"
    """Its main program has ended while queries ran, which nobody had announced."""
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

    async def wait(self) -> None:
        """Wait up to ``WAIT_SECONDS`` for the notice."""
        if self.said:
            self._came_late.set()
            return
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

    async def say(self, notice: Notice) -> None:
        """Give the notice to those who wait.

        A watcher whose request just ended is about to ask again: it is waited for, at most
        ``RETURN_SECONDS``.
        """
        returns_in = self._left_at + RETURN_SECONDS - asyncio.get_running_loop().time()
        self.said = notice
        while self._waiting:
            self._waiting.popleft().set_result(None)
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._came_late.wait(), max(0.0, returns_in))


# -- pages ------------------------------------------------------------------------------------


TEXT = "text/plain; charset=utf-8"
HTML = "text/html; charset=utf-8"
HTML_SUFFIX = ".html"
SILENCES = "/silences"
"""Accepts a POST, only with the token, because a silence suppresses pages; a GET lists them."""
EXPECT_STOP = "/expect_stop"
"""Accepts a POST, only with the token, for the same reason."""
POSTS = (SILENCES, EXPECT_STOP)
RUNBOOKS = "/runbooks/"
LIVEZ = "/livez"
ALIVE_SECONDS = 5.0
"""How old the last evaluation of a worker may be that is not stuck."""
INCIDENTS = "/incidents"
"""The incidents of the last thirty days; below it, each by its id."""
KEPT_SECONDS = 30 * 86_400.0
WATCH = ("/watch", "/watch/page")
"""Long polls by which external watchers and the status page receive the shutdown notice."""
_OPENMETRICS = "application/openmetrics-text"


def is_public(path: str) -> bool:
    """Whether a path needs no token because it holds no data: the status page and the runbooks."""
    return path == "/" or path.startswith(RUNBOOKS)


def is_of_store(path: str) -> bool:
    """Whether a path shows what is in the store of incidents, which may hang."""
    return path == INCIDENTS or path.startswith(f"{INCIDENTS}/")


class Reply(msgspec.Struct, frozen=True):
    """One answer; ``code`` is the HTTP status."""

    code: int
    body: bytes
    content_type: str = TEXT
    headers: tuple[tuple[str, str], ...] = ()


class Content(msgspec.Struct, frozen=True):
    """What the pages show; the server's threads call all of it.

    ``published`` returns the newest published state, ``alive`` whether the worker's loop runs,
    without waiting; ``runbook`` an alert's runbook. ``silence`` and ``expect_stop`` handle the
    bodies that are posted to their pages, and ``silences`` are those in force. ``incidents`` are
    the newest ones, None where nothing is recorded; ``timeline`` returns one by its id, also an
    older one, and is None where there is none: an id may be any text, and is looked up, never used
    as a path. Both may take long, or hang.
    """

    published: Callable[[], PublishedState | None]
    alive: Callable[[], bool]
    runbook: Callable[[str], str | None] = lambda _: None
    silence: Callable[[bytes], tuple[int, dict[str, object]]] = lambda _: (404, {})
    expect_stop: Callable[[bytes], tuple[int, dict[str, object]]] = lambda _: (404, {})
    silences: Callable[[], list[dict[str, str]]] = list
    incidents: Callable[[], Sequence[Summary] | None] = lambda: None
    timeline: Callable[[str], Timeline | None] = lambda _: None
    own: Mapping[str, Callable[[], Reply]] = {}
    """Further pages by path, or in place of those that a driver has."""


def page(content: Content, path: str, accept: str, notice: Notice | None) -> Reply:
    """Answer a GET of ``path`` with this Accept header; ``notice`` is why the server shuts down."""
    pages: dict[str, Callable[[], Reply]] = {
        "/": status_page,
        "/metrics": lambda: _metrics(content.published(), accept),
        "/status": lambda: _status(content.published()),
        LIVEZ: lambda: _livez(content, notice),
        "/readyz": lambda: _readyz(content.published()),
        SILENCES: lambda: as_json(200, content.silences()),
        INCIDENTS: lambda: _of_store(lambda: _incidents(content, time.time())),
        **dict.fromkeys(WATCH, lambda: _watch(content.published(), notice)),
        **content.own,
    }
    if path.startswith(RUNBOOKS):
        # Markdown is readable as plain text.
        text = content.runbook(path.removeprefix(RUNBOOKS))
        return Reply(404, b"no such runbook\n") if text is None else Reply(200, text.encode())
    if path not in pages and is_of_store(path):
        return _of_store(lambda: _incident(content, path, accept))
    if path not in pages:
        return Reply(404, f"not found; there is {', '.join(pages)}\n".encode())
    return pages[path]()


def posted(content: Content, path: str, body: bytes) -> Reply:
    """Answer a POST to a page of ``POSTS`` from a client with the token."""
    handle = content.silence if path == SILENCES else content.expect_stop
    return as_json(*handle(body))


def _metrics(published: PublishedState | None, accept: str) -> Reply:
    # Requested versions and escapings are ignored: every scraper reads 1.0.0.
    families = all_families(published)
    if _OPENMETRICS in accept:
        return Reply(200, exposition.as_openmetrics(families), exposition.OPENMETRICS)
    return Reply(200, exposition.as_text(families), exposition.TEXT)


def _status(published: PublishedState | None) -> Reply:
    if published is None:
        return as_json(503, {"error": "nothing has been evaluated yet"})
    return as_json(200, status(published))


def _livez(content: Content, notice: Notice | None) -> Reply:
    if notice is not None:
        return Reply(503, b"shutting down\n")
    return Reply(200, b"alive\n") if content.alive() else Reply(503, b"the worker is stuck\n")


def _readyz(published: PublishedState | None) -> Reply:
    reasons = why_unready(published)
    return as_json(503 if reasons else 200, {"ready": not reasons, "reasons": reasons})


def _watch(published: PublishedState | None, notice: Notice | None) -> Reply:
    """With the notice of a failure, the open alerts: nobody can read them any more."""
    if notice is not Notice.FAILED or published is None:
        return as_json(200, {"status": "running" if notice is None else notice.value})
    return as_json(200, {"status": notice.value, "alerts": status(published).alerts})


# -- incidents --------------------------------------------------------------------------------


NOT_RECORDED = {"error": "incidents are not recorded"}


def _of_store(make: Callable[[], Reply]) -> Reply:
    try:
        return make()
    except (OSError, RecordingError) as error:
        return as_json(503, {"error": f"the incidents cannot be read: {redact(str(error))}"})


def _incidents(content: Content, now: float) -> Reply:
    """The incidents that were open in the last thirty days, the newest first."""
    summaries = content.incidents()
    if summaries is None:
        return as_json(404, NOT_RECORDED)
    recent = (
        summary
        for summary in summaries
        if summary.until is None or summary.until >= now - KEPT_SECONDS
    )
    return as_json(200, sorted(recent, key=lambda summary: summary.since, reverse=True))


def _incident(content: Content, path: str, accept: str) -> Reply:
    """One incident, as a page or as JSON, by the id of any of its files."""
    wanted = path.removeprefix(f"{INCIDENTS}/")
    is_page = wanted.endswith(HTML_SUFFIX) or "text/html" in accept
    timeline = content.timeline(first_part(wanted.removesuffix(HTML_SUFFIX)))
    if timeline is None:
        return as_json(404, {"error": "no such incident"})
    if not is_page:
        return as_json(200, timeline)
    document = page_of([timeline], timeline.summary.headline)
    return html(document, (*policy(style()), "frame-ancestors 'none'"))


def as_json(code: int, value: Any) -> Reply:
    """An answer in JSON."""
    return Reply(code, msgspec.json.encode(value), "application/json")


# -- status page ------------------------------------------------------------------------------
# One document without external assets and without data; its script polls ``/status``. The policy
# allows only this script and this style, by their hashes (Content Security Policy 3, "script-src"),
# and the style of an incident's page: one that the script opens inherits the policy.


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
    "incidents.js",
    "page.js",
)
"""In the order in which they are joined: each file uses only names of earlier files."""


@cache
def status_page() -> Reply:
    """The document, with its policy."""
    folder = files(__package__) / "status_page"
    own, document, *scripts = (
        (folder / name).read_text("utf-8") for name in ("page.css", "page.html", *SCRIPTS)
    )
    return with_script(document, own, "\n".join(scripts), hash_of(style()))


def with_script(document: str, style: str, script: str, *styles: str) -> Reply:
    """A document with one style and one script, which reads from its own server.

    ``styles`` are the hashes of others that its script may show.
    """
    rules = (
        "default-src 'none'",
        f"script-src {hash_of(script)}",
        f"style-src {' '.join((hash_of(style), *styles))}",
        "img-src data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
    document = document.replace("/* page.css */", style).replace("/* page.js */", script)
    return html(document, rules)


def html(document: str, rules: Sequence[str]) -> Reply:
    """An HTML document with its Content Security Policy."""
    headers = ("Content-Security-Policy", "; ".join(rules)), ("Referrer-Policy", "no-referrer")
    return Reply(200, document.encode(), HTML, headers)
