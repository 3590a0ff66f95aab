"""What is wrong, as one readable line: a function for each class of facts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch

from ...core.states import QueryState
from ...core.text import amount, duration, exact_duration, listed, size, utc
from ...listener.failure import Failure
from ...listener.foresight.filling import Full
from ...listener.foresight.resources import Container, Heap
from ...listener.foresight.state_growth import Cause as WhyKept
from ...listener.probe_report import LongTask, Moves, SessionEnd
from ...listener.source_polls import OFFSET
from ...listener.state.positions import Cause, Gap
from .. import facts
from ..facts import Facts
from ..kinds import SHOWN_CODES, Code, SharedCause

CAUSES = {
    SharedCause.JVM_SILENT: "the JVM does not answer",
    SharedCause.SCHEDULER_STOPPED: "Spark's scheduler has stopped",
    SharedCause.CONTEXT_STOPPED: "the SparkContext stopped by itself",
    SharedCause.PROGRAM_ENDED: "the main program ended",
}
JVM_ENDED = "the JVM of the driver has ended"
SESSION_GONE = "the Spark Connect session has ended, and the job did not ask for that"
NOT_EVALUATED = "could not be evaluated"
STATES = {
    QueryState.FAILED: "failed",
    QueryState.MISSING: "is missing",
    QueryState.STOPPED_UNEXPECTEDLY: "stopped",
    QueryState.STALLED: "is stalled",
}
"""What a query does that cuts others off."""
MAX_DRIVER_QUERIES = 20
MAX_PARTITIONS = 3
MAX_DRY = 3
END_OF_9999 = 253_402_300_800.0
"""Python's calendar ends there."""


# -- a reason ---------------------------------------------------------------------------------


def reason_of(found: Facts | None) -> str:
    """Return what is wrong, after its code where it has one to show; empty without facts."""
    if found is None:
        return ""
    text = with_addition(found, text_of(found)) + who_waits(found)
    return f"{found.code.value}: {text}" if found.code in SHOWN_CODES else text


def code_of(found: Facts) -> Code:
    """Return the code of what was found; of several unnamed queries, that of the newest."""
    return found.newest.facts.code if isinstance(found, facts.Unnamed) else found.code


@singledispatch
def text_of(found: Facts) -> str:
    """Return what is wrong, without a code.

    Raises:
        TypeError: nothing below says this class of facts.

    """
    raise TypeError(f"no words for {type(found).__name__}")


def with_addition(found: Facts, text: str) -> str:
    """Return the text, how old the batch is, and since when the run was to stop."""
    if found.unfinished is not None:
        text += f"; {unfinished_text(found.unfinished)}"
    if found.lost is not None:
        text += f"; {_losses(found.lost)}"
    if found.stopping_seconds is not None:
        text += f"; it was stopped {duration(found.stopping_seconds)} ago and still runs"
    return text


def who_waits(found: Facts) -> str:
    """Return the queries that wait for its slots, where the text itself does not name them."""
    if not found.waiting or isinstance(found, facts.SlotsHeld):
        return ""
    return f"; {listed(found.waiting)} wait for its slots"


# -- runs that ended, or never began ----------------------------------------------------------


@text_of.register
def _failed(found: facts.Failed) -> str:
    return found.failure.reason


@text_of.register
def _given_up(found: facts.GivenUp) -> str:
    return found.why


@text_of.register
def _stopped(found: facts.Stopped) -> str:
    how = {
        facts.HowStopped.STOPPED: "stopped without an exception",
        facts.HowStopped.VANISHED: "disappeared without an end event",
        facts.HowStopped.WITH_CONTEXT: "ended with its SparkContext, which stopped by itself",
    }[found.how]
    return f"{how} {duration(found.seconds)} ago and has not restarted"


@text_of.register
def _checkpoint_taken(found: facts.CheckpointTaken) -> str:
    where = f"its checkpoint, {found.checkpoint}" if found.checkpoint else "its checkpoint"
    return f"Spark stopped it {duration(found.seconds)} ago: {found.by} was started on {where}"


