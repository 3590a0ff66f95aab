"""The figures in words: medians, tails and ratios of what the rounds measured."""

from collections.abc import Sequence
from statistics import median, quantiles
from typing import Any

from .candidates import NAMES, NOTHING, OURS, STOCK
from .measuring import Round

PERCENTILES = {"median": 50, "p90": 90, "p99": 99}
RATIOS = ((STOCK, OURS), (OURS, NOTHING))


def summary(rounds: Sequence[Round]) -> dict[str, Any]:
    """Microseconds by candidate, and each ratio of medians: over all events, and by round."""
    pooled = {name: [nanos for one in rounds for nanos in one[name]] for name in NAMES}
    return {
        "events": len(pooled[OURS]),
        "microseconds": {name: _spread(pooled[name]) for name in NAMES},
        "ratios": {
            f"{over} / {under}": {
                "all": _ratio(pooled, over, under),
                "by_round": [_ratio(one, over, under) for one in rounds],
            }
            for over, under in RATIOS
        },
    }


def lines(title: str, figures: dict[str, Any]) -> list[str]:
    """One measured thing as a small table."""
    head = f"{'  microseconds':24}" + "".join(f"{name:>10}" for name in PERCENTILES)
    body = [
        f"  {name:22}" + "".join(f"{row[column]:>10,.0f}" for column in PERCENTILES)
        for name, row in figures["microseconds"].items()
    ]
    return ["", f"{title}: {figures['events']} events", head, *body, *_ratio_lines(figures)]


def _ratio_lines(figures: dict[str, Any]) -> list[str]:
    return [
        f"  {name:22}{_short(row['all']):>10}   rounds {_short(min(row['by_round']))}"
        f" to {_short(max(row['by_round']))}"
        for name, row in figures["ratios"].items()
    ]


def _ratio(times: Round, over: str, under: str) -> float:
    return median(times[over]) / median(times[under])


def _spread(nanoseconds: Sequence[int]) -> dict[str, float]:
    cuts = quantiles(nanoseconds, n=100)
    return {name: cuts[percent - 1] / 1000 for name, percent in PERCENTILES.items()}


def _short(ratio: float) -> str:
    return f"{ratio:.0f}" if ratio >= 20 else f"{ratio:.2f}"
