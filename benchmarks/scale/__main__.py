"""Whether ten thousand queries cost a thousand times what ten do, and no more.

``python -m benchmarks.scale``. For each number of queries, in turn and in several rounds: events
through the real reader, mailbox and state, from the JVM's answer on, against the bare typed decode
of the same texts; one evaluation of them all; one scrape, against the bare writing of the same
samples. No Spark: it would measure Spark. One thread, so one core.
"""

import gc
import sys
import time
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from prometheus_client.core import CollectorRegistry, Metric
from prometheus_client.exposition import generate_latest

from querypulse.exporter.exposition import base_name
from querypulse.exporter.metrics import all_families
from querypulse.exporter.published_state import PublishedState
from querypulse.listener.events import _PROGRESS

from ..common.recorded_events import RecordedRuns, new_ids
from ..common.result import lines, write
from .line import EventPipeline, scrape_of
from .table import Samples, details, rows


def bare_decode(texts: Sequence[str]) -> None:
    """Read the same fields of the same texts, with our own decoder and without what follows."""
    for text in texts:
        _PROGRESS.decode(text)


def bare_exposition(published: PublishedState) -> Callable[[], bytes]:
    """Write the same samples, which are there already."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Ready(published))
    return lambda: generate_latest(registry)


class _Ready:
    """A collector that has nothing to do any more: what is left is the writing."""

    def __init__(self, published: PublishedState) -> None:
        self._families = []
        for family in all_families(published):
            metric = Metric(base_name(family), family.documentation, family.kind)
            for name, names, values, figure in family.samples:
                metric.add_sample(name, dict(zip(names, values, strict=True)), figure)
            self._families.append(metric)

    def collect(self) -> list[Any]:
        return self._families


SIZES = (10, 100, 1_000, 10_000)
EVENTS_A_ROUND = 10_000
WARM_UP_BATCHES = 5
ROUNDS = {10: 10, 100: 10, 1_000: 5, 10_000: 1}


def main() -> int:
    """Measure, print, write."""
    samples: Samples = {}
    for size in SIZES:
        for name, seconds in _measured(size).items():
            samples.setdefault(name, {})[size] = seconds
    found = rows(samples)
    write("scale", found, samples)
    print(*details(samples), sep="\n")
    print(*lines("Many queries in one driver, one core", found), sep="\n")
    return 0


def _measured(size: int) -> dict[str, list[float]]:
    """Every sample of one size; the candidates of each comparison in turn."""
    fleet, line = RecordedRuns(new_ids(size)), EventPipeline()
    numbers, batches = count(), max(1, EVENTS_A_ROUND // size)
    for _ in range(WARM_UP_BATCHES):
        line.feed(line.answers(fleet.batch(next(numbers))))
        line.now += 1.0
    found: dict[str, list[float]] = {}
    for _ in range(ROUNDS[size]):
        texts = [text for _ in range(batches) for text in fleet.batch(next(numbers))]
        line.now += 1.0
        answers = line.answers(texts)
        published = line.tick()
        timed: dict[str, tuple[Callable[[], Any], int]] = {
            "event": (lambda answers=answers: line.feed(answers), len(texts)),  # type: ignore[misc]
            "bare decode": (lambda texts=texts: bare_decode(texts), len(texts)),  # type: ignore[misc]
            "tick": (line.tick, 1),
            "scrape": (scrape_of(published), 1),
            "bare exposition": (bare_exposition(published), 1),
        }
        for name, (call, times) in timed.items():
            found.setdefault(name, []).append(_seconds(call) / times)
    return found


def _seconds(call: Callable[[], Any]) -> float:
    gc.collect()
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


if __name__ == "__main__":
    sys.exit(main())
