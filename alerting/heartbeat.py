"""Dead man's switches, of the driver and of each query: if our pings stop, they alert."""

from __future__ import annotations

import math
import os
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING
from urllib.parse import urlencode, urlsplit, urlunsplit

import msgspec

from ..core.guard import Guard, Problem
from ..core.secret import Secret
from ..core.states import FAILED, OUTCOMES, DeliveryOutcome
from ..core.text import shorten
from ..core.threads import Deadline, Loop
from ..listener.state.query import Query
from .alert import Incident
from .alert_text import headline_of
from .receivers.http import HttpError, HttpPoster
from .receivers.receiver import HttpOptions
from .recovery import NOT_WORKING

if TYPE_CHECKING:
    from .lifecycle import Evaluated


# -- heartbeat ping ---------------------------------------------------------------------------
# When to ping a dead man's switch, and what to say.
#
# https://healthchecks.io/docs/http_api/ describes the paths; a check takes 5 pings a minute.


LEAST_SECONDS = 12.5
"""Between two pings: a little less than 5 a minute."""
MAX_TEXT_CHARACTERS = 2000


class Ping(msgspec.Struct, frozen=True):
    """One ping: ``path`` after the check's URL, and the text that its log shows."""

    path: str
    text: str


START = Ping("/start", "watching")
STOPPED = Ping("/log", "stopped")
TEST = Ping("/log", "querypulse test-alert: nothing is wrong")


def ping_of(incidents: Sequence[Incident]) -> Ping:
    """``/fail`` while a critical incident fires that is not muted, else the plain ping."""
    firing = [incident for incident in incidents if not incident.is_over]
    loud = [incident for incident in firing if incident.is_critical and not incident.muted]
    if loud:
        text = "\n".join(headline_of(incident) for incident in loud)
        return Ping("/fail", shorten(text, MAX_TEXT_CHARACTERS))
    return Ping("", f"healthy; {len(firing)} not critical or silenced" if firing else "healthy")


def due_at(ping: Ping, last: Ping | None, last_at: float, interval_seconds: float) -> float:
    """When ``ping`` may leave; ``last`` is the last that arrived, ``last_at`` when one last left.

    A change between healthy and failing does not wait for the interval.
    """
    changed = last is None or last == START or (ping.path == "/fail") != (last.path == "/fail")
    return last_at + (min(LEAST_SECONDS, interval_seconds) if changed else interval_seconds)


def ping_url(url: str, path: str, run: str) -> str:
    """The check's URL with the signal's path; ``run`` identifies the pings of one process."""
    parts = urlsplit(url)
    query = "&".join(filter(None, [parts.query, urlencode({"rid": run})]))
    return urlunsplit(parts._replace(path=parts.path.rstrip("/") + path, query=query))


# -- heartbeat --------------------------------------------------------------------------------
# Pings a dead man's switch while the worker evaluates: if the pings stop, the switch alerts.


NAME = "heartbeat"
RETRY_SECONDS = 15.0
PLAIN_TEXT = {"Content-Type": "text/plain; charset=utf-8"}


