"""The second signal, the probe: what one poll of Spark reports about each run of a query."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum

import msgspec
from msgspec.structs import replace

from .events import Progress, Terminated, decode_progress
from .foresight.phases import Phase
from .foresight.resources import Heap
from .foresight.tasks import QueryTasks, TaskSums
from .state.flow import PlanDatasets

UNOWNED = ""
"""The key of jobs without a query id, such as jobs of thread pools in ``foreachBatch``."""


NO_JOB = 2**31 - 1
"""Larger than the id of any job."""


class LongTask(msgspec.Struct, frozen=True, gc=False):
    """The task that has run for longest; ``usual_seconds`` is the median of its stage's others.

    ``as_long`` further tasks have run at least half as long.
    """

    stage: int
    partition: int
    host: str
    seconds: float
    usual_seconds: float | None = None
    as_long: int = 0


class JobCounts(msgspec.Struct, frozen=True, gc=False):
    """One query's jobs and tasks since counting began; started and completed only grow."""

    jobs_started: int = 0
    jobs_active: int = 0
    tasks_completed: int = 0
    tasks_active: int = 0
    longest: LongTask | None = None
    """Of the running tasks, where they are counted."""


class LostExecutors(msgspec.Struct, frozen=True, gc=False):
    """How many seconds ago executors were lost, and why the last one was, as Spark says it.

    Those that dynamic allocation removes in order are not among them; of many, the last 100 are.
    """

    seconds_ago: tuple[float, ...] = ()
    reason: str = ""


NONE_LOST = LostExecutors()


class CountedJobs(msgspec.Struct, frozen=True, gc=False):
    """The counts by query id, ``UNOWNED`` for jobs without one."""

    by_query: Mapping[str, JobCounts] = {}
    first_job: int = NO_JOB
    """The id of the first counted job; older jobs, which may still run, are not counted."""
    lost: LostExecutors = NONE_LOST


class SlotUse(msgspec.Struct, frozen=True, gc=False):
    """How many tasks the executors can run at once, and which other tasks run now."""

    total: int
    taken: int = 0
    """Running tasks of all other queries and jobs."""
    holder: str = UNOWNED
    """The id of the query that runs most of these; ``UNOWNED`` for jobs without a query id."""
    held: int = 0
    """How many tasks the holder runs."""


UNKNOWN_TRIGGER = "Unknown"
"""The kind of a trigger that Spark refuses to name."""

_TRIGGER = re.compile(r"(\w+?)(?:Trigger)?(?:\((\d+)\))?")
_IDENTITY = re.compile(r"@[0-9a-f]+$")
_TRIGGER_NAMES = {"OneTime": "Once"}


class Trigger(msgspec.Struct, frozen=True):
    """A query's trigger: ``kind`` as in Spark's API, ``interval_seconds`` 0 without an interval."""

    kind: str
    interval_seconds: float = 0.0

    @property
    def ends_by_itself(self) -> bool:
        """Whether a query with this trigger ends by itself (``once``, ``availableNow``)."""
        return self.kind in ("Once", "AvailableNow")

    @property
    def is_known(self) -> bool:
        """Whether Spark named the trigger; without a name it is unknown whether it should end."""
        return self.kind != UNKNOWN_TRIGGER

    @property
    def is_continuous(self) -> bool:
        """Whether the query has no events and no batches, only epochs in the commit log."""
        return self.kind == "Continuous"

    @property
    def is_real_time(self) -> bool:
        """Whether each batch lasts as long as the interval."""
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
    """A sink's ``toString()`` without the package of a class or the address of an object."""
    text = _IDENTITY.sub("", text)
    if re.fullmatch(r"[\w.$]+", text):
        return text.rstrip("$").rpartition(".")[2]
    return text


_TEMPORARY = re.compile(r"/temporary-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}/?$")
"""``Utils.createTempDir(namePrefix = "temporary")``, where no ``checkpointLocation`` is set."""


