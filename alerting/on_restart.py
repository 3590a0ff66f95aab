"""What a restart repeats: batches that are planned but not committed, and their offsets. Pure.

Spark writes ``offsets/N`` when it plans batch N and ``commits/N`` when the batch is done; a new run
begins with the batch after the last commit and its planned offsets (``MicroBatchExecution``). Async
progress tracking writes both only at intervals, so several batches may run again.
"""

from __future__ import annotations

from ..listener.probing import ProbedRun
from ..listener.query import Query

EVIDENCE = "on_restart"
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
    return {EVIDENCE: text} if text else {}


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
    return f", offsets {_short(begin)} to {_short(end)}"


def _short(text: str) -> str:
    return text if len(text) <= MAX_CHARACTERS else f"{text[:MAX_CHARACTERS]}..."