@text_of.register
def _session_expired(found: facts.SessionExpired) -> str:
    return f"stopped {duration(found.seconds)} ago, as {expired_text(found.session)}"


def expired_text(ended: SessionEnd) -> str:
    """Return whose session of Spark Connect expired, and why."""
    silence = f"its client had made no call for {duration(ended.idle_seconds)}"
    return f"the Spark Connect session {owned(ended)} expired: {silence}"


def owned(ended: SessionEnd) -> str:
    """Return the session, and its user where the client named one."""
    return f"{ended.session} of {ended.user}" if ended.user else ended.session


@text_of.register
def _program_ended(found: facts.ProgramEnded) -> str:
    names = listed(found.queries, MAX_DRIVER_QUERIES)
    return f"{found.how} while {_count_queries(len(found.queries))} ran: {names}"


def _count_queries(count: int) -> str:
    return f"{count} streaming {'query' if count == 1 else 'queries'}"


@text_of.register
def _no_activity(found: facts.NoActivity) -> str:
    return f"started {duration(found.seconds)} ago, no activity since"


@text_of.register
def _start_overdue(found: facts.StartOverdue) -> str:
    return f"its start has been due for {duration(found.seconds)}"


@text_of.register
def _never_seen(found: facts.NeverSeen) -> str:
    return f"expected, but not seen in {duration(found.seconds)} of monitoring"


@text_of.register
def _not_completed(found: facts.NotCompleted) -> str:
    begin = f"no run has completed for {utc(found.due_at)} ({found.times})"
    last = "no earlier completion is known"
    if found.completed_at is not None:
        last = f"the last one did at {utc(found.completed_at)}"
    if found.running_seconds is None:
        return f"{begin}, and none is running; {last}"
    doing = "" if found.batch_id is None else f", in batch {found.batch_id}"
    return f"{begin}: one has run for {duration(found.running_seconds)}{doing}; {last}"


@text_of.register
def _poison_batch(found: facts.PoisonBatch) -> str:
    begin = f"batch {found.batch_id} failed {found.times} times with {found.error_class}"
    return begin + _in_earlier_processes(found.earlier)


@text_of.register
def _many_failures(found: facts.ManyFailures) -> str:
    begin = f"{found.times} failures within {duration(found.within_seconds)}"
    return f"{begin}{_in_earlier_processes(found.earlier)}, the last with {found.error_class}"


def _in_earlier_processes(count: int) -> str:
    return f", {count} of them in earlier processes" if count else ""


# -- batches ----------------------------------------------------------------------------------


def unfinished_text(batch: facts.Unfinished) -> str:
    """Return the age of a batch that no process has committed."""
    age = duration(batch.age_seconds)
    return f"batch {batch.batch_id} was planned {age} ago and never committed, over restarts"


def slots_text(slots: facts.Slots | None) -> str:
    """Return who holds the slots: "others hold 4 of 4 slots, bronze 3 of them"."""
    if slots is None:
        return ""
    if not slots.taken:
        return f"others hold 0 of {slots.total} slots"
    holder = "jobs that name no query" if slots.holder is None else slots.holder
    return f"others hold {slots.taken} of {slots.total} slots, {holder} {slots.held} of them"


def _flight(flight: facts.Flight) -> str:
    is_planned = flight.batch_id is not None
    what = f"batch {flight.batch_id} in flight" if is_planned else "planning the next batch"
    return f"{what} for {duration(flight.seconds)}"


@text_of.register
def _scheduler_stopped(found: facts.SchedulerStopped) -> str:
    loop = "the thread dag-scheduler-event-loop"
    if found.waits_seconds is None:
        why = f"{loop} has ended, so that no job starts or ends"
    else:
        why = f"{loop} has handled no event for {duration(found.waits_seconds)}"
    return f"{_flight(found.flight)}, {why}"


@text_of.register
def _task_running(found: facts.TaskRunning) -> str:
    count = "1 task" if found.tasks == 1 else f"{found.tasks} tasks"
    running = f"{count} running{'' if found.is_own else ' in jobs that name no query'}"
    if found.longest is not None:
        running += f" ({long_task_text(found.longest)})"
    return _delayed(found, running)


