"""A plan: which queries there are, and what happens when. Values only, so that it can be shrunk."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

STEPS = {
    "start": "the application starts the query",
    "die": "its run fails with an exception (arg: the error)",
    "fail_first": "the next run fails in its first milliseconds",
    "restart": "the application starts it again (arg 'new': with a new checkpoint)",
    "stop": "it is stopped, and nobody announced it",
    "plan_stop": "it is stopped after expect_stop",
    "hang": "its batch hangs for so long, no task finishes",
    "crawl": "its batch is slow for so long, tasks finish",
    "skew": "one task of its batch runs for so long, and no other finishes",
    "starve": "its job waits for so long, because another query holds all slots",
    "fan_out": "its batch is slow for so long, its jobs run in a thread pool and name no query",
    "ask": "it asks its source for offsets for so long",
    "lag": "its source grows faster than it reads for so long",
    "stall": "its batches come for so long, and read nothing though data waits",
    "rewind": "its offsets go back, and stay there for so long",
    "log_stands": "its commit log is not written for so long (async progress tracking)",
    "unreadable": "its checkpoint cannot be read for so long",
    "dry": "its source is empty for so long",
    "bad_batch": "its batch fails in each run, whichever process runs it, for so long",
    "bad_runs": "its runs commit, and fail so many seconds (arg) after their start, for so long",
    "crash_loop": "every new run fails at once for so long (arg: seconds between runs)",
    "delay": "its events come late by so much (arg: for how long)",
    "drop": "its events are lost for so long",
    "repeat": "its events come twice for so long",
    "probe_refused": "the probe gets no answer for so long",
    "probe_partial": "the probe reports the query as last seen for so long",
    "probe_misses": "one poll of the probe lacks the query",
    "jvm_pause": "the JVM stands still for so long",
    "pause": "JVM and Python stand still for so long (SIGSTOP)",
    "receiver": "a receiver (who) misbehaves for so long (arg: how)",
    "poison": "a receiver (who) answers 400 to the next message, and to that one only",
    "acknowledge": "somebody acknowledges what is open",
    "silence": "alerts of a query are silenced for so long (arg: alert name)",
    "jump": "the wall clock jumps by so much",
    "kill": "the driver (who) is killed",
    "close": "the driver's application ends in good order",
    "raise": "the driver's application ends by an exception",
    "terminate": "the driver's JVM gets SIGTERM, and Python ends so much later",
    "jvm_crash": "the driver's JVM ends, Python stays",
    "context_dies": "the SparkContext stops by itself",
    "app_stops": "the application stops its SparkContext, which takes so long",
    "boot": "the driver is started again",
    "late": "an event of a run long ago comes (arg: how many runs ago)",
}


class QuerySpec(msgspec.Struct, frozen=True):
    """One query as its owner sees it, whatever runs and checkpoints it goes through.

    ``every`` is its trigger interval, ``takes`` the length of a batch, in seconds. ``recovers``
    is after how many seconds a supervisor starts it again (0: nobody does); ``loop`` is after
    how many seconds it is started again once it has completed.
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
    """After how many seconds async progress tracking writes its logs; 0: at each batch."""
    expected_input: float = 0.0
    """``expected_input_seconds`` for its name; 0: no data has to come."""

    @property
    def is_continuous(self) -> bool:
        """Whether no event tells of its commits."""
        return self.trigger == "Continuous"

    @property
    def needs_log(self) -> bool:
        """Whether only its commit log says what it has done."""
        return self.is_continuous or self.log_every > 0.0

    @property
    def is_finite(self) -> bool:
        """Whether its runs end by themselves."""
        return self.trigger in ("AvailableNow", "Once")


class Step(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that happens ``at`` so many seconds after the beginning."""

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
    """What surrounds the queries; ``receivers`` are kinds of receivers, in order."""

    receivers: tuple[str, ...] = ("pagerduty",)
    drivers: tuple[str, ...] = ("d1",)
    app: str = "etl"
    """What all drivers are called."""
    spool: bool = True
    watched: bool = False
    attach_at: float = 0.0
    memory: int = 1000
    """How many queries that are gone are remembered: small numbers bring the bound into reach."""
    slow_critical: float = 1800.0
    """``slow_critical_seconds``: small numbers bring what is critical into reach."""
    failed_grace: float = 0.0
    """``failed_grace_seconds``."""
    mailbox: int = 2000
    """How many progress events may wait for the worker."""


class Plan(msgspec.Struct, frozen=True):
    """One history to be, complete: running it twice gives the same."""

    seed: int
    horizon: float
    queries: tuple[QuerySpec, ...]
    steps: tuple[Step, ...]
    setup: Setup = Setup()
    without: frozenset[str] = frozenset()
    """Findings that are known, whose promises are not asked for; see ``exclusions``."""

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
