"""What listening takes of the CPU of a driver with eight queries: by its threads, and in all.

``python -m benchmarks.job_cost``. The driver is Python and JVM together, without the JIT
compiler. Scraper, receiver and gateway are processes of their own and not counted.

By its threads: what Python and those threads of the JVM use that serve it, less what they use
when nobody listens; ours is measured over one long turn, when its code is warm. In all: how many
rows the job does with a CPU second of its driver, Spark's own threads included, in short turns
that alternate with nobody's.
"""

import sys
from collections.abc import Sequence
from statistics import median, quantiles

from ..common.listeners import NONE, OURS, PEER, STOCK
from ..common.result import Row, at_least, at_most, lines, short, write
from ..common.session import session
from .candidates import all_candidates
from .job import EightQueries
from .measuring import Shares, Turn, measure, ratios, steady, typical
from .meter import KEEP_COMPILERS, Meter

ALLOWED_MS_A_SECOND = 10
OF_NOBODY = 0.99
OF_STOCK = 1
LEAST_MS = 0.05
WRITTEN = 750
"""Progress events of each query, written before anything is measured: a driver has written as many
after half an hour, and then the JVM has compiled what writes them.
"""
FINE = 0.01
"""Above this the table says that chance does as much as what it is to show."""


def main() -> int:
    """Measure, print, write."""
    spark = session("job cost", KEEP_COMPILERS)
    job = EightQueries(spark)
    job.await_gap()
    meter = Meter(spark)
    job.write_progress(WRITTEN)
    with all_candidates(spark) as candidates:
        shares = steady(meter, candidates[OURS])
        turns = measure(job, meter, candidates)
    job.stop()
    spark.stop()
    table = _table(shares, ratios(turns), turns)
    write("job_cost", table, {"steady": shares, "turns": turns})
    print(*_details(turns), *_by_thread(shares), sep="\n")
    print(*lines("CPU of a driver with eight queries", table), sep="\n")
    return 0


def _table(shares: Shares, found: dict[str, list[float]], turns: Sequence[Turn]) -> list[Row]:
    middle = {name: median(values) for name, values in found.items()}
    own = sum(shares.values())
    job = median(turn.ms_a_second for turn in turns if turn.name == NONE)
    return [
        at_most(f"{OURS}: CPU of its threads", own, ALLOWED_MS_A_SECOND, " ms/s"),
        *(Row(f"{name}: the same", f"{short(_own(turns, name))} ms/s") for name in (STOCK, PEER)),
        at_least(f"{OURS} / {NONE}, by its own threads", job / (job + own), OF_NOBODY),
        at_least(f"{OURS} / {NONE}{_chance(found[NONE])}", middle[OURS], OF_NOBODY),
        at_least(f"{OURS} / {STOCK}", middle[OURS] / middle[STOCK], OF_STOCK),
        *(Row(f"{name} / {NONE}", _spread(found[name])) for name in (OURS, STOCK, PEER)),
        Row(f"{NONE} / {NONE}: chance", _spread(found[NONE])),
    ]


def _own(turns: Sequence[Turn], name: str) -> float:
    """CPU milliseconds a second by its own threads, above nobody's."""
    of, nobody = (
        median(turn.own_ms_a_second for turn in turns if turn.name == who) for who in (name, NONE)
    )
    return of - nobody


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


def _by_thread(shares: Shares) -> list[str]:
    """Where our part goes."""
    largest = sorted(shares.items(), key=lambda share: -share[1])
    head = f"  CPU ms a second by thread, {OURS}"
    return ["", head, *(f"    {name:42}{ms:>8.2f}" for name, ms in largest if ms >= LEAST_MS)]


if __name__ == "__main__":
    sys.exit(main())
