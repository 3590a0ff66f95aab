"""``python -m tests.simulation``: histories of random seeds, on all cores."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from itertools import count
from random import SystemRandom

from .generate import generate
from .history import report, shrink
from .world import PlanOutcome, run

YEAR_SECONDS = 365.25 * 86_400
PROGRESS_SECONDS = 10.0
AT_ONCE = 20
MOST_SHOWN = 3


def main() -> int:
    """Run; return 1 if a property was broken."""
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
    """Run and print one history."""
    outcome = run(generate(seed))
    sys.stdout.write(f"{report(shrink(outcome) if outcome.violation else outcome)}\n")
    return 1 if outcome.violation else 0


def _many(first: int, seconds: float, processes: int) -> list[PlanOutcome]:
    """Run batches in a pool; at most two batches per process are queued, so it ends in time."""
    tally = _Tally()
    seeds = count(first, AT_ONCE)
    with ProcessPoolExecutor(processes, initializer=_quiet) as pool:
        waiting = {pool.submit(_histories, next(seeds)) for _ in range(2 * processes)}
        while waiting:
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for batch in done:
                tally.add(batch.result())
                if time.monotonic() - tally.began < seconds:
                    waiting.add(pool.submit(_histories, next(seeds)))
    tally.show()
    if tally.failed:
        numbers = ", ".join(str(one.plan.seed) for one in tally.failed)
        sys.stdout.write(f"failed seeds: {numbers}\n")
    return tally.failed


class _Tally:
    """The results of all histories so far."""

    def __init__(self) -> None:
        self.began = self._shown_at = time.monotonic()
        self.failed: list[PlanOutcome] = []
        self._histories, self._query_seconds, self._notified = 0, 0.0, 0

    def add(self, outcomes: list[PlanOutcome]) -> None:
        """Count a batch, and print the progress from time to time."""
        for outcome in outcomes:
            self._histories += 1
            self._query_seconds += outcome.query_seconds
            self._notified += outcome.notified
            if outcome.violation:
                self.failed.append(outcome)
                sys.stdout.write(f"seed {outcome.plan.seed}: {outcome.violation}\n")
        if time.monotonic() - self._shown_at >= PROGRESS_SECONDS:
            self._shown_at = time.monotonic()
            self.show()

    def show(self) -> None:
        """Print one line of progress."""
        minutes = (time.monotonic() - self.began) / 60.0
        broken = Counter(one.violation for one in self.failed)
        sys.stdout.write(
            f"{minutes:5.1f} min  {self._histories} histories, "
            f"{self._histories / minutes:.0f} per minute, "
            f"{self._query_seconds / YEAR_SECONDS:.4f} query-years, "
            f"{self._notified} notifications, failures: {dict(broken) or 'none'}\n"
        )
        sys.stdout.flush()


def _histories(first: int) -> list[PlanOutcome]:
    return [run(generate(seed)) for seed in range(first, first + AT_ONCE)]


def _quiet() -> None:
    logging.disable(logging.CRITICAL)


if __name__ == "__main__":
    sys.exit(main())
