"""A plan: its queries, and timed steps. It consists of values only, so that it can be shrunk."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

STEPS = {
    "start": "the application starts the query",
    "die": "its run fails with an exception (arg: its class)",
    "fail_first": "the next run fails in its first milliseconds",
    "restart": "the application starts it again (arg 'new': with a new checkpoint)",
    "stop": "it is stopped without an announcement",
    "plan_stop": "it is stopped after expect_stop",
    "hang": "its batch hangs for this long; no task finishes",
    "decay": "its batches take longer and longer for this long, up to that many times (arg)",
    "crawl": "its batch is slow for this long; tasks finish",
    "compute": "its batch is slow for this long; its thread works, and no job of it is active",
    "skew": "one task of its batch runs for this long; no other task finishes",
    "starve": "its job waits for this long because another query holds all slots",
    "fan_out": "its batch is slow for this long; its jobs run in a thread pool and name no query",
    "ask": "it waits for offsets from its source for this long",
    "lag": "its source grows faster than it reads for this long",
    "stall": "its batches read nothing for this long although there is unread data",
    "rewind": "its offsets go back, and stay there for this long",
    "log_stuck": "its commit log is not written for this long (async progress tracking)",
    "unreadable": "its checkpoint cannot be read for this long",
    "dry": "its source is empty for this long",
    "bad_batch": "its batch fails in each run of each process, for this long",
    "bad_runs": "its runs commit, and fail some seconds (arg) after their start, for this long",
    "crash_loop": "every new run fails at once for this long (arg: seconds between runs)",
    "delay": "its events are late by this much (arg: for how long)",
    "drop": "its events are lost for this long",
    "repeat": "its events arrive twice for this long",
    "probe_refused": "the probe gets no answer for this long",
    "probe_partial": "the probe reports the query as last seen for this long",
    "probe_misses": "one poll of the probe lacks the query",
    "jvm_pause": "the JVM pauses for this long",
    "pause": "JVM and Python pause for this long (SIGSTOP)",
    "receiver": "a receiver (who) misbehaves for this long (arg: how)",
    "poison": "a receiver (who) answers 400 to the next message only",
    "acknowledge": "somebody acknowledges all open incidents",
    "silence": "alerts of a query are silenced for this long (arg: alert name)",
    "jump": "the wall clock jumps by this much",
    "kill": "the driver (who) is killed",
    "kill_within": "the driver is killed at one of the next moments between two of its steps (arg: which)",
    "no_executors": "the driver (who) has no executors for this long",
    "close": "the driver's application ends normally",
    "raise": "the driver's application ends by an exception",
    "terminate": "the driver's JVM gets SIGTERM, and Python ends this much later",
    "jvm_crash": "the driver's JVM ends, Python stays",
    "context_dies": "the SparkContext stops by itself",
    "app_stops": "the application stops its SparkContext, which takes this long",
    "boot": "the driver restarts",
    "late": "an event of a run long ago arrives (arg: how many runs ago, and which kind)",
}


CAUSES = (
    "io.delta.exceptions.ConcurrentAppendException",
    "java.lang.OutOfMemoryError",
    "java.net.ConnectException",
)
"""Classes of exceptions; the first one unless a step names another."""


class QuerySpec(msgspec.Struct, frozen=True):
    """One query as its owner sees it, over all its runs and checkpoints.

    ``every`` is its trigger interval, ``takes`` the length of a batch, in seconds. After
    ``recovers`` seconds, a supervisor restarts it after a failure (0: never); after ``loop``
    seconds, it is restarted after a completed run.
    """

    key: str
    name: str | None
    trigger: str = "ProcessingTime"
    every: float = 5.0
    takes: float = 1.0
    session: str = "s1"
    driver: str = "d1"
    recovers: float = 0.0
    loop: float = 0.0
    checkpoint: str = "kept"
    expected: bool = False
    log_every: float = 0.0
    """The interval in which async progress tracking writes its logs; 0: at each batch."""
    expected_input: float = 0.0
    """``expected_input_seconds`` for its name; 0: no data is expected."""

    @property
    def is_continuous(self) -> bool:
        """Whether no event reports its commits."""
        return self.trigger == "Continuous"

    @property
    def needs_log(self) -> bool:
        """Whether only its commit log shows its progress."""
        return self.is_continuous or self.log_every > 0.0

    @property
    def is_finite(self) -> bool:
        """Whether its runs end by themselves."""
        return self.trigger in ("AvailableNow", "Once")


class Step(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that happens ``at`` this many seconds after the beginning."""

    at: float
    do: str
    who: str = ""
    seconds: float = 0.0
    arg: str = ""

    def __str__(self) -> str:
        lasts = f" for {self.seconds:g} s" if self.seconds else ""
        how = f" ({self.arg})" if self.arg else ""
        return f"{self.at:7.1f} s  {self.do} {self.who}{lasts}{how}"


class Setup(msgspec.Struct, frozen=True, omit_defaults=True):
    """The surroundings of the queries; ``receivers`` are kinds of receivers, in order."""

    receivers: tuple[str, ...] = ("pagerduty",)
    drivers: tuple[str, ...] = ("d1",)
    app: str = "etl"
    """The app name of all drivers ..."""
    apart: bool = False
    """... unless each has its own: then their queries may have the same names."""
    polls: float = 0.0
    """How long a poll of the probe takes."""
    dated: bool = False
    """Whether start events have a timestamp."""
    spool: bool = True
    watched: bool = False
    attach_at: float = 0.0
    memory: int = 1000
    """How many ended queries are remembered: small numbers bring the bound into reach."""
    slow_critical: float = 1800.0
    """``slow_critical_seconds``: small numbers bring critical alerts into reach."""
    failed_grace: float = 0.0
    """``failed_grace_seconds``."""
    broken_rule: str = ""
    """The module of a rule that raises."""
    mailbox: int = 2000
    """How many progress events may be queued for the worker."""


class Plan(msgspec.Struct, frozen=True):
    """The complete plan of one history: running it twice gives the same result."""

    seed: int
    horizon: float
    queries: tuple[QuerySpec, ...]
    steps: tuple[Step, ...]
    setup: Setup = Setup()

    def lacking(self, *, step: int | None = None, query: str | None = None) -> Plan:
        """The plan without one of its steps, or without one of its queries."""
        if query is not None:
            kept = tuple(one for one in self.steps if one.who != query)
            queries = tuple(one for one in self.queries if one.key != query)
            return replace(self, queries=queries, steps=kept)
        return replace(self, steps=tuple(s for i, s in enumerate(self.steps) if i != step))

    def __str__(self) -> str:
        lines = [f"seed {self.seed}, {self.horizon:g} s, {self.setup}"]
        lines += [f"  {query}" for query in self.queries]
        return "\n".join(lines + [f"  {step}" for step in self.steps])