def long_task_text(task: LongTask) -> str:
    """Return where a task runs and for how long, and how long its siblings took."""
    where = f"partition {task.partition} of stage {task.stage} on {task.host}"
    text = f"{where} for {duration(task.seconds)}"
    if task.usual_seconds is None:
        return text
    return f"{text}, while its siblings took {exact_duration(task.usual_seconds)}"


@text_of.register
def _no_executors(found: facts.NoExecutors) -> str:
    return _delayed(found, "no executor is available to run its tasks")


@text_of.register
def _executors_lost(found: facts.ExecutorsLost) -> str:
    why = f"its tasks begin again and again, none made progress for {duration(found.still_seconds)}"
    return f"{_flight(found.flight)}, {why}"


def _losses(lost: facts.Losses) -> str:
    count = "1 executor was" if lost.count == 1 else f"{lost.count} executors were"
    why = f" ({lost.reason.rstrip('.')})" if lost.reason else ""
    return f"{count} lost in {duration(lost.seconds)}{why}"


@text_of.register
def _waiting_for_slots(found: facts.WaitingForSlots) -> str:
    return _delayed(found, f"none of its tasks is running, {slots_text(found.slots)}")


def _delayed(found: facts.TaskRunning | facts.NoExecutors | facts.WaitingForSlots, why: str) -> str:
    return f"{_flight(found.flight)}, {why}, none finished for {duration(found.still_seconds)}"


@text_of.register
def _batch_hung(found: facts.BatchHung) -> str:
    nothing = "Spark Connect does not show its tasks"
    if found.still_seconds is not None:
        nothing = f"no task of its own finished for {duration(found.still_seconds)}"
    return f"{_flight(found.flight)}, {nothing}{_blocked_at(found.place)}"


@text_of.register
def _source_hung(found: facts.SourceHung) -> str:
    return f"{found.step!r} for {duration(found.seconds)}{_blocked_at(found.place)}"


def _blocked_at(place: facts.Place) -> str:
    if place.is_retrying:
        at = f" at {place.line}" if place.line else ""
        return f", its thread in Spark tries again now and then{at}"
    return f", blocked at {place.line}" if place.line else ""


@text_of.register
def _waits_for_log(found: facts.WaitsForLog) -> str:
    return f"the next batch has waited for the commit log for {duration(found.seconds)}"


@text_of.register
def _log_behind(found: facts.LogBehind) -> str:
    where = "empty" if found.logged is None else f"at batch {found.logged}"
    return (
        f"the commit log has been {where} for {duration(found.seconds)}, "
        f"while batches have reached {found.reached}"
    )


@text_of.register
def _no_epoch(found: facts.NoEpoch) -> str:
    return f"no epoch committed for {duration(found.seconds)}"


@text_of.register
def _silent(found: facts.Silent) -> str:
    return f"no activity for {duration(found.seconds)} from events, probe or commit log"


@text_of.register
def _no_trigger(found: facts.NoTrigger) -> str:
    return f"no batch in flight and no trigger for {duration(found.seconds)}"


@text_of.register
def _batch_slow(found: facts.BatchSlow) -> str:
    return f"{_flight(found.flight)}, {_moves(found)}"


@text_of.register
def _retrying(found: facts.Retrying) -> str:
    jobs = f"{found.jobs} jobs in this batch so far, usually at most {found.usual_jobs:.1f}"
    return f"{_batch_slow(found)}, {jobs}"


@text_of.register
def _never_committed(found: facts.NeverCommitted) -> str:
    return f"{_batch_slow(found)}, {unfinished_text(found.planned)}"


def _moves(found: facts.BatchSlow) -> str:
    if found.moves is Moves.TASKS:
        others = "" if found.is_own else ", or those of jobs that name no query"
        return f"its tasks still finish{others}"
    thread = "Python thread" if found.moves is Moves.PYTHON else "thread in the driver"
    at = f" at {found.line}" if found.line else ""
    return f"no task of its own runs, its {thread} works{at}"


@text_of.register
def _slots_held(found: facts.SlotsHeld) -> str:
    return f"its tasks hold the slots that {listed(found.waiting)} wait for"