def is_temporary(checkpoint: str) -> bool:
    """Whether Spark made a checkpoint folder for one run."""
    return _TEMPORARY.search(checkpoint) is not None


class RunFacts(msgspec.Struct, frozen=True):
    """The facts that never change during one run of a query."""

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
    """The interval at which async progress tracking writes its logs."""
    session: str = ""
    """``sessionUUID`` of the session that started the query; empty where Spark refuses it."""
    plan: PlanDatasets = PlanDatasets()
    """The places that only the query's plan shows."""

    @property
    def is_temporary(self) -> bool:
        """Whether its checkpoint is lost with the run: no ``checkpointLocation`` is set."""
        return is_temporary(self.checkpoint)


WORKS_SECONDS = 0.0002
"""A thread that uses less CPU time than this from one poll to the next does not work.

Of a blocked call it is none; one request over HTTP takes half a millisecond.
"""
JVM_WORKS_SHARE = 0.0005
"""A thread of Spark that uses less than this share of a CPU may only try again.

Waiting for the lock of an Iceberg table takes 0.2 ms each five seconds, a tenth of this, and to
poll a remote job takes about as much; listing files over HTTP takes ten times as much.
"""


class Moves(str, Enum):
    """What shows that a batch makes progress."""

    TASKS = "tasks"
    PYTHON = "python"
    DRIVER = "driver"


class JobActivity(msgspec.Struct, frozen=True):
    """The Spark jobs of a run that has been busy for long, and the lines its threads are at.

    ``own`` are the jobs with the query's id. ``unowned`` jobs have no query id: a thread pool in
    ``foreachBatch`` starts such jobs, and so does any other code of the application.
    """

    own: JobCounts = JobCounts()
    unowned: JobCounts = JobCounts()
    counted: bool = False
    """Whether Spark's scheduler reported each job and task. Otherwise these are the jobs that the
    status tracker still has: ``jobs_started`` is one more than the highest job id, tasks are
    those of active jobs, and both decrease when Spark removes old jobs."""
    jvm_stack: tuple[str, ...] = ()
    phase: Phase | None = None
    """The phase of the batch that the stack shows."""
    python_line: str = ""
    jvm_cpu_seconds: float | None = None
    """CPU time of the run's thread in the JVM since that began; None where the JVM does not say."""
    python_cpu_seconds: float | None = None
    """CPU time of the Python thread that runs its ``foreachBatch`` function, of its child processes
    and of the threads that it waits for too."""
    waits_outside: bool = False
    """Whether its function waits for a process or socket: nothing in Spark works for it then, and
    unowned jobs are those of others."""
    waits_for_log: bool = False
    """Whether the query waits for its checkpoint's log to be written (async progress tracking)."""
    slots: SlotUse | None = None
    """Polled while its jobs are active and none of their tasks runs; None if Spark refuses."""
    lost: LostExecutors = NONE_LOST
    """Those of the application, where its jobs are counted."""

    @property
    def jobs(self) -> JobCounts:
        """Its own jobs; while none of them is active, jobs without a query id may be its own."""
        may_be_own = self.unowned.jobs_active and not self.waits_outside
        return self.unowned if may_be_own and not self.own.jobs_active else self.own

    @property
    def has_cpu_times(self) -> bool:
        """Whether the CPU time of the thread that runs the batch is known."""
        in_python = self.python_cpu_seconds is not None or not self.python_line
        return in_python and self.jvm_cpu_seconds is not None

    def moved_since(self, before: JobActivity) -> Moves | None:
        """What has moved since ``before``: a job started, a task finished, or Python worked.

        Unowned jobs, and Python, count only while no job of its own is active, so that the work of
        others does not hide a job that hangs.
        """
        counts = self.counted == before.counted
        if counts and _mark(self.own) > _mark(before.own):
            return Moves.TASKS
        if self.own.jobs_active:
            return None
        are_of_others = self.waits_outside or before.waits_outside
        if counts and not are_of_others and _mark(self.unowned) > _mark(before.unowned):
            return Moves.TASKS
        worked = _has_used(self.python_cpu_seconds, before.python_cpu_seconds, WORKS_SECONDS)
        return Moves.PYTHON if worked else None

    def works_in_jvm(self, cpu_seconds: float | None, seconds: float) -> bool:
        """Whether the run's thread worked in the last ``seconds``, since it had used that time.

        Over 0 seconds any CPU time counts, so that a thread that only tries again is shown too.
        """
        enough = max(WORKS_SECONDS, JVM_WORKS_SHARE * seconds)
        return not self.own.jobs_active and _has_used(self.jvm_cpu_seconds, cpu_seconds, enough)


