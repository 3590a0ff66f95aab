"""Memory of a thousand queries: after their first batches, and after a million events more.

``python -m benchmarks.memory``. Everything goes the real way from the mailbox to the board;
what is counted is what Python has allocated (``tracemalloc``) on that way and still holds.
"""

import gc
import sys
import tracemalloc
import uuid

from querypulse.listener.events import Started, Terminated

from ..common.recorded_events import Fleet
from ..common.result import at_most, lines, write
from ..scale.line import Line

QUERIES = 1_000
FULL_BATCHES = 60
"""More than any query's record keeps (50 durations), so that what follows adds nothing."""
EVENTS = 1_000_000
RESTARTS = 10_000
GROWTH_ALLOWED = 1.05


def main() -> int:
    """Measure, print, write."""
    fleet, line = Fleet(QUERIES), Line()
    for batch in range(FULL_BATCHES):
        _feed(fleet, line, batch)
    tracemalloc.start()
    empty = tracemalloc.get_traced_memory()[0]
    line = Line()
    for batch in range(FULL_BATCHES):
        _feed(fleet, line, batch)
    before = _held() - empty
    for batch in range(FULL_BATCHES, FULL_BATCHES + EVENTS // QUERIES):
        _feed(fleet, line, batch)
    after_events = _held() - empty
    _restart(line)
    after_restarts = _held() - empty
    rows = [
        at_most("memory a query", before / QUERIES / 1024, 20, " KB"),
        at_most(f"after {EVENTS:,} events more", after_events / before, GROWTH_ALLOWED, "x"),
        at_most(f"after {RESTARTS:,} restarts more", after_restarts / before, GROWTH_ALLOWED, "x"),
    ]
    held = {"before": before, "after_events": after_events, "after_restarts": after_restarts}
    write("memory", rows, held)
    print(*lines(f"Memory, {QUERIES:,} queries", rows), sep="\n")
    return 0


def _feed(fleet: Fleet, line: Line, batch: int) -> None:
    line.now += 1.0
    line.feed(list(fleet.batch(batch)))
    if batch % 10 == 0:
        line.tick()


def _restart(line: Line) -> None:
    """Each query in turn ends with an exception and begins again."""
    for number in range(RESTARTS):
        line.now += 0.01
        query = line.state.snapshot(line.now).queries[number % QUERIES]
        line.state.hear(
            Terminated(query.query_id, query.run_id, "java.io.IOException: gone", None), line.now
        )
        line.state.hear(Started(query.query_id, str(uuid.uuid4()), query.name), line.now)


def _held() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


if __name__ == "__main__":
    sys.exit(main())
