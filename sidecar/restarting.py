"""When a supervised query is started again, and when it is given up.

All times are monotonic seconds. A restart comes after a pause that doubles with each failure. Two
counts end the restarts: the failures within a period, and those since the query last committed or
was idle; so a query that always fails ends, however long its pauses are.
"""

from __future__ import annotations

from enum import Enum

import msgspec
import tenacity
from msgspec.structs import replace

from ..alerting.policy import Limits
from ..alerting.restarts import poison_batch
from ..alerting.retries import nth_wait
from ..listener.query import Ended, Outcome, Query
from ..listener.snapshot import Ownership, Snapshot, SupervisedQuery

# -- restart terms ----------------------------------------------------------------------------
# How often and how fast a supervised query is started again.


FIRST_PAUSE_SECONDS = 1.0
JITTER = tenacity.wait_random(0.0, 1.0)
"""Queries that fail together are not started together."""


class RestartTerms(msgspec.Struct, frozen=True):
    """How often and how fast a query is started again.

    Raises:
        ValueError: a term is not allowed.

    """

    restarts: int = 10
    """How many restarts it may use up within ``within_seconds``, or without a commit."""
    within_seconds: float = 3600.0
    max_pause_seconds: float = 300.0
    same_batch_failures: int = 5
    """So many failures of one batch with one error class end the restarts; at most 16."""

    def __post_init__(self) -> None:
        allowed = {
            "restarts": (self.restarts, 0, 1000),
            "within_seconds": (self.within_seconds, 1, float("inf")),
            "max_pause_seconds": (self.max_pause_seconds, FIRST_PAUSE_SECONDS, 86400),
            "same_batch_failures": (self.same_batch_failures, 2, 16),
        }
        for name, (value, least, most) in allowed.items():
            if not isinstance(value, (int, float)) or not least <= value <= most:
                raise ValueError(f"supervise: {name} must be {least:g} to {most:g}, given {value}")

    def pause(self, failures: int) -> float:
        """Seconds until the next start, after so many failures: 1, 2, 4, 8 ... and jitter."""
        longest = self.max_pause_seconds
        wait = tenacity.wait_exponential(multiplier=FIRST_PAUSE_SECONDS, max=longest)
        return nth_wait(wait + JITTER, failures)


# -- restarting -------------------------------------------------------------------------------


class Indexed(msgspec.Struct, frozen=True):
    """A snapshot whose queries are found by run id and by label."""

    by_run: dict[str, Query]
    by_label: dict[str, Query]
    ownership: Ownership
    polled_at: float | None
    """When the last poll of the probe began."""

    @classmethod
    def of(cls, snapshot: Snapshot) -> Indexed:
        """Index a snapshot once, for all supervised queries."""
        by_run = {query.run_id: query for query in snapshot.queries}
        polled_at = snapshot.probe.began_at if snapshot.probe is not None else None
        return cls(by_run, snapshot.labels(), snapshot.ownership, polled_at)

    def own(self, label: str) -> Query | None:
        """The query of this label; None if another process on this JVM has started it."""
        query = self.by_label.get(label)
        return query if query is not None and self.ownership.is_own(query.session) else None


class SupervisionEnd(str, Enum):
    """Why a query is not supervised any more."""

    COMPLETED = "completed"
    STOPPED = "stopped"
    GIVEN_UP = "given up"
    FORGOTTEN = "forgotten"


class Supervision(msgspec.Struct, frozen=True):
    """One supervised query, from its first start to the end of its supervision."""

    name: str
    label: str
    due_at: float | None
    """Since when, or from when on, a start is due; None while a run is active."""
    next_try_at: float | None = None
    """When Spark is asked again, after it said that the run is active; None before that."""
    run_id: str = ""
    """The run that was started last."""
    started_at: float | None = None
    """When its start function last returned."""
    seen: bool = False
    """Whether a snapshot has shown that run."""
    restarts: int = 0
    failed_at: tuple[float, ...] = ()
    """When it failed, within the period of the terms."""
    in_a_row: int = 0
    """The failures since it last committed or was idle."""
    failure: str = ""
    end: SupervisionEnd | None = None

    @property
    def start_at(self) -> float | None:
        """When its next start is tried; None while a run is active."""
        return None if self.due_at is None else max(self.due_at, self.next_try_at or 0.0)

    @property
    def published(self) -> SupervisedQuery:
        """What rules and readers see."""
        given_up = self.failure if self.end is SupervisionEnd.GIVEN_UP else ""
        return SupervisedQuery(
            self.restarts, self.due_at, self.failure, given_up, started_at=self.started_at
        )


def begin(name: str, label: str, now: float) -> Supervision:
    """A query whose first start is due."""
    return Supervision(name, label, due_at=now)


def queued(one: Supervision, advanced_at: float) -> Supervision:
    """It waits for the starts of other queries, the last of which began or ended then.

    It is not overdue while that queue advances. What waits for Spark is not in the queue.
    """
    if one.due_at is None or one.next_try_at is not None:
        return one
    return replace(one, due_at=max(one.due_at, advanced_at))