class Heartbeat:
    """Healthchecks-style pings from their own thread, each triggered by a ``beat``.

    A worker that hangs sends no beat, so no ping leaves, even if this thread runs.
    ``outcomes`` counts pings by their outcome. ``first`` and ``parting`` are extra pings at the
    beginning and at the end; without ``first``, no ping leaves before one is offered.
    """

    def __init__(
        self,
        url: Secret,
        guard: Guard,
        *,
        name: str = NAME,
        first: Ping | None = START,
        parting: Ping | None = STOPPED,
        interval_seconds: float = 60.0,
        http: HttpOptions | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """Check the settings.

        Raises:
            ValueError: ``url`` cannot be used; the message names the setting.

        """
        self.name = name
        self.outcomes: Counter[str] = Counter(dict.fromkeys(OUTCOMES, 0))
        self._poster = HttpPoster(url, setting="heartbeat_url", http=http)
        self._interval = interval_seconds
        self._clock = clock
        self._wall = wall
        self._guard = guard
        self._loop = Loop(NAME, self._step, guard, last=self._send_last)
        self._run = str(uuid.uuid4())
        self._pid = os.getpid()
        self._problem = Problem("querypulse: %s was not taken: %s", name)
        # Shared with the worker; the condition guards them, and is not held during a ping.
        self._changed = threading.Condition()
        self._next = first
        self._parting = parting
        self._last: Ping | None = None
        self._last_at = clock() if first is not None else -math.inf
        self._not_before = -math.inf

    def start(self) -> None:
        """Start the thread; the first ping says that monitoring has started."""
        self._loop.start()

    def try_once(self) -> HttpError | None:
        """Ping in this thread, instead of ``start``; return why the ping was refused, if it was.

        The ping is one for the check's log: it changes no state.
        """
        try:
            return self._send(TEST)
        finally:
            self._poster.close()

    def beat(self, incidents: Sequence[Incident]) -> None:
        """The worker has finished an evaluation with these open incidents. Never waits for a ping.

        A ping that is not due yet is dropped, not kept: by then the worker may hang.
        """
        self.offer(ping_of(incidents))

    def offer(self, ping: Ping) -> None:
        """Send this ping if one is due. Never waits."""
        with self._changed:
            due = max(due_at(ping, self._last, self._last_at, self._interval), self._not_before)
            if self._next is None and self._clock() >= due:
                self._next = ping
                self._changed.notify_all()

    def stop(self, owed: Ping | None = None) -> None:
        """Ask the thread to end; without ``parting``, an ``owed`` ping leaves first, due or not.

        It does not leave if a ping in flight arrives. Never waits.
        """
        if os.getpid() != self._pid:
            return  # in a fork of the driver there is no thread, and nothing to say
        with self._changed:
            # Both at once: the thread may be between two steps, and then sends what it finds.
            self._next = owed or self._next
            self._loop.stop()
            self._changed.notify_all()

    def close(self, timeout: float) -> None:
        """Send that monitoring has stopped, and end after at most ``timeout`` seconds."""
        if os.getpid() != self._pid:
            return
        self.stop()
        self._loop.join(timeout)
        self._guard.attempt(f"close-{NAME}", self._poster.close)

    def _step(self) -> None:
        """Send the next ping once there is one."""
        with self._changed:
            self._changed.wait_for(lambda: self._next or self._loop.stopping.is_set())
            ping = self._next
            if ping is None or self._loop.stopping.is_set():
                return
            self._last_at = self._clock()
            self._next = None
        error = self._send(ping)
        with self._changed:
            self._book(ping, error)

    def _send_last(self) -> None:
        if self._parting is None and self._next is not None:
            self._book(self._next, self._send(self._next))
        elif self._parting is not None and self.outcomes[DeliveryOutcome.DELIVERED.value]:
            self._send(self._parting)

    def _send(self, ping: Ping) -> HttpError | None:
        """Ping; return why it was refused, None if it was accepted."""
        try:
            self._poster.post(
                ping.text.encode("utf-8", "replace"),
                self._wall(),
                lambda _: PLAIN_TEXT,
                address=lambda url: ping_url(url, ping.path, self._run),
            )
        except HttpError as error:
            return error
        except Exception:
            self.outcomes[FAILED] += 1
            raise
        return None

    def _book(self, ping: Ping, error: HttpError | None) -> None:
        """Record the outcome of a ping, and how long to pause after an error."""
        if error is None:
            self._last = ping
            self._problem.note("")
            if self._loop.stopping.is_set():
                self._next = None
            self.outcomes[DeliveryOutcome.DELIVERED.value] += 1
            return
        soon = error.answer is DeliveryOutcome.TRANSIENT
        # A removed switch may be created again, and then waits for the next ping.
        pause = self._interval
        if soon:
            pause = max(min(RETRY_SECONDS, self._interval), error.retry_after or 0.0)
        self._last, self._not_before = None, self._clock() + pause
        self.outcomes[error.answer.value] += 1
        self._problem.note(str(error))


# -- query heartbeats -------------------------------------------------------------------------
# A dead man's switch for each query, pinged when the query commits or completes.


Mark = tuple[int, int]
"""How many commits a query has made, and how many of its runs have completed."""


class _Owed(msgspec.Struct, frozen=True):
    """A ping that is due; ``delivered`` is the count of delivered pings when it became due."""

    ping: Ping
    delivered: int


class QueryHeartbeats:
    """One heartbeat for each name pattern that has a URL; a query's last matching pattern counts.

    It is pinged when one of its queries has committed or completed, unless one of them has
    failed, is missing or stalled. Used by the worker; separate threads send the pings.
    """

    def __init__(self, heartbeats: Mapping[str, Heartbeat]) -> None:
        self._heartbeats = heartbeats
        self._marks: dict[str, Mark] = {}
        self._owed: dict[str, _Owed] = {}

    @property
    def outcomes(self) -> dict[str, Mapping[str, int]]:
        """Counts of pings by outcome, by the name of the heartbeat."""
        return {one.name: one.outcomes for one in self._heartbeats.values()}

    def start(self) -> None:
        """Start the threads; no ping is sent yet."""
        for one in self._heartbeats.values():
            one.start()

    def update(self, evaluated: Evaluated) -> None:
        """Ping for progress since the last call; never waits."""
        if not self._heartbeats:
            return
        health = evaluated.evaluation.health
        own = {
            label: query
            for label, query in evaluated.snapshot.labels().items()
            if label in health and not health[label].reported_elsewhere
        }
        unhealthy = {
            self._pattern(query)
            for label, query in own.items()
            if health[label].state in NOT_WORKING
        }
        for label, query in own.items():
            pattern = self._pattern(query)
            if pattern and self._has_done_more(label, query):
                self._owe(pattern, label, query)
        self._marks = {label: mark for label, mark in self._marks.items() if label in own}
        for pattern in list(self._owed):
            self._pay(pattern, may_ping=pattern not in unhealthy)

    def close(self, deadline: Deadline) -> None:
        """Stop, after one more attempt at each ping that is due."""
        for pattern, one in self._heartbeats.items():
            one.stop(self._owed[pattern].ping if self._is_owed(pattern) else None)
        for one in self._heartbeats.values():
            one.close(deadline.left)

    def _pattern(self, query: Query) -> str:
        found = [one for one in self._heartbeats if fnmatchcase(query.base_name, one)]
        return found[-1] if found else ""

    def _has_done_more(self, label: str, query: Query) -> bool:
        mark = (query.totals.commits, query.totals.completed)
        before = self._marks.get(label, (0, 0))
        self._marks[label] = mark
        return mark[0] > before[0] or mark[1] > before[1]

    def _owe(self, pattern: str, label: str, query: Query) -> None:
        done = "completed" if not query.alive else f"batch {query.last_commit_batch} committed"
        delivered = self._heartbeats[pattern].outcomes[DeliveryOutcome.DELIVERED.value]
        self._owed[pattern] = _Owed(Ping("", f"{label}: {done}"), delivered)

    def _pay(self, pattern: str, *, may_ping: bool) -> None:
        if not may_ping or not self._is_owed(pattern):
            del self._owed[pattern]
        else:
            self._heartbeats[pattern].offer(self._owed[pattern].ping)

    def _is_owed(self, pattern: str) -> bool:
        owed, outcomes = self._owed.get(pattern), self._heartbeats[pattern].outcomes
        return owed is not None and outcomes[DeliveryOutcome.DELIVERED.value] <= owed.delivered
