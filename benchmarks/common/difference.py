"""By how much one thing takes longer than another, how sure that is, and who takes which turn."""

import math
from collections.abc import Sequence
from statistics import median, quantiles
from typing import NamedTuple

from .result import Row, at_most, short

_STANDARD_DEVIATION = 1.349
"""Quartiles lie so many standard deviations apart."""
_MEDIAN_ERROR = 1.253
"""The error of a median is so much larger than that of a mean."""
_CERTAINTY = 2


class Difference(NamedTuple):
    """The difference of two medians; the true one lies within ``margin`` in 19 of 20 cases."""

    middle: float
    margin: float

    def row(self, question: str, unit: str) -> Row:
        """A row without a target."""
        return Row(question, f"{short(self.middle)}{unit} (± {short(self.margin)})")

    def within_margin(self, question: str, unit: str) -> Row:
        """A row whose figure must not be larger than what chance makes it."""
        row = self.row(question, unit)
        return row._replace(target="at most its margin", reached=self.middle <= self.margin)

    def at_most(self, question: str, limit: float, unit: str) -> Row:
        """A row whose figure must not be larger, whatever its margin."""
        row = at_most(question, self.middle, limit, unit)
        return row._replace(measured=f"{row.measured} (± {short(self.margin)})")


def difference(ones: Sequence[float], others: Sequence[float]) -> Difference:
    """Of two series whose equal indexes are pairs."""
    differences = [one - other for one, other in zip(ones, others, strict=True)]
    return Difference(median(differences), _CERTAINTY * _error(differences))


def difference_of_medians(ones: Sequence[float], others: Sequence[float]) -> Difference:
    """Of two series that have nothing to do with each other."""
    margin = _CERTAINTY * math.hypot(_error(ones), _error(others))
    return Difference(median(ones) - median(others), margin)


def _error(values: Sequence[float]) -> float:
    """The standard error of their median, by their quartiles: a few far out do not count."""
    low, _, high = quantiles(values, n=4)
    return _MEDIAN_ERROR * (high - low) / _STANDARD_DEVIATION / math.sqrt(len(values))


def balanced(names: Sequence[str]) -> list[list[str]]:
    """As many orders as names: each has each place once, and each other before it once.

    A Williams design, which exists in this form for an even number of names.

    Raises:
        ValueError: the number is odd.

    """
    count = len(names)
    if count % 2:
        raise ValueError(f"no balanced orders of {count} names: the number must be even")
    first = [(-step // 2 if step % 2 else step // 2) % count for step in range(count)]
    return [[names[(place + shift) % count] for place in first] for shift in range(count)]