@text_of.register
def _offsets_stuck(found: facts.OffsetsStuck) -> str:
    sources = "; ".join(_stuck_source(source) for source in found.sources)
    return f"{sources}, although batches run and data is unread"


def _stuck_source(source: facts.StuckSource) -> str:
    names = ", ".join(source.partitions)
    if source.count > len(source.partitions):
        names += f" and {source.count - len(source.partitions)} more"
    have = "has" if source.count == 1 else "have"
    stuck = f"{names or 'its offset'} {have} not advanced for {duration(source.seconds)}"
    return f"{source.description}: {stuck}"


MAX_REWINDS = 3


@text_of.register
def _offsets_went_back(found: facts.OffsetsWentBack) -> str:
    texts = [
        f"{rewind.source} went back from {rewind.was} to {rewind.now}" for rewind in found.went_back
    ]
    texts += [
        f"{short.source} ends at {short.end}, but was read up to {short.committed}: "
        "it was replaced, or restored from a copy"
        for short in found.ends_before
    ]
    texts = texts[:MAX_REWINDS]
    if found.new_id_of is not None:
        texts.append(
            f"its checkpoint {found.new_id_of} has a new query id, although batch ids go on: "
            "a sink that remembers batches by query id (Delta's txnAppId) accepts the first one "
            "again"
        )
    return "; ".join(texts)


@text_of.register
def _batch_ids_went_back(found: facts.BatchIdsWentBack) -> str:
    return (
        f"batch ids went from {found.earlier:,} back to {found.first:,}: its checkpoint is new or "
        f"was restored; a sink that remembers ids skips batches up to {found.earlier:,}"
    )


# -- unread and late data -----------------------------------------------------------------------


@text_of.register
def _waited_too_long(found: facts.WaitedTooLong) -> str:
    where = f" of {found.partition}" if found.partition else ""
    waited = f"the first unread record{where} has waited for {duration(found.seconds)}"
    return f"{waited} ({duration(found.allowed)} allowed)"


@text_of.register
def _lag_rises(found: facts.LagRises) -> str:
    lags = f"lag rose from {found.first:.0f} to {found.newest:.0f} {found.unit}"
    return f"{lags} in {duration(found.seconds)} ({found.allowed:.0f} allowed)"


@text_of.register
def _open_transaction(found: facts.OpenTransaction) -> str:
    text = (
        f"{found.partition}: {found.records} records wait behind an open transaction, "
        f"for {duration(found.seconds)}"
    )
    return text + _in_total(found.partitions, "partitions")


def _in_total(count: int, what: str) -> str:
    return f"; {count} {what} in total" if count > 1 else ""


@text_of.register
def _batches_grow(found: facts.BatchesGrow) -> str:
    before = f"{duration(found.first)} at first"
    if found.day_ago is not None and not found.is_loop:
        before = f"at most {duration(found.day_ago)} a day ago"
    what = "runs" if found.is_loop else "batches"
    took = f"each of the last {found.batches} {what} took longer than {exact_duration(found.limit)}"
    return f"{took}, for {duration(found.seconds)}: {before}, {duration(found.newest)} now"


@text_of.register
def _watermark_stuck(found: facts.WatermarkStuck) -> str:
    return (
        f"the watermark has not advanced for {duration(found.seconds)} and {found.batches} batches "
        "with rows, although newer event times were read"
    )


@text_of.register
def _watermark_ahead(found: facts.WatermarkAhead) -> str:
    at = utc(found.watermark) if found.watermark < END_OF_9999 else "a year after 9999"
    return (
        f"the watermark is at {at}, {duration(found.ahead_seconds)} in the future: rows before it "
        f"are late, and {found.late_rows} were dropped"
    )


@text_of.register
def _rows_dropped(found: facts.RowsDropped) -> str:
    text = f"each of the last {found.batches} batches with rows dropped late ones"
    text += f", for {duration(found.seconds)}"
    if found.rows:
        text += f" (at least {found.rows} of {found.input_rows})"
    if found.usual_share is not None:
        text += f"; the day before it was at most {found.usual_share:.1%} in an hour"
    if found.behind_seconds is not None:
        text += f"; the newest event time is {duration(found.behind_seconds)} behind the watermark"
    return text


