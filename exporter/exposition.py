"""Families -> the text that Prometheus reads, byte for byte as ``prometheus_client`` writes it.

That one checks the names of every sample again, for OpenMetrics letter by letter: three quarters
of a scrape. Our names are constants, and tests check them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

from prometheus_client.core import Metric
from prometheus_client.utils import floatToGoString

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8; escaping=underscores"
_large_figure: Callable[[float], str] = floatToGoString
MILLION = 1e6
KEPT_LABELS = 4096
"""Many figures share their labels, and the next scrape has them again; 1 MB at most."""
_TYPES = {"counter": ("counter", "_total"), "info": ("gauge", "_info")}
"""The type and the end of the name that OpenMetrics leaves out and the older format has."""


def as_text(families: Iterable[Metric]) -> bytes:
    """Counters, gauges, histograms and infos, without timestamps, as ``TEXT``."""
    lines: list[str] = []
    for family in families:
        kind, suffix = _TYPES.get(family.type, (family.type, ""))
        help_text = family.documentation.replace("\\", r"\\").replace("\n", r"\n")
        lines += _head(family.name + suffix, help_text, kind)
        lines += _samples(family)
    return "".join(lines).encode()


def as_openmetrics(families: Iterable[Metric]) -> bytes:
    """The same as ``OPENMETRICS``."""
    lines: list[str] = []
    for family in families:
        lines += _head(family.name, _escaped(family.documentation), family.type)
        lines += _samples(family)
    return "".join((*lines, "# EOF\n")).encode()


def _head(name: str, help_text: str, kind: str) -> tuple[str, str]:
    return f"# HELP {name} {help_text}\n", f"# TYPE {name} {kind}\n"


def _samples(family: Metric) -> Iterator[str]:
    for sample in family.samples:
        yield f"{sample.name}{_labels(tuple(sample.labels.items()))} {_figure(sample.value)}\n"


def _figure(value: float) -> str:
    # Python's own way is the same and costs a fifth, where it needs no exponent.
    return repr(float(value)) if 0 <= value < MILLION else _large_figure(value)


@lru_cache(KEPT_LABELS)
def _labels(labels: tuple[tuple[str, str], ...]) -> str:
    if not labels:
        return ""
    pairs = [f'{name}="{_escaped(text)}"' for name, text in sorted(labels)]
    return f"{{{','.join(pairs)}}}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
