"""What restarts repeat: failures, and batches that are planned but not committed."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ..core.text import duration
from ..listener.probe import ProbedRun
from ..listener.state.query import UNKNOWN_BATCH, Died, Query
from .policy import RESTART_WINDOW_SECONDS, Limits
from .rule_context import RuleContext

# -- over restarts ----------------------------------------------------------------------------
# The checkpoint alone shows such a batch, so querypulse needs no stored state. It does not show why
# the last process ended: a planned stop in the middle of a batch leaves the same files as a crash.
# So an old plan raises no alert by itself; it shows how old the batch is that fails or is stuck.


CLOCKS_DIFFER_SECONDS = 5.0
"""The clocks of the storage and of this machine may differ by this much."""
ANNOTATION = "over_restarts"
"""The annotation of an alert about such a batch."""


class Unfinished(msgspec.Struct, frozen=True):
    """The batch, and how many seconds ago it was planned."""

    batch_id: int
    age_seconds: float

    def __str__(self) -> str:
        age = duration(self.age_seconds)
        return f"batch {self.batch_id} was planned {age} ago and never committed, over restarts"


def unfinished(context: RuleContext) -> Unfinished | None:
    """The uncommitted batch that an earlier process planned longer than the window ago."""
    query, point = context.query, context.query.start_point
    batch = point.unfinished if point is not None else None
    if batch is None or batch.at is None:
        return None
    if query.last_commit_batch is not None and query.last_commit_batch >= batch.batch_id:
        return None
    # A run that was active before monitoring began may have planned the batch itself.
    was_active = query.start is None and not query.totals.restarts
    if was_active or batch.at > context.snapshot.began_at - CLOCKS_DIFFER_SECONDS:
        return None
    if query.newest_commit is not None and query.newest_commit[0] < batch.batch_id:
        # This process planned it after that commit, whatever the clock of the storage shows.
        return None
    age = context.now - batch.at
    return Unfinished(batch.batch_id, age) if age > context.window.seconds else None


def with_age(reason: str, context: RuleContext) -> str:
    """The reason, with the age of such a batch if there is one."""
    found = unfinished(context)
    return reason if found is None else f"{reason}; {found}"


# -- on restart -------------------------------------------------------------------------------
# What a restart repeats: batches that are planned but not committed, and their offsets.
#
# Spark writes ``offsets/N`` when it plans batch N and ``commits/N`` when the batch is done; a new
# run begins with the batch after the last commit and its planned offsets (``MicroBatchExecution``).
# Async progress tracking writes both only at intervals, so several batches may run again.


MAX_CHARACTERS = 300
"""Of the offsets at each end: a topic may have a thousand partitions."""


def on_restart(query: Query) -> dict[str, str]:
    """The evidence ``on_restart``: "batch 41 runs again, offsets a to b"; empty if not known."""
    probed = query.probed
    if probed is None or probed.facts.trigger.is_continuous or probed.facts.trigger.is_real_time:
        return {}
    if probed.facts.async_progress:
        text = _async(query)
    else:
        batch = _planned(query, probed)
        text = "" if batch is None else f"batch {batch} runs again{_offsets(probed)}"
    return {"on_restart": text} if text else {}


def _async(query: Query) -> str:
    missing = query.batches_not_durable
    if not missing or query.last_commit_batch is None:
        return ""
    last = query.last_commit_batch
    if missing == 1:
        return f"batch {last} runs again: done, but not in the commit log"
    return f"batches {last - missing + 1} to {last} run again: done, but not in the commit log"


def _planned(query: Query, probed: ProbedRun) -> int | None:
    """The batch that is planned but not committed; None if no such batch is known."""
    after_commit = -1 if query.last_commit_batch is None else query.last_commit_batch
    log = query.logged
    if log is not None and log.planned is not None and log.planned > after_commit:
        return log.planned
    flight = query.in_flight
    in_flight = flight.batch_id if flight is not None else None
    if query.alive:
        batch = in_flight
    else:
        # The last report of a run names its batch, whether it was planned or not.
        has_plan = probed.available_offsets not in ("", probed.committed_offsets)
        batch = probed.batch_id if not probed.active and has_plan else in_flight
    return batch if batch is not None and batch > after_commit else None


def _offsets(probed: ProbedRun) -> str:
    begin, end = probed.committed_offsets, probed.available_offsets
    if not end or end == begin:
        return ""
    begin, end = (
        text if len(text) <= MAX_CHARACTERS else f"{text[:MAX_CHARACTERS]}..."
        for text in (begin, end)
    )
    return f", offsets {begin} to {end}"


# -- deaths -----------------------------------------------------------------------------------
# The failures of one query over all its runs: too many, or the same batch again and again.


def is_flapping(query: Query, limits: Limits, now: float) -> bool:
    """Whether the restart budget is used up.

    While a query is down, its failures do not expire: the problem still exists.
    """
    if not query.deaths:
        return False
    at = query.deaths[-1].at if query.failure is not None else now
    spent = len(recent(query.deaths, at)) >= limits.restart_budget
    return spent or poison_batch(query, limits) is not None


def poison_batch(query: Query, limits: Limits) -> Died | None:
    """A failure, if all failures of the budget had its batch and its error class.

    One whose batch is not known may have had the same.
    """
    last = query.deaths[-limits.restart_budget :]
    if query.unrecovered_deaths == 0 or repeated(last) < limits.restart_budget:
        return None
    known = [died for died in last if died.batch_id != UNKNOWN_BATCH]
    return known[-1] if known and not is_committed(query, known[-1]) else None


def repeated(deaths: Sequence[Died]) -> int:
    """How many of the last failures had one error class and, where it is known, one batch."""
    count, batch_id = 0, UNKNOWN_BATCH
    for died in reversed(deaths):
        another = UNKNOWN_BATCH not in {batch_id, died.batch_id} and batch_id != died.batch_id
        if another or died.error_class != deaths[-1].error_class:
            break
        batch_id = max(batch_id, died.batch_id)
        count += 1
    return count


def is_committed(query: Query, died: Died) -> bool:
    """Whether the checkpoint showed, when the last run began, that the batch was committed.

    A process that querypulse did not monitor may have committed it.
    """
    point = query.start_point
    done = point.committed if point is not None else None
    return done is not None and done.batch_id >= died.batch_id != UNKNOWN_BATCH


def was_flapping_already(query: Query, limits: Limits) -> bool:
    """Whether the budget was already used up when the query last became unhealthy."""
    fell = max(0, len(query.deaths) - max(1, query.unrecovered_deaths))
    until_then = query.deaths[: fell + 1]
    if not until_then:
        return False
    return len(recent(until_then, until_then[-1].at)) >= limits.restart_budget


def recent(deaths: Sequence[Died], at: float) -> list[Died]:
    """The failures within the restart window that ends at ``at``."""
    return [died for died in deaths if at - died.at <= RESTART_WINDOW_SECONDS]