WHY_KEPT = {
    WhyKept.NO_WATERMARK: "there is no watermark, so that nothing is ever removed",
    WhyKept.WATERMARK_STUCK: "its watermark is stuck, so that nothing is removed",
    WhyKept.NEVER_REMOVED: "nothing was removed, although windows of a month would be over",
}


@text_of.register
def _state_growing(found: facts.StateGrowing) -> str:
    text = f"{found.operator} keeps {_state(found.rows, found.size_bytes)}"
    if found.limit_bytes is not None:
        text = f"the state is {size(found.size_bytes or 0)}, most of it in {found.operator}"
    grown = _state(found.grown_rows, found.grown_bytes)
    if grown:
        text += f", {grown} more than {duration(found.seconds)} ago"
    if found.cause is not None:
        text += f"; {WHY_KEPT[found.cause]}"
    elif not found.has_removed:
        text += "; nothing has been removed since watching began"
    return text + _until_limit(found)


def _state(rows: float | None, size_bytes: float | None) -> str:
    """What is kept: ``1.2 M rows (38 GB)``, or one of the two; empty for nothing."""
    many = f"{amount(rows)} rows" if rows is not None and rows > 0 else ""
    large = size(size_bytes) if size_bytes is not None and size_bytes > 0 else ""
    return f"{many} ({large})" if many and large else many or large


def _until_limit(found: facts.StateGrowing) -> str:
    if found.limit_bytes is None or found.limit_seconds is None:
        return ""
    limit = f"its limit of {size(found.limit_bytes)} (state_limit_bytes)"
    if not found.limit_seconds:
        return f"; {limit} is reached"
    return f"; at this rate {limit} is reached in {duration(found.limit_seconds)}"


# -- lost and missing data ----------------------------------------------------------------------


@text_of.register
def _retention_used(found: facts.RetentionUsed) -> str:
    return retention_risk(found.risks[0]) + _in_total(found.count, "partitions")


def retention_risk(risk: facts.RetentionRisk) -> str:
    """Return how near the unread data of one partition, or table, is to its deletion."""
    if risk.lost:
        return (
            f"{risk.name}: {risk.lost} {risk.unit}s were deleted before they were read "
            f"(committed {risk.committed}, retained from {risk.earliest})"
        )
    if risk.gone:
        return f"{risk.name}: {risk.gone}"
    rest = "" if risk.left_seconds is None else f", at least {duration(risk.left_seconds)} left"
    if risk.oldest_seconds is None:
        return (
            f"{risk.name}: the unread backlog is {risk.used:.0%} of what the topic retains, "
            f"the retention edge is {risk.committed - risk.earliest} offsets behind{rest}"
        )
    unread = "record" if risk.unit == OFFSET else risk.unit
    setting = f" ({risk.setting})" if risk.setting else ""
    return (
        f"{risk.name}: {risk.used:.0%} of its retention time is used up{setting}, "
        f"the oldest unread {unread} is {duration(risk.oldest_seconds)} old{rest}"
    )


@text_of.register
def _skipped_by_sink(found: facts.SkippedBySink) -> str:
    count = "no batch" if not found.batches else "1 batch"
    if found.batches > 1:
        count = f"{found.batches:,} batches"
    return (
        f"{found.sink} has batches up to {found.until:,} of another checkpoint in its log, so "
        f"Spark skips those of this query: {count} read and not written so far; "
        f"it writes from batch {found.until + 1:,} on"
    )


@text_of.register
def _sink_remembers(found: facts.SinkRemembers) -> str:
    return f"{found.sink} remembers batch ids: {_batch_ids_went_back(found.ids)}"


@text_of.register
def _passed_over(found: facts.PassedOver) -> str:
    return gap_text(found.gaps[0]) + _in_total(found.count, "stretches")


