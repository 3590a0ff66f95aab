"""The immutable snapshot that rules, metrics and pages read, with owners and supervision."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from ..commit_log import LogReport
from ..foresight.resources import Resources, Usage, follow_heap, follow_host
from ..probe_report import Context, ProbeReport
from .query import Query

# -- ownership --------------------------------------------------------------------------------
# Which of the processes that monitor one JVM alerts for a query.
#
# The tasks of one job on a shared cluster are separate processes on one JVM. Each of them sees
# every query, but only one reports it: the process that has claimed its session, else the oldest.


V = TypeVar("V")

LEFT = "left:"
OURS = "ours:"
MAX_SESSIONS = 1000
"""How many sessions of closed and of other processes are remembered."""


class Ownership(msgspec.Struct, frozen=True):
    """The sessions that this process and the others that monitor the same JVM have claimed.

    ``elders`` are the sessions of older processes, ``others`` those of all other processes.
    ``is_eldest`` is true when no other process is older. ``left`` maps a session to the time when
    the sidecar that had claimed it closed; that one reported every end up to then. ``foreign``
    are the sessions that another process has ever claimed, also one that was killed.
    """

    own: frozenset[str] = frozenset()
    others: frozenset[str] = frozenset()
    elders: frozenset[str] = frozenset()
    is_eldest: bool = True
    has_others: bool = False
    left: Mapping[str, float] = {}
    foreign: Mapping[str, None] = {}

    @property
    def is_alone(self) -> bool:
        """Whether no other process is known to monitor this JVM."""
        return self.is_eldest and not self.has_others and not self.others

    def is_own(self, session: str) -> bool:
        """Whether this process owns a session's queries; alone, all that are not foreign."""
        return session in self.own or (self.is_alone and session not in self.foreign)

    def was_reported(self, session: str, ended_at: float | None) -> bool:
        """Whether a sidecar that has closed reported a query that ended at that time."""
        left_at = None if session in self.own else self.left.get(session)
        return left_at is not None and ended_at is not None and ended_at <= left_at

    def covers(self, session: str) -> bool:
        """Whether this process alerts for a session's queries; "" is an unknown session."""
        if session in self.own:
            return session not in self.elders
        return self.is_eldest and session not in self.others

    def updated(self, claims: Ownership) -> Ownership:
        """The newest ``claims``, with what the JVM forgets: who closed, and what others claimed."""
        left = _newest({**self.left, **claims.left})
        return replace(claims, left=left, foreign=_newest({**self.foreign, **claims.foreign}))


ALONE = Ownership()


def parse_watchers(text: str, clock: Callable[[int], float] = float) -> Ownership:
    """Read the text of ``Watchers.beat``: ``SINCE:SESSION,SESSION``, ours first, space-separated.

    A process that has closed is ``left:WHEN:SESSION,SESSION``, an earlier sidecar of this process
    ``ours:WHEN:SESSION,SESSION``; ``clock`` converts WHEN to monotonic seconds.

    Raises:
        ValueError: the text has another form.

    """
    if not text:
        return ALONE
    first, *rest = text.split(" ")
    closed = [part for part in rest if part.startswith((LEFT, OURS))]
    since, own = _parsed(first)
    others = [_parsed(part) for part in rest if part not in closed]
    left: dict[str, float] = {}
    for part in closed:
        when, sessions = _parsed(part.partition(":")[2])
        left |= {session: max(clock(when), left.get(session, -inf)) for session in sessions}
    foreign = [sessions for _, sessions in others]
    foreign += [_parsed(part.removeprefix(LEFT))[1] for part in closed if part.startswith(LEFT)]
    elders = [sessions for when, sessions in others if when < since]
    return Ownership(
        own=own,
        others=frozenset().union(*(sessions for _, sessions in others)),
        elders=frozenset().union(*elders),
        is_eldest=not elders,
        has_others=bool(others),
        left=left,
        foreign=dict.fromkeys(sorted(frozenset().union(*foreign))),
    )


def _parsed(text: str) -> tuple[int, frozenset[str]]:
    since, _, sessions = text.partition(":")
    return int(since), frozenset(filter(None, sessions.split(",")))


def _newest(sessions: dict[str, V]) -> dict[str, V]:
    surplus = len(sessions) - MAX_SESSIONS
    return dict(list(sessions.items())[max(0, surplus) :])


# -- supervised -------------------------------------------------------------------------------
# What is known about a query that the application lets querypulse restart.


class SupervisedQuery(msgspec.Struct, frozen=True, gc=False):
    """One supervised query; times are monotonic seconds, texts are redacted."""

    restarts: int = 0
    """How often it was started again."""
    due_at: float | None = None
    """When its next start is due; None while it runs, and once no start is due any more.

    While starts before it in the queue advance, that is when the last of them began or ended.
    """
    failure: str = ""
    """Why it is to be started again; empty before the first failure."""
    given_up: str = ""
    """Why it is not restarted any more; empty while it is."""
    started_at: float | None = None
    """When its start function last returned; None before that."""

    def waits_since(self, gone_at: float | None) -> float | None:
        """Since when it should run again, which may be later than now; None while it runs.

        ``gone_at`` is when its last run ended, None while that is active or unknown.
        """
        times = [at for at in (gone_at, self.due_at) if at is not None]
        return max(times, default=None)


