"""How many rows an eight-query job does with a CPU second of its driver, whoever listens.

``python -m benchmarks.job_cost``. The driver is Python and JVM together, without
the JIT compiler. Scraper, receiver and gateway are processes of their own and not counted.
"""

import sys
from collections.abc import Sequence
from statistics import median, quantiles

from ..common.listeners import NONE, OURS, PEER, STOCK
from ..common.result import Row, at_least, lines, write
from ..common.session import session
from .candidates import all_candidates
from .job import Job
from .measuring import Turn, measure, ratios, typical
from .meter import KEEP_COMPILERS, Meter

OF_NOBODY = 0.99
OF_STOCK = 1
FINE = 0.01
"""Above this the table says that chance does as much as what it is to show."""


def main() -> int:
    """Measure, print, write."""
    spark = session("job cost", KEEP_COMPILERS)
    job = Job(spark)
    with all_candidates(spark) as candidates:
        turns = measure(job, Meter(spark), candidates)
    job.stop()
    spark.stop()
    table = _table(ratios(turns), _own_threads(turns))
    write("job_cost", table, turns)
    print(*_details(turns), *lines("Rows a CPU second of the driver", table), sep="\n")
    return 0


def _own_threads(turns: Sequence[Turn]) -> float:
    """The same ratio without chance: what was taken by Python and by the JVM's threads for it."""
    nobody, ours = typical(turns, NONE), typical(turns, OURS)
    taken = ours.python - nobody.python + ours.serving - nobody.serving
    return nobody.both / (nobody.both + taken)


def _table(found: dict[str, list[float]], own_threads: float) -> list[Row]:
    middle = {name: median(values) for name, values in found.items()}
    return [
        at_least(f"{OURS} / {NONE}{_chance(found[NONE])}", middle[OURS], OF_NOBODY),
        at_least(f"{OURS} / {NONE}, by its own threads", own_threads, OF_NOBODY),
        at_least(f"{OURS} / {STOCK}", middle[OURS] / middle[STOCK], OF_STOCK),
        *(Row(f"{name} / {NONE}", _spread(found[name])) for name in (OURS, STOCK, PEER)),
        Row(f"{NONE} / {NONE}: chance", _spread(found[NONE])),
    ]


def _chance(values: Sequence[float]) -> str:
    low, _, high = quantiles(values, n=4)
    return "" if (high - low) / 2 <= FINE else " (noise above 1%)"


def _spread(values: Sequence[float]) -> str:
    return f"{median(values):.3f} (from {min(values):.3f} to {max(values):.3f})"


def _details(turns: Sequence[Turn]) -> list[str]:
    head = f"  {'CPU ms a million rows':24}{'turns':>8}{'Python':>10}{'JVM for it':>12}{'JVM':>10}"
    body = []
    for name in (NONE, OURS, STOCK, PEER):
        cpu, count = typical(turns, name), sum(turn.name == name for turn in turns)
        figures = f"{cpu.python * 1e3:>10,.1f}{cpu.serving * 1e3:>12,.1f}{cpu.jvm * 1e3:>10,.0f}"
        body.append(f"  {name:24}{count:>8}{figures}")
    return ["", head, *body]


if __name__ == "__main__":
    sys.exit(main())
