"""Evidence: readable facts about one query for the person on call, and what a restart repeats."""

from __future__ import annotations

from typing import Any

import msgspec

from ...core.text import duration
from ...listener.failure import Failure
from ...listener.probe_report import JobActivity, JobCounts, ProbedRun
from ...listener.state.query import CLOCKS_DIFFER_SECONDS, Query
from ..finding import Finding, Severity, finding_about
from ..policy import Window
from .context import RuleContext


def report(
    context: RuleContext,
    alertname: str,
    severity: Severity,
    reason: str,
    facts: dict[str, str] | None = None,
    **words: Any,
) -> Finding:
    """The finding of a rule about one query, with its evidence unless ``facts`` has it."""
    facts = evidence(context) if facts is None else facts
    return finding_about(context.query.label, alertname, severity, reason, facts, **words)


def evidence(context: RuleContext, window: Window | None = None) -> dict[str, str]:
    """Facts about one query, without those that are not known.

    ``window`` is the window of the finding, if it is not the query's own.
    """
    query, probed = context.query, context.query.probed
    facts = {
        "query_id": query.query_id,
        "run_id": query.run_id,
        "last_commit": _last_commit(context),
        OVER_RESTARTS: str(unfinished(context) or ""),
        "window": str(context.window if window is None else window),
        "batch_ids": query.went_back,
        "lag": _lag(context),
        "backlog": _backlog(context),
        "sources_unread": query.source_trouble,
        "signals": _signals(context),
    }
    if query.is_unnamed and query.progress is not None:
        # Without a name, what it reads says best which query it is.
        facts["reads"] = "; ".join(source.description for source in query.progress.sources)
    if query.facts is not None:
        facts |= {
            "trigger": str(query.facts.trigger),
            "sink": query.facts.sink,
            "checkpoint": query.facts.checkpoint,
        }
    if probed is not None:
        facts["committed_offsets"] = probed.committed_offsets
    if query.alive:
        facts |= _of_run(context)
    return {name: text for name, text in facts.items() if text}


def failure_facts(failure: Failure) -> dict[str, str]:
    """What a failure says, and where it was raised."""
    return {
        "error_class": failure.error_class,
        "table": failure.table,
        "python_line": failure.raised_at.line,
        "traceback": failure.raised_at.traceback,
    }


def _last_commit(context: RuleContext) -> str:
    query = context.query
    batch = query.last_commit_batch
    if batch is not None and query.last_commit_at is not None:
        return f"batch {batch}, {context.now - query.last_commit_at:.0f} s ago"
    newest = query.newest_commit
    if newest is not None and newest[0] == batch:
        return f"batch {batch}, {context.now - newest[1]:.0f} s ago by an earlier run"
    logged = query.start_point.committed if query.start_point is not None else None
    if logged is not None and logged.at is not None and batch in (None, logged.batch_id):
        age = duration(context.now - logged.at)
        return f"batch {logged.batch_id}, {age} ago, as its checkpoint says"
    if batch is None:
        return "none seen"
    since = "this run's first poll" if query.start is not None else "watching began"
    return f"batch {batch}, before {since}"


def _of_run(context: RuleContext) -> dict[str, str]:
    """What the run is doing: its batch, the newest batches in its checkpoint, its jobs."""
    query, facts = context.query, {}
    flight, log, probed = query.in_flight, query.logged, query.probed
    if flight is not None:
        batch = flight.batch_id
        what = "asking for offsets" if batch is None else f"batch {batch} in flight"
        facts["batch_in_flight"] = f"{what} for {context.now - flight.since:.0f} s"
    if log is not None and log.planned is not None and log.planned != log.committed:
        done = "none" if log.committed is None else str(log.committed)
        plan = f"batch {log.planned} planned, never committed"
        facts["commit_log"] = f"{plan}; last committed: {done}"
    elif log is not None:
        done = f"batch {log.committed} committed, none planned"
        facts["commit_log"] = "empty" if log.committed is None else done
    if probed is not None:
        facts["spark_says"] = probed.message
    return facts if context.work is None else facts | _jobs(context.work)


