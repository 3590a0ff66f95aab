"""Metric families, and Prometheus' text formats, byte for byte as ``prometheus_client`` has them.

``prometheus_client`` checks the names of every sample again, for OpenMetrics letter by letter, and
makes a dictionary of labels for each, which together take most of a scrape. Our names are
constants, and tests check them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

from prometheus_client.utils import floatToGoString

from .published_state import Buckets, Labels

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8; escaping=underscores"
_large_figure: Callable[[float], str] = floatToGoString
MILLION = 1e6
KEPT_LABELS = 4096
"""Cached label texts: many samples share their labels, also in the next scrape; at most 1 MB."""
INFINITE = frozenset({"spark_streaming_query_caught_up_seconds"})
"""Only these are infinite on purpose: never."""
SIGNED = frozenset(
    {"spark_streaming_query_observed", "spark_streaming_query_freshness_budget_left_seconds"}
)
"""Only these may be negative: figures of the user's own, and a budget that is overspent."""
_SUFFIXES = {"counter": "_total", "info": "_info"}
"""The suffixes that OpenMetrics omits from family names."""

Sample = tuple[str, Labels, Labels, float]
"""The sample's name, its label names, their values, and the figure."""


class Family:
    """One family to add samples to: a counter, gauge, info or histogram.

    ``name`` is the name of its samples: a name that ends in ``_total`` makes it a counter, one
    that ends in ``_info`` an info, and the label ``le`` a histogram.
    """

    def __init__(self, name: str, documentation: str, labels: Labels = ()) -> None:
        self.name = name
        self.documentation = documentation
        self.labels = labels
        kinds = (kind for kind, suffix in _SUFFIXES.items() if name.endswith(suffix))
        self.kind = "histogram" if labels[-1:] == ("le",) else next(kinds, "gauge")
        self.samples: list[Sample] = []
        self.histograms: list[tuple[Labels, Buckets]] = []
        """What the samples of a histogram were made of."""

    def add(self, labels: Labels, value: float | None) -> None:
        """Add one sample, unless the value is unknown: None, not finite, or Spark's -1."""
        if value is None or not (math.isfinite(value) or self.name in INFINITE):
            return
        if value >= 0 or self.name in SIGNED:
            self.samples.append((self.name, self.labels, labels, value))

    def add_buckets(self, labels: Labels, buckets: Buckets) -> None:
        """Add one histogram, with the cumulative counts that Prometheus requires."""
        self.histograms.append((labels, buckets))
        seen = 0
        names = self.labels[:-1]
        bounds = (*map(str, buckets.bounds), "+Inf")
        for bound, count in zip(bounds, buckets.counts, strict=True):
            seen += count
            self.samples.append((f"{self.name}_bucket", self.labels, (*labels, bound), seen))
        self.samples.append((f"{self.name}_count", names, labels, seen))
        self.samples.append((f"{self.name}_sum", names, labels, buckets.sum))


def printable(text: str) -> str:
    """The text without lone surrogates, which would break the whole exposition."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def as_text(families: Iterable[Family]) -> bytes:
    """The families (counters, gauges, histograms, infos) as ``TEXT``, without timestamps."""
    lines: list[str] = []
    for family in families:
        kind = "gauge" if family.kind == "info" else family.kind
        help_text = family.documentation.replace("\\", r"\\").replace("\n", r"\n")
        lines += _head(family.name, help_text, kind)
        lines += _samples(family)
    return "".join(lines).encode()


def as_openmetrics(families: Iterable[Family]) -> bytes:
    """The families as ``OPENMETRICS``."""
    lines: list[str] = []
    for family in families:
        lines += _head(base_name(family), _escaped(family.documentation), family.kind)
        lines += _samples(family)
    return "".join((*lines, "# EOF\n")).encode()


def base_name(family: Family) -> str:
    """The name of a family in OpenMetrics."""
    return family.name.removesuffix(_SUFFIXES.get(family.kind, ""))


def _head(name: str, help_text: str, kind: str) -> tuple[str, str]:
    return f"# HELP {name} {help_text}\n", f"# TYPE {name} {kind}\n"


def _samples(family: Family) -> Iterator[str]:
    for name, names, values, figure in family.samples:
        # For figures without an exponent, repr writes the same text at a fifth of the cost.
        shown = repr(float(figure)) if 0 <= figure < MILLION else _large_figure(figure)
        yield f"{name}{_labels(names, values)} {shown}\n"


@lru_cache(KEPT_LABELS)
def _labels(names: Labels, values: Labels) -> str:
    if not names:
        return ""
    labels = sorted(zip(names, values, strict=True))
    pairs = [f'{name}="{_escaped(printable(text))}"' for name, text in labels]
    return f"{{{','.join(pairs)}}}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
