"""What the probe, the second witness, has seen: frozen records, no JVM behind them."""

from __future__ import annotations

import re
from enum import Enum

import msgspec

from .events import Progress

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
    def is_continuous(self) -> bool:
        """Whether there are neither events nor batches, only epochs in the commit log."""
        return self.kind == "Continuous"

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


class Work(msgspec.Struct, frozen=True):
    """The Spark jobs of a run (its job group is its run id), and where its batch stands.

    ``jobs_known`` counts those Spark has not forgotten (``spark.ui.retainedJobs``), which says
    nothing of work being done; ``newest_job`` is the highest id, -1 where there is none.
    """

    jobs_known: int = 0
    newest_job: int = -1
    tasks_completed: int = 0
    tasks_active: int = 0
    jvm_stack: tuple[str, ...] = ()
    python_line: str = ""
    waits_for_log: bool = False
    """Whether the query waits for its checkpoint's log to be written (async progress tracking)."""

    @property
    def mark(self) -> tuple[int, int]:
        """What grows when jobs begin and tasks finish; it falls when Spark forgets old ones."""
        return self.newest_job, self.tasks_completed


class ProbedRun(msgspec.Struct, frozen=True):
    """One look at one run; ``batch_id`` is the batch in flight, or the next one."""

    facts: RunFacts
    active: bool
    message: str = ""
    trigger_active: bool = False
    data_available: bool = False
    batch_id: int | None = None
    committed_offsets: str = ""
    last_progress_mark: str = ""
    idle_progress: Progress | None = None
    """What Spark recorded of its newest trigger without a batch; such a progress is no event."""
    work: Work | None = None
    exception: str | None = None
    error_class: str | None = None

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


class ListenerHealth(msgspec.Struct, frozen=True):
    """Whether Spark still knows our listener: it removes one silently after an interrupt."""

    registered: bool = False
    reregistrations: int = 0
    dropped_events: int = 0
    """What Spark's listener queue has dropped since its start, of whatever kind
    (``queue.streams.numDroppedEvents``)."""


class ProbeReport(msgspec.Struct, frozen=True):
    """All runs of all sessions of one SparkContext, living and lately ended.

    Every report is complete, so only the newest one matters.
    """

    began_at: float
    at: float
    runs: tuple[ProbedRun, ...]
    context: Context = Context.RUNNING
    listener: ListenerHealth = ListenerHealth()
