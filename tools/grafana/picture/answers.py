"""What Prometheus says to a panel's queries."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import requests

PATIENCE_SECONDS = 30.0
POINTS = 240
"""How many points a line has, at most."""


class Series(NamedTuple):
    """Labels, and pairs of Unix seconds and a value; a value that is no number is left out."""

    labels: dict[str, str]
    points: list[tuple[float, float]]


class Answers:
    """Asks the Prometheus at ``url`` about the time from ``start`` to ``end`` (Unix seconds).

    ``chosen`` gives the dashboard's variables their values, as regexes; the others match all.
    """

    def __init__(self, url: str, start: float, end: float, chosen: dict[str, str]) -> None:
        self.start, self.end = start, end
        self.step = max(1.0, (end - start) / POINTS)
        self._url = url
        self._values = {
            **dict.fromkeys(("job", "instance", "app", "query"), ".+"),
            **chosen,
            "__rate_interval": f"{int(max(4 * self.step, 15))}s",
            "__range": f"{int(end - start)}s",
        }

    def drawn(self, target: dict[str, Any]) -> list[Series]:
        """The target's lines over the whole time."""
        times = {"start": self.start, "end": self.end, "step": self.step}
        return self._ask("query_range", target, times, "values")

    def now(self, target: dict[str, Any]) -> list[Series]:
        """The target's series at the end, of one point each."""
        return self._ask("query", target, {"time": self.end}, "value")

    def _ask(
        self, what: str, target: dict[str, Any], times: dict[str, float], key: str
    ) -> list[Series]:
        filled = re.sub(r"\$(\w+)", lambda found: self._values[found[1]], target["expr"])
        asked = {"query": filled, **times}
        answer = requests.post(f"{self._url}/api/v1/{what}", asked, timeout=PATIENCE_SECONDS)
        answer.raise_for_status()
        found = answer.json()["data"]["result"]
        return [_series(one["metric"], one[key]) for one in found]


def _series(labels: dict[str, str], value: list[Any]) -> Series:
    pairs = value if value and isinstance(value[0], list) else [value]
    return Series(labels, [(at, float(text)) for at, text in pairs if text != "NaN"])


def legend(target: dict[str, Any], labels: dict[str, str]) -> str:
    """A line's name as the target wants it."""
    pattern: str = target["legendFormat"]
    return re.sub(r"\{\{(\w+)\}\}", lambda found: labels.get(found[1], ""), pattern)