def _has_used(now: float | None, before: float | None, enough: float) -> bool:
    return now is not None and before is not None and now - before >= enough


def _mark(counts: JobCounts) -> tuple[int, int]:
    """The counts that grow when jobs start and tasks finish."""
    return counts.jobs_started, counts.tasks_completed


class ProbedRun(msgspec.Struct, frozen=True):
    """One poll of one run; ``batch_id`` is the batch in flight, or the next one."""

    facts: RunFacts
    active: bool
    message: str = ""
    trigger_active: bool = False
    data_available: bool = False
    stopping: bool = False
    """Whether it was stopped without an exception, and its thread goes on."""
    batch_id: int | None = None
    committed_offsets: str = ""
    available_offsets: str = ""
    """Where its planned batch ends; read only when its jobs are polled or it has ended."""
    last_progress_mark: str = ""
    idle_progress: Progress | None = None
    """The progress of its newest trigger, if that had no batch: Spark sends no event for it."""
    work: JobActivity | None = None
    tasks: QueryTasks | None = None
    """What the finished tasks of its query did; None before the first, or if none is counted."""
    exception: str | None = None
    error_class: str | None = None

    @property
    def end_event(self) -> Terminated:
        """The end of this run, as an event would report it."""
        return Terminated(self.facts.query_id, self.facts.run_id, self.exception, self.error_class)

    @property
    def planning(self) -> bool:
        """Busy before a batch exists: initializing, or asking a source for its offsets."""
        return self.message.startswith(("Getting offsets", "Initializing"))

    @property
    def processing(self) -> bool:
        """A batch is planned and not yet committed."""
        return self.trigger_active and not self.planning

    @property
    def has_batch_id(self) -> bool:
        """Whether it has recovered from its checkpoint: until then, Spark reports -1."""
        return self.batch_id is not None and self.batch_id >= 0

    @property
    def waiting(self) -> bool:
        """Whether it waits for its next trigger."""
        return self.message.startswith("Waiting for") and not self.trigger_active

    @property
    def waiting_without_data(self) -> bool:
        """Proof that it is idle: the last trigger asked all sources and found nothing new."""
        return self.active and self.waiting and not self.data_available


class Context(str, Enum):
    """The SparkContext as the probe sees it."""

    RUNNING = "running"
    STOPPED_BY_APPLICATION = "stopped_by_application"
    STOPPED = "stopped"
    """It stopped by itself."""
    TERMINATED = "terminated"
    """A signal to the JVM stopped it: the JVM's shutdown hooks run."""
    JVM_GONE = "jvm_gone"
    """The process that ran Spark has ended, and all queries with it."""
    SESSION_ENDED = "session_ended"
    """The server has ended the Spark Connect session, or lost it, without the application's wish:
    each query that ran has failed."""

    @property
    def explains_ends(self) -> bool:
        """Whether it explains why a query ended."""
        return self.is_on_purpose or self is Context.JVM_GONE

    @property
    def is_on_purpose(self) -> bool:
        """Whether the application or a signal stopped it, so that the end is intended."""
        return self in (Context.STOPPED_BY_APPLICATION, Context.TERMINATED)