def gap_text(gap: Gap) -> str:
    """Return which records or versions of a partition were not read, and where they are now."""
    counted, of_what = ("record", "offset ") if gap.unit == OFFSET else (gap.unit, "")
    records = f"{gap.records} {counted}{'s' if gap.records > 1 else ''}"
    span = f"{of_what}{gap.start}" + (f" to {gap.end - 1}" if gap.records > 1 else "")
    if gap.cause is Cause.DELETED:
        what = f"{records} from {span} were deleted before they were read"
        return f"{gap.partition}: {what} (retained from {gap.first})"
    if gap.cause is Cause.RECREATED:
        what = "the topic was deleted and created again"
        what += f"; of the new one, {records} from {span} are not read"
    else:
        what = f"{records} from {span} were not read: its new checkpoint begins at {gap.end}"
    if gap.is_gone:
        return f"{gap.partition}: {what}; they are deleted by now"
    if gap.first > gap.start:
        return f"{gap.partition}: {what}; those from {gap.unit} {gap.first} on are still retained"
    return f"{gap.partition}: {what}; they are still retained: start from {gap.unit} {gap.start}"


@text_of.register
def _folder_gone(found: facts.FolderGone) -> str:
    return (
        f"{found.folder} has not been there for {duration(found.seconds)}: "
        f"{found.source} finds nothing to read"
    )


@text_of.register
def _reads_nothing(found: facts.ReadsNothing) -> str:
    return (
        f"{found.source}: {found.batches} batches in a row read no rows in "
        f"{duration(found.seconds)}, although its offsets advance"
    )


SINCE = {
    facts.Since.LAST_ROWS: "",
    facts.Since.RUN_BEGAN: ", since its run began",
    facts.Since.EARLIER_RUNS: ", over restarts",
}


@text_of.register
def _no_rows(found: facts.NoRows) -> str:
    if found.sources:
        sources = [_dry_source(source) for source in found.sources]
        text = f"{listed(sources, MAX_DRY)}, while other sources had some"
    else:
        text = f"no rows read for {duration(found.seconds)}{SINCE[found.since]}"
    return f"{text} ({duration(found.allowed)} allowed)"


def _dry_source(source: facts.DrySource) -> str:
    which = f" ({source.number} of {source.alike})" if source.alike > 1 else ""
    text = f"no rows read for {duration(source.seconds)}{SINCE[source.since]}"
    return f"{source.description}{which}: {text}"


# -- the driver and the monitor -----------------------------------------------------------------


@text_of.register
def _jvm_ended(found: facts.JvmEnded) -> str:
    if found.queries is None:
        return JVM_ENDED
    if not found.queries:
        return f"{JVM_ENDED}; no query was running"
    names = listed(found.queries, MAX_DRIVER_QUERIES)
    return f"{JVM_ENDED}, and {_count_queries(len(found.queries))} with it: {names}"


@text_of.register
def _heap_full(found: facts.HeapFull) -> str:
    heap = found.memory.heap
    assert heap is not None, "the rule has read it"
    return f"garbage collection leaves {heap_text(heap)}{_filling(found.memory.heap_full)}"


@text_of.register
def _in_collection(found: facts.InCollection) -> str:
    share = found.memory.gc_share or 0.0
    text = f"garbage collection takes {share:.0%} of the time"
    heap = found.memory.heap
    if heap is None or heap.after_gc_bytes is None:
        return text
    return f"{text}, and leaves {heap_text(heap)}"


@text_of.register
def _container_full(found: facts.ContainerFull) -> str:
    container = found.memory.container
    assert container is not None, "the rule has read it"
    return f"{container_text(container)}{_filling(found.memory.container_full)}"


@text_of.register
def _disks_full(found: facts.DisksFull) -> str:
    return "; ".join(map(_disk_text, found.disks))


def _disk_text(found: facts.FullDisk) -> str:
    disk = found.disk
    text = f"{disk.path} ({listed(disk.holds)}) has {size(disk.free_bytes)} of "
    return f"{text}{size(disk.total_bytes)} left{_filling(found.full)}"


def heap_text(heap: Heap) -> str:
    """Return how much of the heap the last collection left in use."""
    left = heap.after_gc_bytes or 0
    share = left / heap.max_bytes
    return f"{share:.0%} of the heap in use ({size(left)} of {size(heap.max_bytes)})"