def _jobs(work: JobActivity) -> dict[str, str]:
    own, unowned, jobs, others = work.own, work.unowned, "no Spark job", ""
    if own.jobs_started and work.counted:
        jobs = f"jobs: {own.jobs_started} started so far, {own.jobs_active} active"
    elif own.jobs_started:
        jobs = f"jobs: {own.jobs_active} active, newest {own.jobs_started - 1}"
    if not own.jobs_active and unowned.jobs_started:
        # Jobs that name no query may belong to this one.
        theirs = f"{unowned.jobs_active} active that name no query"
        others = f"{theirs}, tasks: {_tasks(unowned, work)}"
    return {
        "tasks": f"{_tasks(own, work)} ({jobs})",
        "other_jobs": others,
        "python_line": work.python_line,
        "stream_thread": "\n".join(work.jvm_stack),
    }


def _tasks(counts: JobCounts, work: JobActivity) -> str:
    """Task counts: of all batches if they are ``counted``, else of the active jobs only."""
    since = " so far" if work.counted else ""
    return f"{counts.tasks_completed} completed{since}, {counts.tasks_active} running"


def _lag(context: RuleContext) -> str:
    """Lag and its age by source: polled where the source answers, else as Spark reported it."""
    query = context.query
    sources = query.progress.sources if query.progress is not None else ()
    lags = {
        index: f"{source.description}: {source.lag_offsets:.0f} offsets, {_reported(context)}"
        for index, source in enumerate(sources)
        if source.lag_offsets is not None
    } | {
        index: f"{poll.description}: {poll.lag_offsets} offsets, {context.now - poll.at:.0f} s ago"
        for index, poll in query.polls.items()
        if poll.lag_offsets is not None
    }
    return "; ".join(lags[index] for index in sorted(lags))


def _reported(context: RuleContext) -> str:
    at = context.query.progress_at
    return "as Spark reported" if at is None else f"as Spark reported {context.now - at:.0f} s ago"


def _backlog(context: RuleContext) -> str:
    """The backlog in files and bytes and its age, for sources that report one."""
    query = context.query
    texts = []
    for source in query.progress.sources if query.progress is not None else ():
        figures = {"files": source.backlog_files, "bytes": source.backlog_bytes}
        sizes = [f"{figure:.0f} {unit}" for unit, figure in figures.items() if figure is not None]
        if sizes:
            texts.append(f"{source.description}: {', '.join([*sizes, _reported(context)])}")
    return "; ".join(texts)


def _signals(context: RuleContext) -> str:
    """Which signals have been received, and how long ago: the evaluation is based on these."""
    query = context.query
    received = {
        "event": query.last_event_at,
        "probe": query.probed_at,
        "commit log": query.logged_at,
    }
    return ", ".join(
        f"{name} {context.now - at:.1f} s ago" for name, at in received.items() if at is not None
    )


# -- over restarts ----------------------------------------------------------------------------
# The checkpoint alone shows such a batch, so querypulse needs no stored state. It does not show why
# the last process ended: a planned stop in the middle of a batch leaves the same files as a crash.
# So an old plan raises no alert by itself; it shows how old the batch is that fails or is stuck.

OVER_RESTARTS = "over_restarts"
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
    batch = unfinished(context)
    return reason if batch is None else f"{reason}; {batch}"


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
    last, missing, text = query.last_commit_batch, query.batches_not_durable, ""
    if not probed.facts.async_progress:
        batch = _planned(query, probed)
        text = "" if batch is None else f"batch {batch} runs again{_offsets(probed)}"
    elif missing and last is not None:
        batches = f"batches {last - missing + 1} to {last} run"
        batches = f"batch {last} runs" if missing == 1 else batches
        text = f"{batches} again: done, but not in the commit log"
    return {"on_restart": text}


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