class FullQueue(msgspec.Struct, frozen=True):
    """A queue of Spark's listener bus that has dropped events of other listeners than ours."""

    name: str
    dropped: int
    """Events of any kind, since the attach."""
    busy: str
    """The listener last seen at work meanwhile; empty if none was."""
    listeners: tuple[str, ...]
    """The classes of all others on this queue; one in Python has none that Java knows."""

    def __str__(self) -> str:
        culprit = f" while {self.busy} was at work" if self.busy else ""
        listeners = ", ".join(self.listeners)
        return (
            f"Spark has dropped {self.dropped} events of its listener queue {self.name}{culprit}; "
            f"other listeners on it: {listeners}"
        )


class ListenerHealth(msgspec.Struct, frozen=True):
    """Whether our listener is registered; Spark silently removes a listener after an interrupt."""

    registered: bool = False
    reregistrations: int = 0
    dropped_events: int | None = None
    """Events of any kind that Spark's listener queue has dropped since Spark started
    (``queue.querypulse.numDroppedEvents``); None if unknown."""
    missing: tuple[str, ...] = ()
    """What this way of listening cannot show, a line each; empty for a classic driver."""
    checkpoints_visible: bool = True
    """Whether the logs of checkpoints can be read at all from here."""
    full_queues: tuple[FullQueue, ...] = ()
    """Empty where only our own listener misses events."""


class SchedulerLoop(msgspec.Struct, frozen=True):
    """The event loop of Spark's scheduler: it starts every job, and takes the end of every task."""

    alive: bool = True
    waits_seconds: float = 0.0
    """For how long its oldest event has been waiting, as far as polls have seen."""


class SessionEnd(msgspec.Struct, frozen=True, gc=False):
    """The end of a session in a Spark Connect server, seen from that server."""

    at: float
    """When it ended, in monotonic seconds."""
    session: str
    """The client's id of it."""
    user: str
    idle_seconds: float
    """For how long its client had made no call by then."""
    allowed_seconds: float
    """For how long a client may make no call; negative: for ever."""

    @property
    def is_expired(self) -> bool:
        """Whether the server ended it, because its client was gone; else a client did."""
        return 0 <= self.allowed_seconds <= self.idle_seconds


class ProbeReport(msgspec.Struct, frozen=True):
    """All runs of all sessions of one SparkContext, active and recently ended.

    Every report is complete, so only the newest one matters.
    """

    began_at: float
    at: float
    runs: tuple[ProbedRun, ...]
    context: Context = Context.RUNNING
    listener: ListenerHealth = ListenerHealth()
    scheduler: SchedulerLoop | None = None
    """None where Spark does not show it."""
    unowned_tasks: TaskSums | None = None
    """What the tasks of jobs without a query id did; None where they are not counted."""
    heap: Heap | None = None
    """The newest reading; None where the JVM does not show it."""
    session_ends: Mapping[str, SessionEnd] | None = None
    """The newest ends of Spark Connect's sessions, by ``sessionUUID``; None where this JVM serves
    none, or does not show how they end."""
    previous_at: float | None = None
    """``at`` of the report before this one."""

    @property
    def is_calm(self) -> bool:
        """Whether no run is in one batch for so long that its jobs are polled."""
        return all(run.work is None for run in self.runs if run.active)


def with_idle_progress(seen: ProbedRun, text: str, before: ProbedRun) -> ProbedRun:
    """The run with its newest progress without a batch, while no batch came after it.

    ``text`` is the newest progress as JSON; empty when it has not changed since ``before``. Spark
    writes one without a batch at most every ``noDataProgressEventInterval`` (10 s).
    """
    progress = decode_progress(text) if text else None
    if progress is None and seen.batch_id == before.batch_id:
        progress = before.idle_progress
    has_batch = progress is None or progress.committed
    return replace(seen, idle_progress=None if has_batch else progress)