def container_text(container: Container) -> str:
    """Return how full the container is."""
    used = container.working_set_bytes
    share = used / container.limit_bytes
    limit = size(container.limit_bytes)
    return f"the container uses {share:.0%} of its memory ({size(used)} of {limit})"


def _filling(full: Full | None) -> str:
    text = full_text(full)
    return f"; at this rate it is full in {text}" if text else ""


def full_text(full: Full | None) -> str:
    """Return when it is full, and between what times; empty if that is unknown, or it is full."""
    if full is None or not full.seconds:
        return ""
    earliest, latest = duration(full.earliest), duration(full.latest)
    expected = duration(full.seconds)
    return expected if earliest == latest else f"{expected} ({earliest} to {latest})"


@text_of.register
def _events_missing(found: facts.EventsMissing) -> str:
    texts = []
    if found.late:
        texts.append(
            "the probe saw commits that no event reported "
            f"for {duration(found.late_seconds)}: {', '.join(found.late)}"
        )
    if found.dropped is not None:
        texts.append(f"Spark's listener queue has dropped {found.dropped} events")
    return "; ".join(texts)


@text_of.register
def _degraded(found: facts.Degraded) -> str:
    texts = []
    if found.failed_rules:
        texts.append(f"rules that fail: {', '.join(found.failed_rules)}")
    if found.silent_seconds is not None:
        texts.append(f"the JVM has not answered the probe for {duration(found.silent_seconds)}")
    if found.unread_checkpoints:
        unread = "; ".join(f"{label}: {why}" for label, why in found.unread_checkpoints)
        texts.append(f"checkpoints cannot be read: {unread}")
    return "; ".join(texts)


@text_of.register
def _reported(found: facts.Reported) -> str:
    return found.reason


# -- of a query without a finding ---------------------------------------------------------------


@text_of.register
def _not_evaluated(found: facts.NotEvaluated) -> str:
    if found.failure is None:
        return NOT_EVALUATED
    return f"{found.failure.reason}; {NOT_EVALUATED}"


@text_of.register
def _not_seen_yet(_: facts.NotSeenYet) -> str:
    return "expected, not seen yet"


@text_of.register
def _restarting(found: facts.Restarting) -> str:
    return found.why


@text_of.register
def _upstream(found: facts.Upstream) -> str:
    return f"upstream {cut_off_by(found)}"


def cut_off_by(found: facts.Upstream) -> str:
    """Return which query gives no data, and why: "bronze failed"."""
    return f"{found.query} {STATES[found.state]}"


# -- several findings in one --------------------------------------------------------------------


def cause_text(cause: SharedCause, failure: Failure | None = None) -> str:
    """Return what several queries have in common; of a session, what its ``failure`` says."""
    if cause is SharedCause.SESSION_ENDED:
        return SESSION_GONE if failure is None else failure.message
    return CAUSES[cause]


def cause_of(found: facts.ShareCause) -> str:
    """Return what the queries of the finding have in common."""
    first = found.members[0].facts
    if isinstance(first, facts.SessionExpired):
        return expired_text(first.session)
    failure = first.failure if isinstance(first, facts.Failed) else None
    return cause_text(found.cause, failure)


@text_of.register
def _share_cause(found: facts.ShareCause) -> str:
    names = sorted(member.query for member in found.members)
    return f"{cause_of(found)}: {', '.join(names)}"


@text_of.register
def _unnamed(found: facts.Unnamed) -> str:
    return f"{count_unnamed(found)}{found.newest.query}: {reason_of(found.newest.facts)}"


def count_unnamed(found: facts.Unnamed) -> str:
    """Return how many queries the finding is about, before the name of the newest."""
    return "" if found.count == 1 else f"{found.count} queries without a name, the newest "


def members_text(members: Sequence[facts.Member], count: int = 0) -> str:
    """Return a line for each query, and how many more of ``count`` there are."""
    lines = [f"{member.query}: {reason_of(member.facts)}" for member in members]
    if count > len(members):
        lines.append(f"and {count - len(members)} more")
    return "\n".join(lines)
