"""What recording costs: an event, a tick, and memory, while all is well and during an incident.

``python -m benchmarks.black_box``. Events go the real way, from the JVM's answer on, twice in turn:
with the ring and without. A tick is one evaluation, with the black box and without. During the
incident, three queries have failed for one cause, so that all queries of the driver are recorded;
all others commit each second, and are evaluated twice a second.
"""

import gc
import sys
import time
import tracemalloc
from collections.abc import Callable, Sequence
from itertools import count
from statistics import median
from typing import Any

from querypulse.alerting.evaluate import evaluate
from querypulse.alerting.incidents.lifecycle import Evaluated
from querypulse.alerting.policy import Policy
from querypulse.core.redaction import Redactor
from querypulse.listener.events import Started, Terminated
from querypulse.recording.lines import SeenFrom
from querypulse.recording.recorder import About, Recorder
from querypulse.recording.ring import RING_BYTES, Ring

from .harness import Row, at_most, report
from .pipeline import APP, EventPipeline, RecordedRuns, new_ids

QUERIES = (30, 200)
BATCHES = 30
ROUNDS = 30
EVALUATIONS_A_SECOND = 2
INCIDENT_SECONDS = 120
MORE_ALLOWED = 1.05
MEGABYTE = 1024 * 1024
MILLION = 1_000_000


class RecordedPipeline(EventPipeline):
    """The same, with the recorder behind it."""

    def __init__(self, ring: Ring | None) -> None:
        super().__init__()
        self.ring = ring
        if ring is not None:
            self._reader._on_event = ring.add
        self.recorder = Recorder(
            About(app=APP, seen_from=SeenFrom.DRIVER), ring or Ring(), Redactor().text
        )

    def evaluated(self) -> Evaluated:
        """One evaluation, without the recorder."""
        snapshot = self.state.snapshot(self.now)
        evaluation = evaluate(snapshot, self.now, Policy())
        before = self._lifecycle.held
        wall = self.now + 1e9
        incidents = self._lifecycle.update(evaluation, snapshot, self.now, wall, ())
        alerts = self._lifecycle.alerts
        return Evaluated(
            snapshot, evaluation, alerts, wall=wall, incidents=incidents, before=before
        )

    def record(self, evaluated: Evaluated) -> None:
        """What the thread "recording" does with it."""
        self.recorder.update(evaluated)
        self.recorder.take(evaluated.wall)


def main() -> int:
    """Measure, print, write."""
    rows: list[Row] = []
    samples: dict[str, Any] = {}
    for size in QUERIES:
        events = _events(size)
        samples[f"events, {size}"] = events
        ratio = median(events["with"]) / median(events["without"])
        rows.append(at_most(f"an event of {size} queries, with the ring", ratio, MORE_ALLOWED, "x"))
        incident = _incident(size)
        samples[f"incident, {size}"] = incident
        busy = sum(incident["record"]) / INCIDENT_SECONDS
        name = f"during a driver's incident of {size}"
        rows.append(at_most(f"{name}: a core, of", busy * 100, 2, "%"))
        tick = median(incident["tick"])
        rows.append(Row(f"{name}: an evaluation", f"{tick * 1e3:.2f} ms"))
        rows.append(Row(f"{name}: recorded in", f"{median(incident['record']) * 1e3:.2f} ms"))
        rows.append(Row(f"{name}: the slowest", f"{max(incident['record']) * 1e3:.0f} ms"))
    held = _ring_of_a_million()
    samples["ring"] = held
    rows.append(at_most("memory of the ring, a million events", held / MEGABYTE, 8, " MB"))
    report("black_box", __doc__, rows, samples)
    return 0


def _fleet(pipeline: EventPipeline, size: int) -> RecordedRuns:
    ids = new_ids(size)
    fleet = RecordedRuns(ids)
    for number, (query_id, run_id) in enumerate(zip(ids, fleet.run_ids, strict=True)):
        pipeline.state.apply_event(Started(query_id, run_id, f"query-{number}"), pipeline.now)
    return fleet


def _events(size: int) -> dict[str, list[float]]:
    """Seconds of an event, in turn with the ring and without."""
    pipelines = {"with": RecordedPipeline(Ring()), "without": RecordedPipeline(None)}
    fleets = {name: _fleet(pipeline, size) for name, pipeline in pipelines.items()}
    numbers = count()
    samples: dict[str, list[float]] = {name: [] for name in pipelines}
    for turn in range(ROUNDS):
        batches = [next(numbers) for _ in range(BATCHES)]
        for name in sorted(pipelines, reverse=bool(turn % 2)):
            pipeline = pipelines[name]
            texts = [text for batch in batches for text in fleets[name].batch(batch)]
            pipeline.now += 1.0
            answers = pipeline.answers(texts)
            seconds = _seconds(pipeline.feed, answers)
            if turn:
                samples[name].append(seconds / len(texts))
    return samples


def _incident(size: int) -> dict[str, list[float]]:
    """Seconds of each evaluation, and of what the recorder does with it."""
    pipeline = RecordedPipeline(Ring())
    ids = new_ids(size)
    fleet = RecordedRuns(ids)
    for number, (query_id, run_id) in enumerate(zip(ids, fleet.run_ids, strict=True)):
        pipeline.state.apply_event(Started(query_id, run_id, f"query-{number}"), pipeline.now)
    for batch in range(BATCHES):
        pipeline.now += 1.0
        pipeline.feed(pipeline.answers(fleet.batch(batch)))
    for query_id, run_id in zip(ids[:3], fleet.run_ids[:3], strict=True):
        died = Terminated(query_id, run_id, "java.io.IOException: gone", None)
        pipeline.state.apply_event(died, pipeline.now)
    samples: dict[str, list[float]] = {"tick": [], "record": []}
    for step in range(INCIDENT_SECONDS * EVALUATIONS_A_SECOND):
        pipeline.now += 1.0 / EVALUATIONS_A_SECOND
        if step % EVALUATIONS_A_SECOND == 0:
            texts = list(fleet.batch(BATCHES + step))[3:]
            pipeline.feed(pipeline.answers(texts))
        began = time.process_time()
        evaluated = pipeline.evaluated()
        between = time.process_time()
        pipeline.record(evaluated)
        samples["tick"].append(between - began)
        samples["record"].append(time.process_time() - between)
    if not pipeline.recorder.is_recording:
        raise RuntimeError("nothing was recorded")
    return samples


def _ring_of_a_million() -> int:
    """Bytes that the ring holds after a million events of 200 queries."""
    ids = new_ids(200)
    texts = list(RecordedRuns(ids).batch(0))
    tracemalloc.start()
    ring = Ring()
    before = tracemalloc.get_traced_memory()[0]
    for number in range(MILLION):
        text = texts[number % len(texts)]
        # Each event is a text of its own.
        ring.add(ids[number % len(ids)], "progress", f"{text} ", float(number))
    held = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    if held > 2 * RING_BYTES:
        print(f"the ring holds {held:,} bytes")
    return held


def _seconds(call: Callable[[Any], Any], argument: Sequence[str]) -> float:
    gc.collect()
    began = time.process_time()
    call(list(argument))
    return time.process_time() - began


if __name__ == "__main__":
    sys.exit(main())
