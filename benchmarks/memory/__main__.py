"""Memory of a thousand queries: after their first batches, and after a million events more.

``python -m benchmarks.memory``. Everything goes the real way, from the JVM's answer to the output.
What is counted is all that is reached from that way (what Python frees is not). The memory of the
whole process beside it would also show what leaks elsewhere.
"""

import gc
import os
import sys
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from querypulse.listener.events import Started, Terminated

from ..common.recorded_events import RecordedRuns, new_ids
from ..common.result import Row, at_most, lines, write
from ..scale.line import EventPipeline

SHARED = (type, ModuleType, FunctionType)
"""What the program holds anyway."""


def held(*roots: Any) -> int:
    """Bytes of the roots and of everything they refer to, each object counted once."""
    seen: set[int] = set()
    total, waiting = 0, list(roots)
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, SHARED):
            continue
        seen.add(id(one))
        total += sys.getsizeof(one)
        waiting.extend(_parts(one))
    return total


def _parts(one: Any) -> Iterable[Any]:
    # Records without a part in garbage collection do not name their parts to it.
    fields = getattr(one, "__struct_fields__", None)
    if fields is not None:
        return [getattr(one, name) for name in fields]
    return gc.get_referents(one)


QUERIES = 1_000
FULL_BATCHES = 120
FULL_RESTARTS = 20
"""More than a query's record keeps (50 durations, 16 past runs): what follows adds nothing."""
EVENTS = 1_000_000
RESTARTS = 10_000
GROWTH_ALLOWED = 1.1
"""Numbers beyond 256 are objects of their own to Python: counts and batch ids take more then."""


def main() -> int:
    """Measure, print, write."""
    ids, line = new_ids(QUERIES), EventPipeline()
    empty = held(line)
    _restart(line, ids, FULL_RESTARTS * QUERIES)
    _run(line, ids, FULL_BATCHES)
    held(line)  # looking takes memory itself, the first time
    full = _Memory(line)
    _run(line, ids, EVENTS // QUERIES)
    fed = _Memory(line)
    _restart(line, ids, RESTARTS)
    _run(line, ids, FULL_BATCHES)
    restarted = _Memory(line)
    rows = [
        at_most("memory a query", (full.ours - empty) / QUERIES / 1024, 20, " KB"),
        *fed.against(full, f"{EVENTS:,} events"),
        *restarted.against(full, f"these and {RESTARTS:,} restarts"),
    ]
    write("memory", rows, [vars(one) for one in (full, fed, restarted)])
    print(*lines(f"Memory, {QUERIES:,} queries", rows), sep="\n")
    return 0


class _Memory:
    """Bytes held by ours, and by the process, at one moment."""

    def __init__(self, line: EventPipeline) -> None:
        self.ours = held(line)
        gc.collect()
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        self.process = pages * os.sysconf("SC_PAGE_SIZE")

    def against(self, before: "_Memory", what: str) -> list[Row]:
        return [
            at_most(f"after {what}: held", self.ours / before.ours, GROWTH_ALLOWED, "x"),
            at_most(f"after {what}: process", self.process / before.process, GROWTH_ALLOWED, "x"),
        ]


def _run(line: EventPipeline, ids: Sequence[str], batches: int) -> None:
    """A new run of each query, an hour later: what came before is over and resolved."""
    fleet = RecordedRuns(ids)
    line.now += 3600.0
    for batch in range(batches):
        line.now += 1.0
        line.feed(line.answers(fleet.batch(batch)))
        if batch % 10 == 0:
            line.tick()


def _restart(line: EventPipeline, ids: Sequence[str], restarts: int) -> None:
    """Each query in turn begins a run that dies at once."""
    for number in range(restarts):
        line.now += 0.01
        query_id, run_id = ids[number % QUERIES], str(uuid.uuid4())
        line.state.apply_event(Started(query_id, run_id, f"query-{number % QUERIES}"), line.now)
        died = Terminated(query_id, run_id, "java.io.IOException: gone", None)
        line.state.apply_event(died, line.now)


if __name__ == "__main__":
    sys.exit(main())
