"""What the probe, the second witness, has seen: frozen records, no JVM behind them."""

from __future__ import annotations

import re
from enum import Enum

import msgspec

from .events import Progress, Terminated
from .job_counts import JobCounts, SlotUse

UNKNOWN_TRIGGER = "Unknown"
"""The kind of a trigger that Spark refuses to name."""

_TRIGGER = re.compile(r"(\w+?)(?:Trigger)?(?:\((\d+)\))?")
_TRIGGER_NAMES = {"OneTime": "Once"}


class Trigger(msgspec.Struct, frozen=True):
    """A query's trigger: ``kind`` as in Spark's API, ``interval_seconds`` 0 where it has none."""

    kind: str
    interval_seconds: float = 0.0

    @property
    def ends_by_itself(self) -> bool:
        """Whether a clean end is this trigger's nature (``once``, ``availableNow``)."""
        return self.kind in ("Once", "AvailableNow")

    @property
    def is_known(self) -> bool:
        """Whether Spark named it: of an unknown one nobody knows whether it should end."""
        return self.kind != UNKNOWN_TRIGGER

    @property
    def is_continuous(self) -> bool:
        """Whether there are neither events nor batches, only epochs in the commit log."""
        return self.kind == "Continuous"

    @property
    def is_real_time(self) -> bool:
        """Whether each batch lasts as long as the interval says."""
        return self.kind == "RealTime"

    def __str__(self) -> str:
        if not self.interval_seconds:
            return self.kind
        return f"{self.kind}({self.interval_seconds:g} s)"


def parse_trigger(text: str) -> Trigger:
    """Read ``StreamExecution.trigger().toString()``, such as ``ProcessingTimeTrigger(10000)``."""
    match = _TRIGGER.fullmatch(text)
    if match is None:
        return Trigger(text)
    kind = _TRIGGER_NAMES.get(match.group(1), match.group(1))
    return Trigger(kind, int(match.group(2) or 0) / 1000)


def short_sink(text: str) -> str:
    """Shorten a sink's ``toString()``: class names lose their package, objects their address."""
    text = text.partition("@")[0]
    if re.fullmatch(r"[\w.$]+", text):
        return text.rstrip("$").rpartition(".")[2]
    return text


class RunFacts(msgspec.Struct, frozen=True):
    """What never changes in one run of a query."""

    query_id: str
    run_id: str
    name: str | None
    trigger: Trigger
    sink: str
    checkpoint: str
    async_progress: bool = False
    """Whether a progress event may come before its commit is written
    (``asyncProgressTrackingEnabled``)."""
    log_interval_seconds: float = 0.0
    """How rarely async progress tracking writes its logs."""
    session: str = ""
    """``sessionUUID`` of the session that started the query; empty where Spark refuses it."""


class JobActivity(msgspec.Struct, frozen=True):
    """The Spark jobs of a run that is busy for long, and the lines its threads are at.

    ``own`` are the jobs that name the query. ``unowned`` name no query: a thread pool in
    ``foreachBatch`` starts such jobs, and so does any other code of the application.
    """

    own: JobCounts = JobCounts()
    unowned: JobCounts = JobCounts()
    counted: bool = False
    """Whether Spark's scheduler reported each job and task. Otherwise these are the jobs that the
    status tracker still knows: ``jobs_started`` is one more than the highest job id, tasks are
    those of active jobs, and both fall when Spark forgets old jobs."""
    jvm_stack: tuple[str, ...] = ()
    python_line: str = ""
    waits_for_log: bool = False
    """Whether the query waits for its checkpoint's log to be written (async progress tracking)."""
    slots: SlotUse | None = None
    """Asked while its jobs are active and none of their tasks runs; None where Spark refuses."""

    @property
    def jobs(self) -> JobCounts:
        """Its own jobs; while none of them is active, those that name no query may be its own."""
        return self.own if self.own.jobs_active or not self.unowned.jobs_active else self.unowned

    def moved_since(self, before: JobActivity) -> bool:
        """Whether a job began or a task finished since ``before``.

        Unowned jobs count only while no job of its own is active: one that hangs is not
        excused by the work of others.
        """
        if self.counted != before.counted:
            return False
        if _mark(self.own) > _mark(before.own):
            return True
        return not self.own.jobs_active and _mark(self.unowned) > _mark(before.unowned)


def _mark(counts: JobCounts) -> tuple[int, int]:
    """What grows when jobs begin and tasks finish."""
    return counts.jobs_started, counts.tasks_completed


class ProbedRun(msgspec.Struct, frozen=True):
    """One look at one run; ``batch_id`` is the batch in flight, or the next one."""

    facts: RunFacts
    active: bool
    message: str = ""
    trigger_active: bool = False
    data_available: bool = False
    batch_id: int | None = None
    committed_offsets: str = ""
    available_offsets: str = ""
    """Where its planned batch ends; asked of a run that is polled closely, or has ended."""
    last_progress_mark: str = ""
    idle_progress: Progress | None = None
    """What Spark recorded of its newest trigger without a batch; such a progress is no event."""
    work: JobActivity | None = None
    exception: str | None = None
    error_class: str | None = None

    @property
    def end_event(self) -> Terminated:
        """The end of this run, as an event would report it."""
        return Terminated(self.facts.query_id, self.facts.run_id, self.exception, self.error_class)

    @property
    def planning(self) -> bool:
        """Busy before a batch exists: initialising, or asking a source for its offsets."""
        return self.message.startswith(("Getting offsets", "Initializing"))

    @property
    def processing(self) -> bool:
        """A batch is planned and not yet committed."""
        return self.trigger_active and not self.planning

    @property
    def waiting_without_data(self) -> bool:
        """Proof of idleness: the last trigger asked all sources and found nothing new."""
        waiting = self.active and self.message.startswith("Waiting for")
        return waiting and not self.trigger_active and not self.data_available


class Context(str, Enum):
    """The SparkContext as the probe sees it."""

    RUNNING = "running"
    STOPPED_BY_APPLICATION = "stopped_by_application"
    STOPPED = "stopped"
    """It stopped by itself."""
    TERMINATED = "terminated"
    """A signal to the JVM has stopped it: its shutdown hooks run."""
    JVM_GONE = "jvm_gone"
    """The process that ran Spark has ended, and all queries with it."""

    @property
    def explains_ends(self) -> bool:
        """Whether the end of a query is no news of its own any more."""
        return self.is_on_purpose or self is Context.JVM_GONE

    @property
    def is_on_purpose(self) -> bool:
        """Whether the application has stopped it, or a signal: somebody wanted it to end."""
        return self in (Context.STOPPED_BY_APPLICATION, Context.TERMINATED)


class ListenerHealth(msgspec.Struct, frozen=True):
    """Whether Spark still knows our listener: it removes one silently after an interrupt."""

    registered: bool = False
    reregistrations: int = 0
    dropped_events: int | None = None
    """What Spark's listener queue has dropped since Spark's start, of whatever kind
    (``queue.querypulse.numDroppedEvents``); None where that is not known."""


class ProbeReport(msgspec.Struct, frozen=True):
    """All runs of all sessions of one SparkContext, living and lately ended.

    Every report is complete, so only the newest one matters.
    """

    began_at: float
    at: float
    runs: tuple[ProbedRun, ...]
    context: Context = Context.RUNNING
    listener: ListenerHealth = ListenerHealth()
