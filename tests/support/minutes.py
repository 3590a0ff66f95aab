"""The minutes of a run by part: each part's share of the time that all tests took. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

PARTS = {
    "simulation": "simulator",
    "faults": "faults",
    "fuzzing": "faults",
    "connectors": "connectors",
    "spark": "Spark",
}
"""A folder of tests and its part."""
REST = "rest"
LONG_MINUTES = 1.0


def minutes_by_part(seconds: Iterable[tuple[str, float]], minutes: float) -> dict[str, float]:
    """Divide the ``minutes`` of a run between its parts, the largest first.

    ``seconds`` are node ids of tests and what these took, in any of several processes; a test may
    appear more than once (setup, call, teardown).
    """
    by_part: Counter[str] = Counter()
    for test, took in seconds:
        by_part[part_of(test)] += took
    total = sum(by_part.values())
    return {part: minutes * took / total for part, took in by_part.most_common() if total}


def part_of(test: str) -> str:
    """The part of a node id, such as ``tests/spark/test_spark_ends.py::test_x``."""
    folder = test.removeprefix("tests/").partition("/")[0]
    return PARTS.get(folder, REST)


def summary(seconds: Iterable[tuple[str, float]], minutes: float) -> str:
    """The line that ends a run; empty for a short run, where it says little."""
    if minutes < LONG_MINUTES:
        return ""
    parts = minutes_by_part(seconds, minutes)
    return "minutes by part: " + ", ".join(f"{part} {took:.1f}" for part, took in parts.items())
