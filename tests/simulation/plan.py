"""A plan: its queries, and timed steps. It consists of values only, so that it can be shrunk."""

from __future__ import annotations

import re

import msgspec
from msgspec.structs import replace

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
    polled: bool = False
    """Whether its broker is polled."""

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


_WRITTEN = re.compile(
    r"(?P<at>[\d.]+) (?P<do>\w+)(?: (?P<who>(?!for )[\w*]+))?(?: for (?P<seconds>-?[\d.]+))?"
    r"(?: \((?P<arg>.*)\))?"
)


def steps(text: str) -> tuple[Step, ...]:
    """Steps as they are written, such as ``90 receiver for 60 (down), 100 die a``."""
    return tuple(msgspec.convert(_fields(part), Step, strict=False) for part in text.split(", "))


def _fields(text: str) -> dict[str, str]:
    written = _WRITTEN.fullmatch(text)
    assert written is not None, f"not a step: {text!r}"
    return {name: value for name, value in written.groupdict().items() if value is not None}


def again(times: int, every: float, text: str) -> tuple[Step, ...]:
    """These steps so many times, each time ``every`` seconds later."""
    return tuple(
        replace(step, at=step.at + every * number)
        for number in range(times)
        for step in steps(text)
    )


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
