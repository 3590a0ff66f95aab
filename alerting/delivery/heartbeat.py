"""Dead man's switches, of the driver and of each query: if our pings stop, they alert."""

from __future__ import annotations

import math
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING
from urllib.parse import urlencode, urlsplit, urlunsplit

import msgspec

from ...core.guard import Guard, Problem
from ...core.secret import Secret
from ...core.states import OUTCOMES, DeliveryOutcome
from ...core.text import shorten
from ...core.threads import Deadline, Loop
from ..alert import Incident
from ..finding import NOT_WORKING
from ..receivers.http import HttpPoster
from ..receivers.receiver import DeliveryError, HttpOptions
from ..words.headlines import headline_of

if TYPE_CHECKING:
    from ..incidents.lifecycle import Evaluated


# -- ping -------------------------------------------------------------------------------------
# https://healthchecks.io/docs/http_api/ describes the paths; a check takes 5 pings a minute.

INTERVAL_SECONDS = 60.0
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


def due_at(ping: Ping, last: Ping | None, last_at: float) -> float:
    """When ``ping`` may leave; ``last`` is the last that arrived, ``last_at`` when one last left.

    A change between healthy and failing does not wait for the interval.
    """
    changed = last is None or last == START or (ping.path == "/fail") != (last.path == "/fail")
    return last_at + (LEAST_SECONDS if changed else INTERVAL_SECONDS)


def ping_url(url: str, path: str, run: str) -> str:
    """The check's URL with the signal's path; ``run`` identifies the pings of one process."""
    parts = urlsplit(url)
    query = "&".join(filter(None, [parts.query, urlencode({"rid": run})]))
    return urlunsplit(parts._replace(path=parts.path.rstrip("/") + path, query=query))


# -- heartbeat --------------------------------------------------------------------------------

NAME = "heartbeat"
RETRY_SECONDS = 15.0
PLAIN_TEXT = {"Content-Type": "text/plain; charset=utf-8"}