# -- attempts of a driver ---------------------------------------------------------------------


class DriverAttempt(msgspec.Struct, frozen=True):
    """One start of a driver by YARN, which starts it again where an attempt fails."""

    application: str
    number: int
    place: str = ""
    """Its host."""

    def replaces(self, other: DriverAttempt | None) -> bool:
        """Whether YARN has started it because the other one had failed."""
        return (
            other is not None
            and other.application == self.application
            and other.number < self.number
        )


# -- snapshot ---------------------------------------------------------------------------------
# The immutable snapshot that rules, metrics and pages read.


class Pause(msgspec.Struct, frozen=True):
    """A pause of this process: ``seconds`` long, until ``at``."""

    at: float
    seconds: float


class Snapshot(msgspec.Struct, frozen=True):
    """All queries of one driver at one moment. Times are monotonic seconds."""

    at: float
    began_at: float
    queries: tuple[Query, ...] = ()
    probe: ProbeReport | None = None
    log: LogReport | None = None
    context_stopped_at: float | None = None
    """When the probe first saw the SparkContext stopped, for any reason."""
    context_ran_at: float | None = None
    """When the last poll that saw it running began; None without such a poll."""
    events_dropped_at: float | None = None
    """When the probe last saw that Spark's listener queue had dropped more events."""
    end_expected_until: float | None = None
    """Until when somebody has announced the end of the whole driver; None if nobody has."""
    pauses: tuple[Pause, ...] = ()
    ownership: Ownership = ALONE
    """Which queries this process alerts for."""
    expected: frozenset[str] = frozenset()
    """The names of queries that must run."""
    supervised: Mapping[str, SupervisedQuery] = {}
    """By label: the queries that ``supervise`` restarts, and those that it has given up."""
    wall: float | None = None
    """The Unix time of ``at``; None where no rule may depend on it."""
    completed_before: Mapping[str, float] = {}
    """When runs of queries that this process has not seen completed, by ``mark_of`` of the name."""

    lost_attempt: DriverAttempt | None = None
    """The attempt before this one, if it ended without a report and no query works since."""
    resources: Resources = Resources()
    usage: Usage = Usage()
    """Of memory and disks, until now."""

    @property
    def context(self) -> Context:
        """The SparkContext's last known state; running without a probe report."""
        return self.probe.context if self.probe is not None else Context.RUNNING

    @property
    def end_expected(self) -> bool:
        """Whether the end of the whole driver was announced for now, or for when Spark ended."""
        ended_at = self.at if self.context_stopped_at is None else self.context_stopped_at
        return self.end_expected_until is not None and ended_at < self.end_expected_until

    def is_running(self, query: Query) -> bool:
        """Whether the current run of the query and its SparkContext are active."""
        return query.run.alive and self.context is Context.RUNNING

    @property
    def received_at(self) -> float | None:
        """When the probe, or an event of an active query, last reported anything.

        None without a probe.
        """
        if self.probe is None:
            return None
        events = (one.run.last_event_at for one in self.queries if one.run.alive)
        return max([self.probe.at, *(at for at in events if at is not None)])

    def watched(self, since: float, now: float) -> float:
        """Seconds between ``since`` and ``now`` in which this process was not paused.

        A driver that was frozen for ten minutes has not been inactive for ten minutes.
        """
        awake = now - since
        for pause in self.pauses:
            if pause.at > since:
                awake -= min(pause.seconds, pause.at - since)
        return max(0.0, awake)

    def labels(self) -> dict[str, Query]:
        """Queries by the label they are shown under."""
        return {query.label: query for query in self.queries}


def add_poll(driver: Snapshot, report: ProbeReport) -> Snapshot:
    """Add a poll, and keep what later polls do not show any more."""
    before = driver.probe.listener.dropped_events if driver.probe is not None else None
    dropped = report.listener.dropped_events
    if before is not None and dropped is not None and dropped > before:
        driver = replace(driver, events_dropped_at=report.at)
    if report.context is Context.RUNNING:
        # A Spark Connect server can be reached again after it seemed to have ended.
        driver = replace(driver, context_ran_at=report.began_at, context_stopped_at=None)
    elif driver.context_stopped_at is None:
        driver = replace(driver, context_stopped_at=report.at)
    return _with_heap(replace(driver, probe=report))


def _with_heap(driver: Snapshot) -> Snapshot:
    """The driver with the heap of its newest poll; that of a JVM that has ended stays known."""
    heap = None if driver.probe is None else driver.probe.heap
    before = driver.resources.heap
    if heap is None or heap == before:
        return driver
    usage = follow_heap(driver.usage, heap, before)
    return replace(driver, resources=replace(driver.resources, heap=heap), usage=usage)


def add_reading(driver: Snapshot, reading: Resources) -> Snapshot:
    """Add a reading of the container and the disks; that of a JVM that has ended stays known."""
    has_ended = driver.context is Context.JVM_GONE
    usage = follow_host(driver.usage, replace(reading, container=None) if has_ended else reading)
    container = driver.resources.container if has_ended else reading.container
    resources = replace(reading, heap=driver.resources.heap, container=container)
    return replace(driver, resources=resources, usage=usage)
