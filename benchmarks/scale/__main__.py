"""Whether ten thousand queries cost a thousand times what ten do, and no more.

``python -m benchmarks.scale``. For each number of queries, in turn and in several rounds: events
through the real mailbox, reader and state, against the bare typed decode of the same texts; one
round of judging them all; one scrape, against the bare writing of the same samples. No Spark: it
would measure Spark. One thread, so one core; medians over the rounds.
"""

import gc
import sys
import time
from collections.abc import Callable
from itertools import count
from statistics import median
from typing import Any

from prometheus_client.core import CollectorRegistry
from prometheus_client.exposition import generate_latest

from querypulse.exporter.board import Board
from querypulse.exporter.query_collector import QueryCollector, own_registry
from querypulse.listener.decode import _PROGRESS  # its own decoder, without what follows

from ..common.recorded_events import Fleet, new_ids
from ..common.result import Row, at_least, at_most, lines, write
from .line import Line

SIZES = (10, 100, 1_000, 10_000)
EVENTS_A_ROUND = 10_000
WARM_UP_BATCHES = 5
ROUNDS = 5
PROMISED_AT = 1_000
WHERE_LINEAR_ENDS = 1.5
"""A curve that is steeper than its size by more than noise and caches make it."""

Samples = dict[str, dict[int, list[float]]]
"""Seconds by what was timed, then by size: an event, a tick, a scrape."""


def main() -> int:
    """Measure, print, write."""
    samples: Samples = {}
    for size in SIZES:
        for name, seconds in _measured(size).items():
            samples.setdefault(name, {})[size] = seconds
        print(f"  {size} queries measured", file=sys.stderr, flush=True)
    rows = _rows({name: {n: median(s) for n, s in of.items()} for name, of in samples.items()})
    write("scale", rows, samples)
    print(*lines("Many queries in one driver, one core", rows), sep="\n")
    return 0


def _measured(size: int) -> dict[str, list[float]]:
    """Every sample of one size; the candidates of each comparison in turn."""
    fleet, line = Fleet(new_ids(size)), Line()
    numbers, batches = count(), max(1, EVENTS_A_ROUND // size)
    for _ in range(WARM_UP_BATCHES):
        line.feed(list(fleet.batch(next(numbers))))
        line.now += 1.0
    found: dict[str, list[float]] = {}
    for _ in range(ROUNDS):
        texts = [text for _ in range(batches) for text in fleet.batch(next(numbers))]
        line.now += 1.0
        board = line.tick()
        timed = {
            "event": lambda texts=texts: line.feed(texts),
            "bare decode": lambda texts=texts: _decode(texts),
            "tick": line.tick,
            "scrape": _scrape(board),
            "bare exposition": _bare_exposition(board),
        }
        for name, call in timed.items():
            per = len(texts) if name in ("event", "bare decode") else 1
            found.setdefault(name, []).append(_seconds(call) / per)
    return found


def _seconds(call: Callable[[], Any]) -> float:
    gc.collect()
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def _decode(texts: list[str]) -> None:
    """The least that typed reading of the same fields can cost."""
    for text in texts:
        _PROGRESS.decode(text)


def _scrape(board: Board) -> Callable[[], bytes]:
    registry = own_registry(lambda: board)
    return lambda: generate_latest(registry)


class _Ready:
    """A collector that has nothing to do any more: what is left is the writing."""

    def __init__(self, board: Board) -> None:
        self._families = list(QueryCollector(lambda: board).collect())

    def collect(self) -> list[Any]:
        return self._families


def _bare_exposition(board: Board) -> Callable[[], bytes]:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Ready(board))  # type: ignore[arg-type]  # all a registry asks for
    return lambda: generate_latest(registry)


def _rows(medians: dict[str, dict[int, float]]) -> list[Row]:
    event, decode = medians["event"], medians["bare decode"]
    scrape, bare = medians["scrape"], medians["bare exposition"]
    promised = PROMISED_AT
    rows = [
        at_least(f"events/s, {promised:,} queries", 1 / event[promised], 30_000, "/s"),
        Row("an event / its bare decode", f"{event[promised] / decode[promised]:.1f}x"),
        at_most(f"a tick over {promised:,} queries", medians["tick"][promised] * 1e3, 10, " ms"),
        at_most(
            f"a scrape of {promised:,} / bare exposition", scrape[promised] / bare[promised], 2, "x"
        ),
        Row(f"a scrape of {promised:,} queries", f"{scrape[promised] * 1e3:.0f} ms"),
    ]
    return rows + [
        at_most(
            f"{name}: growth beyond linear, {SIZES[0]} to {SIZES[-1]:,}",
            _beyond(of, name),
            WHERE_LINEAR_ENDS,
            "x",
        )
        for name, of in (("event", event), ("tick", medians["tick"]), ("scrape", scrape))
    ]


def _beyond(of: dict[int, float], name: str) -> float:
    """How much more one query costs in the largest driver than in one of a hundred."""
    small, large = SIZES[1], SIZES[-1]
    if name == "event":
        return of[large] / of[small]
    return (of[large] / large) / (of[small] / small)


if __name__ == "__main__":
    sys.exit(main())
