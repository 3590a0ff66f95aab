"""Ten queries to ten thousand in one driver, one core.

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
from statistics import median
from typing import Any

from prometheus_client.core import CollectorRegistry, Metric
from prometheus_client.exposition import generate_latest

from querypulse.exporter.exposition import as_text, base_name
from querypulse.exporter.metrics import all_families
from querypulse.exporter.published_state import PublishedState
from querypulse.listener.events import _PROGRESS

from .harness import Row, at_least, at_most, report
from .pipeline import EventPipeline, RecordedRuns, new_ids

EVENTS_A_ROUND = 10_000
WARM_UP_BATCHES = 5
ROUNDS = {10: 10, 100: 10, 1_000: 5, 10_000: 1}
"""By number of queries."""
SMALL = 100
PROMISED = 1_000
LARGE = 10_000
WHERE_LINEAR_ENDS = 1.5
"""A curve that is steeper than its size by more than noise and caches make it."""

Medians = dict[int, float]
"""Seconds by number of queries."""


def main() -> int:
    """Measure, print, write."""
    samples: dict[str, dict[int, list[float]]] = {}
    for size in ROUNDS:
        for name, seconds in _measure(size).items():
            samples.setdefault(name, {})[size] = seconds
    medians = {name: {n: median(s) for n, s in of.items()} for name, of in samples.items()}
    report("scale", __doc__, _rows(medians), samples)
    return 0


def _rows(medians: dict[str, Medians]) -> list[Row]:
    event = medians["event"]
    tick = medians["tick"]
    scrape = medians["scrape"]
    decode = medians["bare decode"]
    bare = medians["bare exposition"]
    at = PROMISED
    return [
        at_least(f"events/s, {at:,} queries", 1 / event[at], 30_000, "/s"),
        Row("an event / its bare typed decode", f"{event[at] / decode[at]:.1f}x"),
        at_most(f"a tick over {at:,} queries", tick[at] * 1e3, 10, " ms"),
        at_most(f"a scrape of {at:,} / bare exposition", scrape[at] / bare[at], 2, "x"),
        Row(f"a scrape of {at:,} queries", f"{scrape[at] * 1e3:.0f} ms"),
        _growth("an event", event[LARGE] / event[SMALL]),
        _growth("a tick", _beyond_linear(tick)),
        _growth("a scrape", _beyond_linear(scrape)),
        Row("bare exposition: the same", f"{_beyond_linear(bare):.2f}x"),
    ]


def _growth(name: str, beyond: float) -> Row:
    question = f"{name}: beyond linear, {SMALL:,} to {LARGE:,} queries"
    return at_most(question, beyond, WHERE_LINEAR_ENDS, "x")


def _beyond_linear(of: Medians) -> float:
    """How much more one query costs in the largest driver than in one of a hundred."""
    return (of[LARGE] / LARGE) / (of[SMALL] / SMALL)


def _measure(size: int) -> dict[str, list[float]]:
    """Every sample of one size; the candidates of each comparison in turn."""
    fleet = RecordedRuns(new_ids(size))
    pipeline = EventPipeline()
    numbers = count()
    batches = max(1, EVENTS_A_ROUND // size)
    for _ in range(WARM_UP_BATCHES):
        pipeline.feed(pipeline.answers(fleet.batch(next(numbers))))
        pipeline.now += 1.0
    samples: dict[str, list[float]] = {}
    for _ in range(ROUNDS[size]):
        texts = [text for _ in range(batches) for text in fleet.batch(next(numbers))]
        pipeline.now += 1.0
        answers = pipeline.answers(texts)
        published = pipeline.tick()
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Ready(published))
        for name, times, call, argument in (
            ("event", len(texts), pipeline.feed, answers),
            ("bare decode", len(texts), _decode, texts),
            ("tick", 1, lambda _: pipeline.tick(), None),
            ("scrape", 1, lambda state: as_text(all_families(state)), published),
            ("bare exposition", 1, generate_latest, registry),
        ):
            samples.setdefault(name, []).append(_seconds(call, argument) / times)
    return samples


def _decode(texts: Sequence[str]) -> None:
    """Read the same fields of the same texts, with our own decoder and without what follows."""
    for text in texts:
        _PROGRESS.decode(text)


class _Ready:
    """A collector that has nothing to do any more: what is left is the writing."""

    def __init__(self, published: PublishedState) -> None:
        self._families = []
        for family in all_families(published):
            metric = Metric(base_name(family), family.documentation, family.kind)
            for name, names, values, figure in family.samples:
                metric.add_sample(name, dict(zip(names, values, strict=True)), figure)
            self._families.append(metric)

    def collect(self) -> list[Metric]:
        return self._families


def _seconds(call: Callable[[Any], Any], argument: Any) -> float:
    gc.collect()
    began = time.perf_counter()
    call(argument)
    return time.perf_counter() - began


if __name__ == "__main__":
    sys.exit(main())
