"""The figures in words: what one of each costs, and whether many cost more than many times that."""

from statistics import median

from ..common.result import Row, at_least, at_most, percentile

PROMISED_AT = 1_000
WHERE_LINEAR_ENDS = 1.5
"""A curve that is steeper than its size by more than noise and caches make it."""

Samples = dict[str, dict[int, list[float]]]
"""Seconds by what was timed, then by size: an event, a tick, a scrape."""


def details(samples: Samples) -> list[str]:
    """Medians and 99th percentiles in microseconds, by number of queries."""
    sizes = list(samples["event"])
    head = f"{'  microseconds: median (p99)':28}" + "".join(f"{size:>22,}" for size in sizes)
    return [head, *(f"  {name:26}" + _cells(of) for name, of in samples.items())]


def _cells(of: dict[int, list[float]]) -> str:
    cells = (f"{median(s) * 1e6:,.1f} ({percentile(s, 99) * 1e6:,.1f})" for s in of.values())
    return "".join(f"{cell:>22}" for cell in cells)


def rows(samples: Samples) -> list[Row]:
    """The targets for a thousand queries, and for the growth up to ten thousand."""
    medians = {name: {n: median(s) for n, s in of.items()} for name, of in samples.items()}
    event, decode = medians["event"], medians["bare decode"]
    scrape, bare = medians["scrape"], medians["bare exposition"]
    at = PROMISED_AT
    return [
        at_least(f"events/s, {at:,} queries", 1 / event[at], 30_000, "/s"),
        Row("an event / its bare typed decode", f"{event[at] / decode[at]:.1f}x"),
        at_most(f"a tick over {at:,} queries", medians["tick"][at] * 1e3, 10, " ms"),
        at_most(f"a scrape of {at:,} / bare exposition", scrape[at] / bare[at], 2, "x"),
        Row(f"a scrape of {at:,} queries", f"{scrape[at] * 1e3:.0f} ms"),
        _growth("an event", event, per_query=False),
        _growth("a tick", medians["tick"]),
        _growth("a scrape", scrape),
        Row("bare exposition: the same", f"{_beyond(bare):.2f}x"),
    ]


def _growth(name: str, of: dict[int, float], *, per_query: bool = True) -> Row:
    what = f"{name}: beyond linear, {_SMALL:,} to {_LARGE:,} queries"
    beyond = _beyond(of) if per_query else of[_LARGE] / of[_SMALL]
    return at_most(what, beyond, WHERE_LINEAR_ENDS, "x")


def _beyond(of: dict[int, float]) -> float:
    """How much more one query costs in the largest driver than in one of a hundred."""
    return (of[_LARGE] / _LARGE) / (of[_SMALL] / _SMALL)


_SMALL, _LARGE = 100, 10_000
