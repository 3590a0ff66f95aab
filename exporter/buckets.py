"""An immutable histogram: adding samples returns a new one."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable

import msgspec


class Buckets(msgspec.Struct, frozen=True):
    """Samples counted by size.

    ``bounds`` are inclusive upper limits, ascending; ``counts`` has one count for each and one
    more for everything above, not cumulative; ``sum`` is the sum of all samples.
    """

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    sum: float = 0.0

    @classmethod
    def of(cls, *bounds: float) -> Buckets:
        """A histogram without samples."""
        return cls(bounds, (0,) * (len(bounds) + 1))

    def add(self, samples: Iterable[float]) -> Buckets:
        """Count more samples."""
        counts, total = list(self.counts), self.sum
        for sample in samples:
            counts[bisect_left(self.bounds, sample)] += 1
            total += sample
        return Buckets(self.bounds, tuple(counts), total)

    @property
    def count(self) -> int:
        """The number of samples."""
        return sum(self.counts)

    def bound_of(self, share: float) -> float | None:
        """The smallest bound that at least ``share`` (0 to 1) of the samples stay within.

        None without samples, or when the largest bound is too small.
        """
        wanted, seen = max(1, math.ceil(share * self.count)), 0
        for bound, count in zip(self.bounds, self.counts, strict=False):
            seen += count
            if seen >= wanted:
                return bound
        return None


CALLBACK_BUCKETS = Buckets.of(0.000_01, 0.000_1, 0.001, 0.01, 0.1, 1.0)
"""Bounds for the seconds in a listener callback: an append takes microseconds."""

PROBE_BUCKETS = Buckets.of(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Bounds for the seconds of one probe of Spark."""
