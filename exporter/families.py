"""Metric families without unknown figures. Pure.

Samples are tuples, because the dictionary of labels per sample in ``prometheus_client`` took most
of a scrape. ``QueryCollector`` converts families for other registries.
"""

from __future__ import annotations

import math

from .buckets import Buckets

Labels = tuple[str, ...]
Sample = tuple[str, Labels, Labels, float]
"""The sample's name, its label names, their values, and the figure."""


class Family:
    """One family to add samples to: a counter, gauge, info or histogram.

    ``name`` is the name of its samples: a name that ends in ``_total`` makes it a counter, one
    that ends in ``_info`` an info.
    """

    def __init__(self, name: str, documentation: str, labels: Labels = (), kind: str = "") -> None:
        self.name = name
        self.documentation = documentation
        self.labels = labels
        self.kind = kind or _kind_of(name)
        self.samples: list[Sample] = []

    def add(self, labels: Labels, value: float | None) -> None:
        """Add one sample, unless the value is unknown: None, not finite, or Spark's -1."""
        if value is not None and value >= 0 and math.isfinite(value):
            self.samples.append((self.name, self.labels, labels, value))

    def add_info(self, labels: Labels, facts: dict[str, str]) -> None:
        """Add one set of facts."""
        names, values = (*self.labels, *facts), (*labels, *facts.values())
        self.samples.append((self.name, names, values, 1))

    def add_buckets(self, labels: Labels, buckets: Buckets) -> None:
        """Add one histogram, with the cumulative counts that Prometheus requires."""
        seen, names = 0, (*self.labels, "le")
        bounds = (*map(str, buckets.bounds), "+Inf")
        for bound, count in zip(bounds, buckets.counts, strict=True):
            seen += count
            self.samples.append((f"{self.name}_bucket", names, (*labels, bound), seen))
        self.samples.append((f"{self.name}_count", self.labels, labels, seen))
        self.samples.append((f"{self.name}_sum", self.labels, labels, buckets.sum))


def histogram(name: str, documentation: str, labels: Labels = ()) -> Family:
    """An empty family for ``add_buckets``."""
    return Family(name, documentation, labels, kind="histogram")


def printable(text: str) -> str:
    """The text without lone surrogates, which would break the whole exposition."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _kind_of(name: str) -> str:
    if name.endswith("_total"):
        return "counter"
    return "info" if name.endswith("_info") else "gauge"
