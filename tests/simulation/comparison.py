"""The monitor's observations of a history, in a form common to simulated and real Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from querypulse.listener.events import Event, Idle, Progress, Started, Terminated
from querypulse.listener.probe_report import Context, JobActivity, ProbedRun, ProbeReport
from querypulse.listener.state.state import State

from .plan import Plan, QuerySpec, steps

LONG_SECONDS = 10.0
"""A batch in flight for longer is long: healthy ones on a busy machine are not."""
SHORT_SECONDS = 3.0
"""A shorter run may fall between two polls."""
LONG, WORKS = "long", "long, and works"

_EVERY = {"every": 2.0, "takes": 0.3}
_WITH_INTERVAL = ("healthy", "dies", "first", "stops", "planned", "again", "moved", "hangs", "dry")
WAYS_TO_END = Plan(
    seed=1,
    horizon=22.0,
    queries=(
        *(QuerySpec(name, name, **_EVERY) for name in _WITH_INTERVAL),
        QuerySpec("once", "once", trigger="Once", **_EVERY),
        QuerySpec("now", "now", trigger="AvailableNow", **_EVERY),
    ),
    steps=steps(
        "0.5 fail_first first, 1 start healthy, 1 start dies, 1 start stops, 1 start planned, "
        "1 start again, 1 start moved, 1 start hangs, 1 start dry, 2 start first, "
        "8 die dies, 8 die again, 8 die moved, 8 hang hangs for 60, 8 stop stops, "
        "8 plan_stop planned, 8 dry dry for 60, 9 start once, 9 start now, "
        "12 restart again, 12 restart moved (new)"
    ),
)
"""One query for each way to run and to end, all in one driver."""

WAYS_TO_WORK = Plan(
    seed=2,
    horizon=34.0,
    queries=(
        QuerySpec("unnamed", None, **_EVERY),
        QuerySpec("elsewhere", "elsewhere", session="s2", **_EVERY),
        QuerySpec("continuous", "continuous", trigger="Continuous", every=1.0),
        QuerySpec("crawls", "crawls", **_EVERY),
        QuerySpec("fans", "fans", **_EVERY),
    ),
    steps=steps(
        "1 start unnamed, 1 start elsewhere, 1 start continuous, 1 start crawls, 1 start fans, "
        "6 crawl crawls for 60, 6 fan_out fans for 60"
    ),
)
"""Queries without a name, of another session and without batches, and what a long batch does."""


class Observations:
    """The observations by query name and run, in order."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._events: dict[str, list[tuple[float, str]]] = {}
        self._polls: dict[str, list[tuple[float, str]]] = {}
        self._runs: dict[str, list[str]] = {}
        self._flights: dict[str, _Flight] = {}

    def event(self, event: Event, at: float) -> None:
        """Record an event that ``State`` receives."""
        if isinstance(event, Started):
            self._know(event.query_id, event.run_id, event.name)
        self._events.setdefault(event.run_id, []).append((at, _token(event)))

    def report(self, report: ProbeReport) -> None:
        for run in report.runs:
            self._know(run.facts.query_id, run.facts.run_id, run.facts.name)
            token = self._phase(run, report.at)
            self._polls.setdefault(run.facts.run_id, []).append((report.at, token))

    def by_name(self) -> dict[str, list[tuple[list[str], list[str] | None]]]:
        """The runs of each query: events, and phases seen by polls, None for a short run."""
        # A copy, because the monitor's threads may add one meanwhile.
        names = list(self._runs.items())
        return {name: [self._run(run_id) for run_id in runs] for name, runs in names}

    def _run(self, run_id: str) -> tuple[list[str], list[str] | None]:
        events, polls = self._events.get(run_id, []), self._polls.get(run_id, [])
        times = [at for at, _ in (*events, *polls)]
        is_short = _collapsed(events)[-1:] in (["failed"], ["ended"]) and (
            events[-1][0] - times[0] < SHORT_SECONDS
        )
        return _collapsed(events), None if is_short else _settled(_collapsed(polls))

    def _know(self, query_id: str, run_id: str, name: str | None) -> None:
        self._names.setdefault(query_id, name or "unnamed")
        runs = self._runs.setdefault(self._names[query_id], [])
        if run_id not in runs:
            runs.append(run_id)

    def _phase(self, run: ProbedRun, at: float) -> str:
        if not run.active:
            return "failed" if run.exception is not None else "ended"
        batch = run.batch_id if run.processing else None
        flight = self._flights.get(run.facts.run_id)
        if batch is None or flight is None or flight.batch != batch:
            flight = self._flights[run.facts.run_id] = _Flight(batch, at)
        if flight.work is not None and run.work is not None:
            flight.moved |= run.work.moved_since(flight.work) is not None
            flight.moved |= run.work.works_in_jvm(flight.work.jvm_cpu_seconds, at - flight.at)
        flight.work, flight.at = run.work, at
        if at - flight.since < LONG_SECONDS or batch is None:
            return "alive"
        return WORKS if flight.moved else LONG


@dataclass
class _Flight:
    """A batch in flight, and whether its jobs were seen to move."""

    batch: int | None
    since: float
    work: JobActivity | None = None
    at: float = 0.0
    moved: bool = False


@contextmanager
def recording() -> Iterator[Observations]:
    """Record everything that each ``State`` receives within the block."""
    observed = Observations()
    real_event, real_probe = State.apply_event, State.apply_probe

    def apply_event(self: Any, event: Event, at: float, context: Context = Context.RUNNING) -> None:
        observed.event(event, at)
        real_event(self, event, at, context)

    def apply_probe(self: Any, report: ProbeReport) -> None:
        observed.report(report)
        real_probe(self, report)

    with (
        patch.object(State, "apply_event", apply_event),
        patch.object(State, "apply_probe", apply_probe),
    ):
        yield observed


def _token(event: Event) -> str:
    if isinstance(event, Started):
        return "started"
    if isinstance(event, Progress):
        return "progress" if event.committed else "no data"
    if isinstance(event, Idle):
        return "idle"
    assert isinstance(event, Terminated)
    return "ended" if event.exception is None else "failed"


def _settled(phases: list[str]) -> list[str]:
    """The phases without ``LONG`` right before ``WORKS``: chance decides what is seen first."""
    return [
        phase for place, phase in enumerate(phases) if phases[place : place + 2] != [LONG, WORKS]
    ]


def _collapsed(tokens: list[tuple[float, str]]) -> list[str]:
    """The tokens without direct repetitions."""
    texts = [text for _, text in tokens]
    return [text for place, text in enumerate(texts) if place == 0 or texts[place - 1] != text]