class Heartbeat:
    """Healthchecks-style pings from their own thread.

    A worker that hangs offers no ping, so none leaves, even if this thread runs. ``outcomes``
    counts pings by their outcome. ``announces``: it also pings when it starts and when it ends.
    """

    def __init__(
        self,
        url: Secret,
        guard: Guard,
        *,
        name: str = NAME,
        announces: bool = True,
        http: HttpOptions | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Check the URL; see ``HttpPoster``."""
        self.name = name
        self.outcomes: Counter[str] = Counter(dict.fromkeys(OUTCOMES, 0))
        self.last: Ping | None = None
        """The last ping, if it has arrived."""
        setting = "heartbeat_url_file" if url.is_from_file else "heartbeat_url"
        self._poster = HttpPoster(url, setting=setting, http=http)
        self._announces = announces
        self._clock = clock
        self._guard = guard
        self._loop = Loop(NAME, self._step, guard, last=self._send_last)
        self._run = str(uuid.uuid4())
        self._problem = Problem("querypulse: %s was not taken: %s", name)
        # Shared with the worker; the condition guards them, and is not held during a ping.
        self._changed = threading.Condition()
        self._next = START if announces else None
        self._last_at = clock() if announces else -math.inf
        self._not_before = -math.inf

    def start(self) -> None:
        """Start the thread."""
        self._loop.start()

    def try_once(self) -> DeliveryError | None:
        """Ping in this thread, instead of ``start``; return why the ping was refused, if it was.

        The ping is one for the check's log: it changes no state.
        """
        try:
            return self._send(TEST)
        finally:
            self._poster.close()

    def offer(self, ping: Ping) -> None:
        """Send this ping if one is due, else drop it: by then the worker may hang. Never waits."""
        with self._changed:
            due = max(due_at(ping, self.last, self._last_at), self._not_before)
            if self._next is None and self._clock() >= due:
                self._next = ping
                self._changed.notify_all()

    def stop(self, owed: Ping | None = None) -> None:
        """Ask the thread to end, after an ``owed`` ping, due or not. Never waits.

        It does not leave if a ping in flight arrives.
        """
        with self._changed:
            # Both at once: the thread may be between two steps, and then sends what it finds.
            self._next = owed or self._next
            self._loop.stop()
            self._changed.notify_all()

    def close(self, timeout: float) -> None:
        """Send that monitoring has stopped, and end after at most ``timeout`` seconds."""
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
        self._ping(ping)

    def _send_last(self) -> None:
        if not self._announces and self._next is not None:
            self._ping(self._next)
        elif self._announces and self.outcomes[DeliveryOutcome.DELIVERED.value]:
            self._ping(STOPPED)

    def _send(self, ping: Ping) -> DeliveryError | None:
        """Why the ping was not taken; None if it was."""
        try:
            self._poster.post(
                ping.text.encode("utf-8", "replace"),
                PLAIN_TEXT,
                address=lambda url: ping_url(url, ping.path, self._run),
            )
        except DeliveryError as error:
            return error
        return None

    def _ping(self, ping: Ping) -> None:
        """Ping, and record the outcome, and how long to pause after an error."""
        error, pause = self._send(ping), INTERVAL_SECONDS
        outcome = DeliveryOutcome.DELIVERED if error is None else error.answer
        if error is None:
            pause = 0.0
        elif error.answer is DeliveryOutcome.TRANSIENT:
            pause = max(RETRY_SECONDS, error.retry_after or 0.0)
        with self._changed:
            self.outcomes[outcome.value] += 1
            self.last = ping if error is None else None
            self._not_before = self._clock() + pause
            if error is None and self._loop.stopping.is_set():
                self._next = None
        self._problem.note("" if error is None else str(error))


# -- heartbeats of queries ----------------------------------------------------------------------


class QueryHeartbeats:
    """One heartbeat for each name pattern that has a URL; a query's last matching pattern counts.

    It is pinged when one of its queries has committed or completed, unless one of them has
    failed, is missing or stalled. Used by the worker; separate threads send the pings.
    """

    def __init__(self, heartbeats: dict[str, Heartbeat]) -> None:
        self._heartbeats = heartbeats
        self._done: dict[str, int] = {}
        """How many commits and completed runs each query has made."""
        self._owed: dict[str, Ping] = {}

    @property
    def outcomes(self) -> dict[str, Mapping[str, int]]:
        """Counts of pings by outcome, by the name of the heartbeat."""
        return {heartbeat.name: heartbeat.outcomes for heartbeat in self._heartbeats.values()}

    def start(self) -> None:
        """Start the threads; no ping is sent yet."""
        for heartbeat in self._heartbeats.values():
            heartbeat.start()

    def update(self, evaluated: Evaluated) -> None:
        """Ping for progress since the last call; never waits."""
        if not self._heartbeats:
            return
        health, before, unhealthy = evaluated.evaluation.health, self._done, set()
        self._done = {}
        for label, query in evaluated.snapshot.labels().items():
            if label not in health or health[label].reported_elsewhere:
                continue
            patterns = [name for name in self._heartbeats if fnmatchcase(query.base_name, name)]
            pattern = patterns[-1] if patterns else ""
            if health[label].state in NOT_WORKING:
                unhealthy.add(pattern)
            self._done[label] = query.history.totals.commits + query.history.totals.completed
            if pattern and self._done[label] > before.get(label, 0):
                batch = f"batch {query.checkpoint.last_commit_batch} committed"
                self._owed[pattern] = Ping(
                    "", f"{label}: {batch if query.run.alive else 'completed'}"
                )
        for pattern, ping in list(self._owed.items()):
            if pattern in unhealthy or self._heartbeats[pattern].last is ping:
                del self._owed[pattern]
            else:
                self._heartbeats[pattern].offer(ping)

    def close(self, deadline: Deadline) -> None:
        """Stop, after one more attempt at each ping that is due."""
        for pattern, heartbeat in self._heartbeats.items():
            owed = self._owed.get(pattern)
            heartbeat.stop(None if owed is heartbeat.last else owed)
        for heartbeat in self._heartbeats.values():
            heartbeat.close(deadline.left)
