"""The figures in words: medians, tails and ratios of what the rounds measured."""

from collections.abc import Sequence
from statistics import median, quantiles

from ..common.result import Row, at_least, at_most
from .candidates import NAMES, NOTHING, OURS, PEER, STOCK
from .measuring import Round

BELOW_STOCK = 500
ABOVE_NOTHING = 1.2
PERCENTILES = (50, 90, 99)


def details(title: str, rounds: Sequence[Round]) -> list[str]:
    """Microseconds of each candidate as a small table."""
    head = f"{'  microseconds':24}" + "".join(f"{f'p{percent}':>10}" for percent in PERCENTILES)
    pooled = _pooled(rounds)
    body = [_spread(name, pooled[name]) for name in NAMES]
    return ["", f"onQueryProgress, {title}: {len(pooled[OURS])} events", head, *body]


def rows(title: str, rounds: Sequence[Round], *, promised: bool) -> list[Row]:
    """Each ratio of medians; how far below stock is ``promised`` of the stateful query only."""
    times = {name: median(nanos) for name, nanos in _pooled(rounds).items()}
    below = times[STOCK] / times[OURS]
    question = f"{title}: {STOCK} / {OURS}"
    above_nothing = f"{title}: {OURS} / {NOTHING}"
    return [
        at_least(question, below, BELOW_STOCK, "x") if promised else _told(question, below),
        _told(f"{title}: {STOCK} / {NOTHING} (Python's bound)", times[STOCK] / times[NOTHING]),
        at_most(above_nothing, times[OURS] / times[NOTHING], ABOVE_NOTHING, "x"),
        _told(f"{title}: {PEER} / {OURS}", times[PEER] / times[OURS]),
    ]


def _told(question: str, ratio: float) -> Row:
    return Row(question, f"{ratio:,.3g}x")


def _pooled(rounds: Sequence[Round]) -> Round:
    return {name: [nanos for one in rounds for nanos in one[name]] for name in NAMES}


def _spread(name: str, nanoseconds: Sequence[int]) -> str:
    cuts = quantiles(nanoseconds, n=100)
    cells = "".join(f"{cuts[percent - 1] / 1000:>10,.0f}" for percent in PERCENTILES)
    return f"  {name:22}{cells}"
