"""Metric families that never hold an unknown figure or an unprintable label."""

from __future__ import annotations

import math
from collections.abc import Sequence

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)

from .buckets import Buckets


class Figures:
    """One family of counters (a name ending in ``_total``) or gauges, being filled."""

    def __init__(self, name: str, documentation: str, labels: Sequence[str] = ()) -> None:
        kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
        self.family: CounterMetricFamily | GaugeMetricFamily = kind(
            name, documentation, labels=labels
        )

    def add(self, labels: Sequence[str], value: float | None) -> None:
        """Add one sample, unless the value is unknown: None, not finite, or Spark's -1."""
        if value is not None and math.isfinite(value) and value >= 0:
            self.family.add_metric([printable(label) for label in labels], value)


def histogram(name: str, documentation: str, labels: Sequence[str] = ()) -> HistogramMetricFamily:
    """Begin a family for ``add_buckets``."""
    return HistogramMetricFamily(name, documentation, labels=labels)


def add_buckets(family: HistogramMetricFamily, labels: Sequence[str], buckets: Buckets) -> None:
    """Add one histogram; Prometheus wants its counts cumulative."""
    bounds = [*map(str, buckets.bounds), "+Inf"]
    seen, cumulative = 0, []
    for bound, count in zip(bounds, buckets.counts, strict=True):
        seen += count
        cumulative.append((bound, float(seen)))
    family.add_metric([printable(label) for label in labels], cumulative, buckets.sum)


def info(name: str, documentation: str, labels: Sequence[str] = ()) -> InfoMetricFamily:
    """Begin a family for ``add_info``; ``name`` ends in ``_info``."""
    return InfoMetricFamily(name.removesuffix("_info"), documentation, labels=labels)


def add_info(family: InfoMetricFamily, labels: Sequence[str], facts: dict[str, str]) -> None:
    """Add one set of facts."""
    values = {name: printable(text) for name, text in facts.items()}
    family.add_metric([printable(label) for label in labels], values)


def printable(text: str) -> str:
    """Text that can be encoded: half a surrogate pair would break the whole exposition."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