def started(one: Supervision, run_id: str, now: float) -> Supervision:
    """Its start function has returned a query with this run."""
    one = replace(_counted(one), run_id=run_id, started_at=now, seen=False)
    return replace(one, due_at=None, next_try_at=None)


def start_failed(one: Supervision, why: str, now: float, terms: RestartTerms) -> Supervision:
    """Its start function has raised, which counts as a failure."""
    return _failed(_counted(one), f"its start failed: {why}", now, terms)


def given_up(one: Supervision, why: str) -> Supervision:
    """It is not started again."""
    return replace(one, due_at=None, failure=why, end=SupervisionEnd.GIVEN_UP)


def observed(one: Supervision, seen: Indexed, now: float, terms: RestartTerms) -> Supervision:
    """What the newest snapshot says about its run.

    A run of its name that somebody else has started is supervised like one that was started here,
    but not one that another process on the same JVM has started.
    """
    query = _present(one, seen)
    if one.end is not None or query is None:
        return one
    one = replace(one, run_id=query.run_id, label=query.label, seen=True)
    if query.alive:
        in_a_row = 0 if query.activity_seen else one.in_a_row
        return replace(one, due_at=None, next_try_at=None, in_a_row=in_a_row)
    end = _end_on_purpose(query)
    if end is not None:
        return replace(one, due_at=None, end=end)
    return one if one.due_at is not None else _run_failed(one, query, now, terms)


def still_active(one: Supervision, now: float) -> Supervision:
    """Spark says that its run is active after all: wait for the next snapshot."""
    return replace(one, next_try_at=now + FIRST_PAUSE_SECONDS)


def may_start(one: Supervision, seen: Indexed, now: float) -> bool:
    """Whether its start is due, and the probe has seen Spark running since its last failure.

    A query that ended with its SparkContext must not be started again.
    """
    if one.end is not None or one.start_at is None or now < one.start_at:
        return False
    return not one.failed_at or (seen.polled_at is not None and seen.polled_at > one.failed_at[-1])


def runs_again(one: Supervision, seen: Indexed) -> bool:
    """Whether somebody has started it after it was given up, and that run works or has worked."""
    query = seen.own(one.label)
    if one.end is not SupervisionEnd.GIVEN_UP or query is None or query.run_id == one.run_id:
        return False
    is_later = one.started_at is not None and query.started_at > one.started_at
    return query.activity_seen and (query.alive or is_later)


def run_lost(one: Supervision, now: float, terms: RestartTerms) -> Supervision:
    """Its run has ended, although no signal has ever shown it."""
    return _failed(one, "it ended, and no signal has shown its run", now, terms)


def forgotten(one: Supervision) -> Supervision:
    """The application says that it will not come back."""
    return replace(one, due_at=None, end=SupervisionEnd.FORGOTTEN)


def _counted(one: Supervision) -> Supervision:
    return replace(one, restarts=one.restarts + (1 if one.failure else 0))


def _end_on_purpose(query: Query) -> SupervisionEnd | None:
    if query.stop_expected:
        return SupervisionEnd.STOPPED
    completed = query.ended is not None and query.ended.outcome is Outcome.COMPLETED
    return SupervisionEnd.COMPLETED if completed else None


def _run_failed(one: Supervision, query: Query, now: float, terms: RestartTerms) -> Supervision:
    poison = poison_batch(query, Limits(restart_budget=terms.same_batch_failures))
    if poison is None:
        return _failed(one, _how(query.ended), now, terms)
    times = terms.same_batch_failures
    return given_up(one, f"batch {poison.batch_id} failed {times} times with {poison.error_class}")


def _present(one: Supervision, seen: Indexed) -> Query | None:
    """The query of its run, or of a later run that somebody else has started."""
    query = seen.by_run.get(one.run_id) if one.run_id else None
    if query is not None:
        return query
    later = seen.own(one.label) if one.seen or not one.run_id else None
    return later if later is not None and later.alive else None


def _failed(one: Supervision, why: str, now: float, terms: RestartTerms) -> Supervision:
    recent = tuple(at for at in one.failed_at if now - at <= terms.within_seconds)
    one = replace(one, failed_at=(*recent, now), in_a_row=one.in_a_row + 1, failure=why)
    within, in_a_row = len(one.failed_at), one.in_a_row
    if within > terms.restarts:
        count, when = within, f"within {terms.within_seconds:.0f} s"
    elif in_a_row > terms.restarts:
        count, when = in_a_row, "without a commit in between"
    else:
        due_at = now + terms.pause(max(within, in_a_row))
        return replace(one, due_at=due_at, next_try_at=None)
    return given_up(one, f"{count} failures {when}, the last: {why}")


def _how(ended: Ended | None) -> str:
    if ended is None:
        return "it disappeared without an end event"
    return ended.failure.reason if ended.failure is not None else "it stopped without an exception"
