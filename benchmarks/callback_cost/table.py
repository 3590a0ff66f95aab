"""The figures in words: medians, tails and ratios of what the rounds measured."""

from collections.abc import Iterator, Sequence
from itertools import chain
from statistics import median, quantiles
from typing import NamedTuple

from ..common.difference import Difference, difference
from ..common.interpreter import BUSY, IDLE
from ..common.listeners import NOTHING, OURS, PEER, STOCK
from ..common.result import Row, at_least, short
from .candidates import NAMES, OWN
from .measuring import Round
from .posts import EMPTY, WITH, WITHOUT, Posted
from .workloads import STATEFUL

ALLOWED_MICROSECONDS = 20
BELOW_STOCK = 500
PERCENTILES = (50, 90, 99)
LEAST_MICROSECONDS = 1.0
"""Ratios take a smaller difference for this: chance alone makes two medians differ by it."""


class Measured(NamedTuple):
    """All samples by the interpreter's state: rounds of each workload, and posts."""

    rounds: dict[str, dict[str, list[Round]]]
    posts: dict[str, Posted]
    events_a_batch: float


def details(title: str, rounds: Sequence[Round]) -> list[str]:
    """Microseconds of each candidate as a small table."""
    pooled = _pooled(rounds)
    head = _head(f"onQueryProgress, {title}: {len(pooled[OWN])} events")
    return ["", *head, *(_spread(name, pooled[name]) for name in NAMES)]


def post_details(state: str, posted: Posted) -> list[str]:
    """Microseconds of a post as a small table."""
    nanos = {name: list(chain.from_iterable(turns)) for name, turns in posted.items()}
    head = _head(f"post(), {state} interpreter: {len(nanos[WITH])} posts each")
    return ["", *head, *(_spread(name, found) for name, found in nanos.items())]


def rows(measured: Measured) -> list[Row]:
    """What is allowed of ours, and how far the others are above it."""
    found: list[Row] = []
    for state in (IDLE, BUSY):
        found += _absolute(measured, state)
    of_all = measured.events_a_batch * _added(measured.posts[IDLE]).middle
    every = f"idle: all {measured.events_a_batch:.0f} events of a batch, added to post()"
    found.append(Row(every, f"{short(of_all)} us"))
    for state, workloads in measured.rounds.items():
        for title, rounds in workloads.items():
            found += _ratios(measured, state, title, rounds)
    return found


def _absolute(measured: Measured, state: str) -> Iterator[Row]:
    times = _medians(measured.rounds[state][STATEFUL])
    added = _added(measured.posts[state])
    yield added.at_most(f"{state}: {OURS}, added to post()", ALLOWED_MICROSECONDS, " us")
    least = _added(measured.posts[state], EMPTY)
    yield least.row(f"{state}: a queue that does nothing, added to post()", " us")
    yield Row(f"{state}: {OWN}", f"{short(times[OWN] / 1000)} us")
    for name in (NOTHING, STOCK, PEER):
        yield Row(f"{state}: {name}", f"{short(times[name] / 1e6)} ms")


def _ratios(measured: Measured, state: str, title: str, rounds: Sequence[Round]) -> list[Row]:
    """Each to what ours adds to ``post()``; a bound is promised of the stateful query only."""
    times = _medians(rounds)
    ours = 1000 * max(_added(measured.posts[state]).middle, LEAST_MICROSECONDS)
    prefix, below = f"{state}, {title}", times[STOCK] / ours
    question = f"{prefix}: {STOCK} / {OURS}"
    return [
        at_least(question, below, BELOW_STOCK, "x")
        if title == STATEFUL
        else _ratio(question, below),
        _ratio(f"{prefix}: {STOCK} / {NOTHING}", times[STOCK] / times[NOTHING]),
        _ratio(f"{prefix}: {NOTHING} / {OURS}", times[NOTHING] / ours),
        _ratio(f"{prefix}: {PEER} / {OURS}", times[PEER] / ours),
    ]


def _ratio(question: str, ratio: float) -> Row:
    return Row(question, f"{short(ratio)}x")


def _added(posted: Posted, queue: str = WITH) -> Difference:
    """Microseconds by which the median post of a turn takes longer with a queue."""
    turns = {name: [median(nanos) / 1000 for nanos in posted[name]] for name in posted}
    return difference(turns[queue], turns[WITHOUT])


def _medians(rounds: Sequence[Round]) -> dict[str, float]:
    return {name: median(nanos) for name, nanos in _pooled(rounds).items()}


def _pooled(rounds: Sequence[Round]) -> Round:
    return {name: [nanos for one in rounds for nanos in one[name]] for name in NAMES}


def _head(title: str) -> list[str]:
    columns = "".join(f"{f'p{percent}':>12}" for percent in PERCENTILES)
    return [title, f"{'  microseconds':34}{columns}"]


def _spread(name: str, nanoseconds: Sequence[int]) -> str:
    cuts = quantiles(nanoseconds, n=100, method="inclusive")
    cells = "".join(f"{cuts[percent - 1] / 1000:>12,.1f}" for percent in PERCENTILES)
    return f"  {name:32}{cells}"
