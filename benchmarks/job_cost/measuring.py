"""The procedure: turns of one trigger, nobody's between any two others', on one running job.

Each turn is compared with nobody's turns before and after it, which takes out what changes
slowly: the JIT compiler's progress, a growing heap, other tenants of the machine.
"""

import time
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from ..common.listeners import NONE, OURS, PEER, STOCK
from .candidates import Candidate
from .job import EightQueries
from .meter import Cpu, Meter

OTHERS = (OURS, STOCK, OURS, PEER, OURS, OURS, PEER, OURS, STOCK, OURS, OURS, STOCK, OURS, PEER)

ENOUGH_SECONDS = 40.0
"""After so long, with a turn for everybody, there are no more; a slow machine has fewer."""


class Turn(NamedTuple):
    """What was done in one turn, and with how much."""

    name: str
    rows: int
    seconds: float
    cpu: Cpu

    @property
    def rows_a_cpu_second(self) -> float:
        """The figure that counts."""
        return self.rows / self.cpu.both

    @property
    def own_ms_a_second(self) -> float:
        """CPU milliseconds a second of Python and of the JVM's threads that serve it."""
        return 1e3 * (self.cpu.python + self.cpu.serving) / self.seconds

    @property
    def ms_a_second(self) -> float:
        """CPU milliseconds a second of the driver."""
        return 1e3 * self.cpu.both / self.seconds


def measure(job: EightQueries, meter: Meter, candidates: dict[str, Candidate]) -> list[Turn]:
    """All turns; the first and the last are nobody's."""
    enough_at = time.monotonic() + ENOUGH_SECONDS
    job.await_gap()
    turns = [_turn(NONE, job, meter, candidates)]
    for name in OTHERS:
        turns += [_turn(who, job, meter, candidates) for who in (name, NONE)]
        if time.monotonic() > enough_at and {turn.name for turn in turns} == set(candidates):
            break
    return turns


def ratios(turns: Sequence[Turn]) -> dict[str, list[float]]:
    """Of each turn to nobody's around it; nobody's own show what chance does."""
    found: dict[str, list[float]] = {}
    for place, turn in enumerate(turns):
        step = 2 if turn.name == NONE else 1
        if step <= place < len(turns) - step:
            around = [turns[place - step], turns[place + step]]
            base = sum(one.rows_a_cpu_second for one in around) / 2
            found.setdefault(turn.name, []).append(turn.rows_a_cpu_second / base)
    return found


def typical(turns: Sequence[Turn], name: str) -> Cpu:
    """Median CPU seconds that this one's turns took for a million rows."""
    mine = [turn for turn in turns if turn.name == name]
    shares = zip(*([used / turn.rows * 1e6 for used in turn.cpu] for turn in mine), strict=True)
    return Cpu(*map(median, shares))


def _turn(name: str, job: EightQueries, meter: Meter, candidates: dict[str, Candidate]) -> Turn:
    with candidates[name]():
        if name != NONE:
            # One trigger to settle.
            job.await_gap()
        rows, cpu, began = job.rows_done(), meter.read(), time.monotonic()
        job.await_gap()
        while job.rows_done() == rows:
            job.await_gap()
        used, passed = meter.read().since(cpu), time.monotonic() - began
        return Turn(name, job.rows_done() - rows, passed, used)


NOBODY_SECONDS = 4.0
WARM_UP_POLLS = 3600
"""As many as in half an hour: then the JVM has compiled what answers them."""
SETTLE_SECONDS = 6.0
MEASURED_SECONDS = 16.0

Shares = dict[str, float]
"""CPU milliseconds a second by thread, without those of the benchmark."""


def steady(meter: Meter, ours: Candidate) -> Shares:
    """What each thread takes above what it takes when nobody listens, once our code is warm.

    In the short turns that are compared with nobody's it has only just been attached, and the JVM
    still interprets what it compiled for it. A driver runs for days.
    """
    nobody = _shares(meter, NOBODY_SECONDS)
    with ours() as sidecar:
        for _ in range(WARM_UP_POLLS):
            sidecar.flush()
        time.sleep(SETTLE_SECONDS)
        found = _shares(meter, MEASURED_SECONDS)
    return {name: share - nobody.get(name, 0.0) for name, share in found.items()}


def _shares(meter: Meter, seconds: float) -> Shares:
    before, began = meter.by_thread(), time.monotonic()
    time.sleep(seconds)
    after, passed = meter.by_thread(), time.monotonic() - began
    return {name: 1e3 * (after[name] - before.get(name, 0.0)) / passed for name in after}
