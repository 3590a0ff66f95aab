"""The evidence of a finding as annotations: a readable text for each fact, by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, singledispatch

from ...core.text import amount, duration, exact_duration, listed, size, utc
from ...listener.failure import Failure
from ...listener.foresight.catching_up import CaughtUp, Deletion
from ...listener.foresight.filling import Full
from ...listener.foresight.intake import SECONDS
from ...listener.probe_report import JobCounts
from ...listener.source_polls import OFFSET
from .. import facts
from ..evidence import (
    Activity,
    After,
    CatchingUp,
    CommitLog,
    CommitSeen,
    CriticalAfter,
    DriverEvidence,
    Evidence,
    LastCommit,
    LikelyCause,
    OnRestart,
    QueryEvidence,
    RunEvidence,
    Signal,
    SlowCause,
    Slowness,
    SourceBacklog,
    SourceLag,
    StateSnapshots,
)
from ..facts import Facts
from ..policy import WINDOW_FACTOR, Window, WindowCause
from .next_steps import NEXT_STEPS, own_steps
from .reasons import (
    container_text,
    cut_off_by,
    full_text,
    gap_text,
    heap_text,
    members_text,
    owned,
    reason_of,
    retention_risk,
    slots_text,
    unfinished_text,
)

OVER_RESTARTS = "over_restarts"
MAX_OFFSET_CHARACTERS = 300
"""Of the offsets at each end: a topic may have a thousand partitions."""
MAX_LOSSES = 10
DRIVER_ENDS = "driver_ends"
DRIVER_MEMORY = "driver_memory"
ENDS_DRIVER = (
    "await_any_failure() raises in the main thread: the driver ends, unless the job goes on"
)

Texts = dict[str, str]


def evidence_texts(found: Facts, evidence: Evidence) -> Texts:
    """Return the annotations that are evidence, without empty ones."""
    texts: Texts = {}
    if evidence.driver is not None:
        texts["all_queries"] = _driver(evidence.driver)
    texts |= _of_facts_first(found)
    if evidence.query is not None:
        texts |= _query(evidence.query)
    texts |= _of_evidence(evidence) | _of_facts(found)
    waiting = found.newest.facts.waiting if isinstance(found, facts.Unnamed) else found.waiting
    if waiting:
        texts["waiting"] = ", ".join(waiting)
    texts[NEXT_STEPS] = own_steps(found, evidence)
    return {name: text for name, text in texts.items() if text}


def _of_evidence(evidence: Evidence) -> Texts:
    texts = {"slots": slots_text(evidence.slots), "main_thread": evidence.main_thread}
    if evidence.critical_after is not None:
        texts["critical_after"] = _critical_after(evidence.critical_after)
    if evidence.on_restart is not None:
        texts["on_restart"] = on_restart_text(evidence.on_restart)
    if evidence.downstream:
        verb = "gets" if len(evidence.downstream) == 1 else "get"
        texts["downstream"] = f"{listed(evidence.downstream)} {verb} no data from it"
    if evidence.upstream is not None:
        texts["upstream"] = cut_off_by(evidence.upstream)
    if evidence.memory is not None:
        texts[DRIVER_MEMORY] = memory_text(evidence.memory)
    if evidence.ends_driver:
        texts[DRIVER_ENDS] = ENDS_DRIVER
    return texts


# -- what the facts themselves add --------------------------------------------------------------


def _of_facts_first(found: Facts) -> Texts:
    texts: Texts = {}
    if isinstance(found, facts.ShareCause):
        texts["queries"] = members_text(found.members)
    if isinstance(found, facts.Unnamed):
        if found.count > 1:
            texts["queries"] = members_text(found.others, found.count)
        found = found.newest.facts
    if isinstance(found, facts.GivenUp):
        texts["restarts"] = str(found.restarts)
    return texts


@singledispatch
def _of_facts(_: Facts) -> Texts:
    return {}


@_of_facts.register
def _unnamed(found: facts.Unnamed) -> Texts:
    return _of_facts(found.newest.facts)


@_of_facts.register
def _failed(found: facts.Failed) -> Texts:
    failure = found.failure
    texts = _failure(failure)
    if failure.exception != failure.error_class:
        texts["exception"] = failure.exception
    if not failure.reason.endswith(failure.message):
        texts["error_message"] = failure.message
    return texts


@_of_facts.register
def _given_up(found: facts.GivenUp) -> Texts:
    return {} if found.failure is None else _failure(found.failure)


@_of_facts.register
def _checkpoint_taken(found: facts.CheckpointTaken) -> Texts:
    return {"taken_by": found.by}


@_of_facts.register
def _session_expired(found: facts.SessionExpired) -> Texts:
    return {"connect_session": owned(found.session)}


@_of_facts.register
def _never_seen(found: facts.NeverSeen) -> Texts:
    return {"known_queries": ", ".join(found.known_queries) or "none"}


@_of_facts.register(facts.PoisonBatch)
@_of_facts.register(facts.ManyFailures)
def _failures(found: facts.PoisonBatch | facts.ManyFailures) -> Texts:
    texts = {"deaths": "\n".join(map(_past_failure, found.failures))}
    if found.failure is None:
        return texts
    return texts | _failure(found.failure) | {"error_message": found.failure.message}


@_of_facts.register
def _offsets_went_back(found: facts.OffsetsWentBack) -> Texts:
    return {"id_before": found.id_before}


@_of_facts.register
def _retention_used(found: facts.RetentionUsed) -> Texts:
    return {"retention": "\n".join(map(retention_risk, found.risks[:MAX_LOSSES]))}


@_of_facts.register
def _passed_over(found: facts.PassedOver) -> Texts:
    return {"not_read": "\n".join(map(gap_text, found.gaps[:MAX_LOSSES]))}


@_of_facts.register
def _sink_remembers(found: facts.SinkRemembers) -> Texts:
    return {"sink_log": found.trouble}


@_of_facts.register(facts.HeapFull)
@_of_facts.register(facts.InCollection)
@_of_facts.register(facts.ContainerFull)
def _memory(found: facts.DriverMemory) -> Texts:
    return {DRIVER_MEMORY: memory_text(found.memory)}


@_of_facts.register
def _events_missing(found: facts.EventsMissing) -> Texts:
    is_there = "yes" if found.is_registered else "no: it was removed from Spark"
    return {"listener_registered": is_there, "other_listeners": "\n".join(found.full_queues)}


@_of_facts.register
def _slots_held(found: facts.SlotsHeld) -> Texts:
    return {"slots": slots_text(found.slots)}


@_of_facts.register
def _in_words(found: facts.Reported) -> Texts:
    return found.evidence


def _failure(failure: Failure) -> Texts:
    return {
        "error_class": failure.error_class,
        "table": failure.table,
        "python_line": failure.raised_at.line,
        "traceback": failure.raised_at.traceback,
    }


def _past_failure(failure: facts.PastFailure) -> str:
    batch = "unknown batch" if failure.batch_id is None else f"batch {failure.batch_id}"
    earlier = ", in an earlier process" if failure.is_of_earlier_process else ""
    return f"{duration(failure.seconds_ago)} ago: {batch}, {failure.error_class}{earlier}"


def memory_text(memory: facts.MemoryUse) -> str:
    """Return how the driver uses its memory, a line for each part of it."""
    lines = []
    if memory.heap is not None and memory.heap.after_gc_bytes is not None:
        lines.append(f"garbage collection leaves {heap_text(memory.heap)}")
    if memory.heap is not None:
        lines.append(f"heap in use now: {size(memory.heap.used_bytes)}")
    if memory.heap_full is not None:
        lines.append(_when_full("heap", memory.heap_full))
    if memory.gc_share is not None:
        lines.append(f"garbage collection takes {memory.gc_share:.0%} of the time")
    if memory.container is not None:
        lines.append(container_text(memory.container))
    if memory.container_full is not None:
        lines.append(_when_full("container", memory.container_full))
    return "\n".join(lines)


def _when_full(what: str, full: Full) -> str:
    text = full_text(full)
    return f"at this rate the {what} is full in {text}" if text else f"the {what} is full"


# -- the query ----------------------------------------------------------------------------------


def _query(query: QueryEvidence) -> Texts:
    texts = {
        "query_id": query.query_id,
        "run_id": query.run_id,
        "last_commit": _last_commit(query.last_commit),
        OVER_RESTARTS: "" if query.unfinished is None else unfinished_text(query.unfinished),
        "time_allowed": window_text(query.window),
        "batch_ids": reason_of(query.ids_went_back),
        "lag": "; ".join(map(_lag, query.lags)),
        "backlog": "; ".join(map(_backlog, query.backlogs)),
        "caught_up": "" if query.catching_up is None else caught_up_text(query.catching_up),
        **({} if query.slowness is None else _slowness(query.slowness)),
        "state_snapshots": _snapshots(query.state_snapshots),
        "sources_unread": query.sources_unread,
        "signals": ", ".join(map(_signal, query.signals)),
        "reads": "; ".join(query.reads),
        "trigger": "" if query.trigger is None else str(query.trigger),
        "sink": query.sink,
        "checkpoint": query.checkpoint,
        "committed_offsets": query.committed_offsets,
    }
    return texts if query.run is None else texts | _run(query.run)


SIGNALS = {"event": "Spark's last event", "probe": "last poll", "commit log": "last read commit"}


def _signal(signal: Signal) -> str:
    return f"{SIGNALS[signal.name]} {duration(signal.age_seconds)} ago"


def _last_commit(commit: LastCommit) -> str:
    batch = f"batch {commit.batch_id}"
    ago = f"{duration(commit.age_seconds)} ago"
    return {
        CommitSeen.BY_THIS_RUN: f"{batch}, {ago}",
        CommitSeen.BY_EARLIER_RUN: f"{batch}, {ago} by an earlier run",
        CommitSeen.IN_CHECKPOINT: (
            f"{batch}, {duration(commit.age_seconds)} ago, as its checkpoint says"
        ),
        CommitSeen.BEFORE_POLL: f"{batch}, before this run's first poll",
        CommitSeen.BEFORE_WATCHING: f"{batch}, before watching began",
        CommitSeen.NEVER: "none seen",
    }[commit.seen]


WINDOW_CAUSES = {
    WindowCause.USUAL_BATCH: "its usual longest batch",
    WindowCause.ONLY_BATCH: "its only batch so far",
    WindowCause.TRIGGER: "its trigger interval",
    WindowCause.FLOOR: "without a commit (stall_floor_seconds)",
    WindowCause.START_GRACE: "to start and commit (start_grace_seconds)",
    WindowCause.WITHOUT_CPU: "without a job or CPU time",
}


def window_text(window: Window) -> str:
    """Return the length of a window, and why it is so long."""
    cause = WINDOW_CAUSES[window.cause]
    if window.is_least:
        return f"{duration(window.seconds)} {cause}"
    unit = exact_duration(window.seconds / WINDOW_FACTOR)
    factor = f"{WINDOW_FACTOR:.0f} times {cause}"
    return f"{duration(window.seconds)} without a commit: {factor} ({unit})"


def _lag(lag: SourceLag) -> str:
    if lag.is_polled and lag.age_seconds is not None:
        unread = f"{lag.offsets:.0f} {lag.unit}s"
        return f"{lag.description}: {unread}, {duration(lag.age_seconds)} ago"
    return f"{lag.description}: {lag.offsets:.0f} offsets, {_reported(lag.age_seconds)}"


def _backlog(backlog: SourceBacklog) -> str:
    sizes = []
    if backlog.files is not None:
        sizes.append(f"{backlog.files:.0f} files")
    if backlog.size_bytes is not None:
        sizes.append(f"{backlog.size_bytes:.0f} bytes")
    return f"{backlog.description}: {', '.join([*sizes, _reported(backlog.age_seconds)])}"


def _snapshots(oldest: StateSnapshots | None) -> str:
    if oldest is None:
        return ""
    snapshot = f"snapshot of partition {oldest.partition} of {oldest.operator}"
    batches = f"the last {oldest.batches} batches ({duration(oldest.seconds)})"
    missing = f"no {snapshot} was uploaded in {batches}"
    lacks = missing if oldest.is_none else f"the newest {snapshot} lacks {batches}"
    return f"{lacks}; a restart applies their changes again, which may take long"


def caught_up_text(catching_up: CatchingUp) -> str:
    """Return when a query has caught up, or why it never does, and what is deleted before."""
    answer = catching_up.caught_up
    text = _never(answer) if answer.is_never else _meeting(answer, catching_up.wall)
    return text if answer.deletion is None else f"{text}; {_deletion(answer, answer.deletion)}"


def _meeting(answer: CaughtUp, wall: float | None) -> str:
    expected = duration(answer.seconds)
    earliest = duration(answer.earliest)
    latest = duration(answer.latest)
    between = "" if earliest == latest else f"{earliest} to {latest}"
    if wall is None:
        return f"in {expected} ({between})" if between else f"in {expected}"
    day, clock, zone = utc(wall + answer.seconds).split(" ")
    at = f"{clock[:5]} {zone}" if utc(wall).startswith(day) else f"{day} {clock[:5]} {zone}"
    return f"at {at} ({', '.join(filter(None, (expected, between)))})"


def _never(answer: CaughtUp) -> str:
    if answer.unit == SECONDS:
        return f"never at this rate: it reads {answer.consumption:.2f} s of data in a second"
    arrive = _per_hour(answer.arrival, answer.unit)
    read = _per_hour(answer.consumption, answer.unit)
    return f"never at this rate: {arrive} arrive, {read} are read"


def _deletion(answer: CaughtUp, deletion: Deletion) -> str:
    begins = f"retention deletes unread data in {duration(deletion.seconds)}"
    if answer.is_never:
        return f"{begins}, then {_per_hour(deletion.per_second, answer.unit)}"
    return f"{begins}, about {amount(deletion.lost)}{_units(answer.unit)} before that"


def _per_hour(per_second: float, unit: str) -> str:
    return f"{amount(3600 * per_second)}{_units(unit)}/h"


def _units(unit: str) -> str:
    """Offsets need no name: a reader thinks of records."""
    return "" if unit == OFFSET else f" {unit}s"


MANY_ROWS = 2.0
"""A batch with this many times the usual rows may take longer for these."""


def _slowness(slow: Slowness) -> Texts:
    """What makes its batches slow; where that is unknown, whether the slow one has more rows."""
    if slow.cause is not None:
        return {"likely_cause": likely_cause_text(slow.cause)}
    if slow.rows is None or slow.rows < MANY_ROWS * max(1.0, slow.usual_rows):
        return {}
    took = f"it took {duration(slow.seconds)}, usually {exact_duration(slow.usual_seconds)}"
    rows = f"{amount(slow.rows)} rows, usually {amount(slow.usual_rows)}"
    return {"batch_rows": f"batch {slow.batch_id} had {rows}; {took}"}


def likely_cause_text(cause: LikelyCause) -> str:
    """Return what makes batches slow: its code, and what shows it."""
    return f"{cause.cause.value}: {_SHOWN_BY[cause.cause](cause)}"


def _skewed(cause: LikelyCause) -> str:
    spread = cause.spread
    if spread is None:
        return "one task takes far longer than the others"
    longest = exact_duration(spread.longest_seconds)
    usual = exact_duration(spread.median_seconds)
    where = f"partition {spread.partition} on {spread.host}"
    return f"one task of stage {spread.stage} takes {longest}, the median is {usual} ({where})"


def _collected(cause: LikelyCause) -> str:
    if cause.is_in_driver:
        return f"collections stop it for {exact_duration(cause.explained_seconds)}, in the driver"
    return f"collections take {_share(cause)} of the time of its tasks"


def _spilled(cause: LikelyCause) -> str:
    return (
        f"its tasks wrote {size(cause.spilled_bytes)} to disk, because memory was too small; "
        f"they usually take {_share(cause)} less time for as much data"
    )


def _waited(cause: LikelyCause) -> str:
    seconds = exact_duration(cause.explained_seconds)
    by = "" if cause.holder is None else f"; {cause.holder} holds most of them"
    return f"its stages waited {seconds} until a slot was free{by}"


def _phases_text(phases: str, cause: LikelyCause) -> str:
    seconds = exact_duration(cause.explained_seconds + cause.usual_phase_seconds)
    return f"{phases} took {seconds}, usually {exact_duration(cause.usual_phase_seconds)}"


def _share(cause: LikelyCause) -> str:
    return f"{cause.of_tasks or 0.0:.0%}"


_SHOWN_BY: dict[SlowCause, Callable[[LikelyCause], str]] = {
    SlowCause.SKEW: _skewed,
    SlowCause.SPILL: _spilled,
    SlowCause.GARBAGE_COLLECTION: _collected,
    SlowCause.SHUFFLE_WAIT: lambda cause: (
        f"its tasks wait {_share(cause)} of their time for blocks of other executors"
    ),
    SlowCause.SOURCE_LISTING: partial(_phases_text, "asking the source (latestOffset, getBatch)"),
    SlowCause.PLANNING: partial(_phases_text, "planning the batch (queryPlanning)"),
    SlowCause.SLOW_COMMIT: partial(
        _phases_text, "writing to the checkpoint (walCommit, commitOffsets)"
    ),
    SlowCause.STATE_COMMIT: lambda cause: (
        f"committing its state takes {_share(cause)} of the time of its tasks"
    ),
    SlowCause.WAITING_FOR_SLOTS: _waited,
}


def _reported(age_seconds: float | None) -> str:
    if age_seconds is None:
        return "as Spark reported"
    return f"as Spark reported {duration(age_seconds)} ago"


def _run(run: RunEvidence) -> Texts:
    texts: Texts = {}
    if run.is_in_flight:
        batch = run.batch_id
        what = "asking for offsets" if batch is None else f"batch {batch} in flight"
        texts["batch_in_flight"] = f"{what} for {duration(run.in_flight_seconds)}"
    if run.commit_log is not None:
        texts["commit_log"] = _commit_log(run.commit_log)
    texts["spark_says"] = run.spark_says
    return texts if run.activity is None else texts | _jobs(run.activity)


def _commit_log(log: CommitLog) -> str:
    if log.planned is not None and log.planned != log.committed:
        done = "none" if log.committed is None else str(log.committed)
        return f"batch {log.planned} planned, never committed; last committed: {done}"
    if log.committed is None:
        return "empty"
    return f"batch {log.committed} committed, none planned"


def _jobs(activity: Activity) -> Texts:
    own = activity.own
    jobs = "no Spark job"
    if own.jobs_started and activity.is_counted:
        jobs = f"jobs: {own.jobs_started} started so far, {own.jobs_active} active"
    elif own.jobs_started:
        jobs = f"jobs: {own.jobs_active} active, newest {own.jobs_started - 1}"
    others = ""
    if not own.jobs_active and activity.unowned.jobs_started:
        # Jobs that name no query may belong to this one.
        theirs = f"{activity.unowned.jobs_active} active that name no query"
        others = f"{theirs}, tasks: {_tasks(activity.unowned, activity)}"
    return {
        "tasks": f"{_tasks(own, activity)} ({jobs})",
        "other_jobs": others,
        "python_line": activity.python_line,
        "stream_thread": "\n".join(activity.jvm_stack),
    }


def _tasks(counts: JobCounts, activity: Activity) -> str:
    since = " so far" if activity.is_counted else ""
    return f"{counts.tasks_completed} completed{since}, {counts.tasks_active} running"


# -- when it becomes critical, what a restart repeats, the driver -------------------------------


def _critical_after(after: CriticalAfter) -> str:
    seconds = duration(after.seconds)
    if after.of is After.IN_FLIGHT:
        return f"{seconds} in flight"
    if after.of is After.NO_PROGRESS:
        return f"{seconds} without progress"
    text = f"{seconds} without a finished task"
    return (
        text
        if after.or_in_flight is None
        else f"{text}, or {duration(after.or_in_flight)} in flight"
    )


def on_restart_text(repeated: OnRestart) -> str:
    """Return which batches a restart runs again, and their offsets."""
    if repeated.is_done:
        batches = f"batches {repeated.first} to {repeated.last} run"
        if repeated.first == repeated.last:
            batches = f"batch {repeated.last} runs"
        return f"{batches} again: done, but not in the commit log"
    text = f"batch {repeated.first} runs again"
    if not repeated.end or repeated.end == repeated.begin:
        return text
    return f"{text}, offsets {_offsets(repeated.begin)} to {_offsets(repeated.end)}"


def _offsets(text: str) -> str:
    is_short = len(text) <= MAX_OFFSET_CHARACTERS
    return text if is_short else f"{text[:MAX_OFFSET_CHARACTERS]}..."


def _driver(driver: DriverEvidence) -> str:
    text = f"{driver.queries - driver.unhealthy} of {driver.queries} healthy"
    if not driver.unhealthy:
        return text
    names = ", ".join(driver.names)
    more = driver.unhealthy - len(driver.names)
    return f"{text}; unhealthy: {names}{f' and {more} more' if more else ''}"
