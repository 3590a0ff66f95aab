"""``python -m tests.simulation``: histories of random seeds, on all cores."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from functools import partial
from itertools import count
from random import SystemRandom

from .generate import generate
from .history import report, shrink
from .world import PlanOutcome, run

AT_ONCE = 20
MOST_SHOWN = 3


def main() -> int:
    asked = _arguments()
    logging.disable(logging.CRITICAL)
    first = SystemRandom().randrange(10**9) if asked.seed is None else asked.seed
    if asked.seed is not None and asked.minutes is None:
        return _one(first)
    sys.stdout.write(f"seeds from {first} on, {asked.processes} processes\n")
    failed = _many(first, (asked.minutes or 1.0) * 60.0, asked.processes)
    shown: Counter[str] = Counter()
    for outcome in failed:
        shown[outcome.violation] += 1
        if shown[outcome.violation] <= MOST_SHOWN:
            sys.stdout.write(f"\n{report(shrink(outcome))}\n")
    return 1 if failed else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--minutes", type=float, help="how long (1)")
    parser.add_argument("--seed", type=int, help="the first seed; without --minutes, the only one")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    return parser.parse_args()


def _one(seed: int) -> int:
    outcome = run(generate(seed))
    sys.stdout.write(f"{report(shrink(outcome) if outcome.violation else outcome)}\n")
    return 1 if outcome.violation else 0


def _many(first: int, seconds: float, processes: int) -> list[PlanOutcome]:
    """Run batches in a pool; at most two batches per process are queued, so it ends in time."""
    began, histories, failed = time.monotonic(), 0, []
    seeds = count(first, AT_ONCE)
    quiet = partial(logging.disable, logging.CRITICAL)
    with ProcessPoolExecutor(processes, initializer=quiet) as pool:
        waiting = {pool.submit(_histories, next(seeds)) for _ in range(2 * processes)}
        while waiting:
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for outcome in (outcome for batch in done for outcome in batch.result()):
                histories += 1
                if outcome.violation:
                    failed.append(outcome)
                    sys.stdout.write(f"seed {outcome.plan.seed}: {outcome.violation}\n")
            sys.stdout.flush()
            if time.monotonic() - began < seconds:
                waiting |= {pool.submit(_histories, next(seeds)) for _ in done}
    sys.stdout.write(f"{histories} histories, {len(failed)} failed\n")
    return failed


def _histories(first: int) -> list[PlanOutcome]:
    return [run(generate(seed)) for seed in range(first, first + AT_ONCE)]


if __name__ == "__main__":
    sys.exit(main())
