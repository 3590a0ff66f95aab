"""What is kept of a thousand queries, and whether it grows.

``python -m benchmarks.memory``. After their first batches, after a million events more, and after
two days. Everything goes the real way, from the JVM's answer to the output. What is counted is all
that is reached from that way (what Python frees is not). The memory of the whole process beside it
would also show what leaks elsewhere.
"""

import gc
import os
import sys
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

from querypulse.listener.events import Started, Terminated

from .harness import Row, at_most, report
from .pipeline import EventPipeline, RecordedRuns, new_ids

QUERIES = 1_000
FULL_BATCHES = 120
FULL_RESTARTS = 20
"""More than a query's record keeps (30 durations, 16 past runs): what follows adds nothing, except
the two longest batches of each further hour."""
EVENTS = 1_000_000
RESTARTS = 10_000
HOURS = 49
"""The longest batches of so many hours are kept."""
GROWTH_ALLOWED = 1.1
"""Numbers beyond 256 are objects of their own to Python: counts and batch ids take more then."""
SHARED = (type, ModuleType, FunctionType)
"""What the program holds anyway."""


class Memory(NamedTuple):
    """Bytes at one moment: held by ours, and by the process."""

    ours: int
    process: int


def main() -> int:
    """Measure, print, write."""
    ids = new_ids(QUERIES)
    pipeline = EventPipeline()
    empty = _held(pipeline)
    _restart(pipeline, ids, FULL_RESTARTS * QUERIES)
    _run(pipeline, ids, FULL_BATCHES)
    _held(pipeline)  # looking takes memory itself, the first time
    full = _memory(pipeline)
    _run(pipeline, ids, EVENTS // QUERIES)
    fed = _memory(pipeline)
    _restart(pipeline, ids, RESTARTS)
    _run(pipeline, ids, FULL_BATCHES)
    restarted = _memory(pipeline)
    for _ in range(HOURS):
        _run(pipeline, ids, 2)
    old = _memory(pipeline)
    rows = [
        at_most("memory a query", (full.ours - empty) / QUERIES / 1024, 20, " KB"),
        at_most("memory a query, after two days", (old.ours - empty) / QUERIES / 1024, 20, " KB"),
        *_growth(full, fed, f"{EVENTS:,} events"),
        *_growth(full, restarted, f"these and {RESTARTS:,} restarts"),
    ]
    report("memory", __doc__, rows, [full, fed, restarted, old])
    return 0


def _growth(before: Memory, after: Memory, what: str) -> list[Row]:
    return [
        at_most(f"after {what}: held", after.ours / before.ours, GROWTH_ALLOWED, "x"),
        at_most(f"after {what}: process", after.process / before.process, GROWTH_ALLOWED, "x"),
    ]


def _memory(pipeline: EventPipeline) -> Memory:
    ours = _held(pipeline)
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return Memory(ours, pages * os.sysconf("SC_PAGE_SIZE"))


def _held(root: Any) -> int:
    """Bytes of the root and of everything it refers to, each object counted once."""
    seen: set[int] = set()
    total = 0
    waiting = [root]
    while waiting:
        item = waiting.pop()
        if id(item) in seen or isinstance(item, SHARED):
            continue
        seen.add(id(item))
        total += sys.getsizeof(item)
        waiting.extend(_parts(item))
    return total


def _parts(item: Any) -> Iterable[Any]:
    # Records without a part in garbage collection do not name their parts to it.
    fields = getattr(item, "__struct_fields__", None)
    if fields is not None:
        return [getattr(item, name) for name in fields]
    # Nor does a dictionary whose keys all are text name these.
    keys = item if isinstance(item, dict) else ()
    return [*keys, *gc.get_referents(item)]


def _run(pipeline: EventPipeline, ids: Sequence[str], batches: int) -> None:
    """A new run of each query, an hour later: what came before is over and resolved."""
    fleet = RecordedRuns(ids)
    pipeline.now += 3600.0
    for number, (query_id, run_id) in enumerate(zip(ids, fleet.run_ids, strict=True)):
        pipeline.state.apply_event(Started(query_id, run_id, f"query-{number}"), pipeline.now)
    for batch in range(batches):
        pipeline.now += 1.0
        pipeline.feed(pipeline.answers(fleet.batch(batch)))
        if batch % 10 == 0:
            pipeline.tick()


def _restart(pipeline: EventPipeline, ids: Sequence[str], restarts: int) -> None:
    """Each query in turn begins a run that dies at once."""
    for number in range(restarts):
        pipeline.now += 0.01
        query_id = ids[number % QUERIES]
        run_id = str(uuid.uuid4())
        started = Started(query_id, run_id, f"query-{number % QUERIES}")
        pipeline.state.apply_event(started, pipeline.now)
        died = Terminated(query_id, run_id, "java.io.IOException: gone", None)
        pipeline.state.apply_event(died, pipeline.now)


if __name__ == "__main__":
    sys.exit(main())
