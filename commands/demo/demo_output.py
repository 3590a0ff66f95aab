"""Prints the demo's events in the terminal as they happen."""

from __future__ import annotations

import sys
import textwrap
import time
from collections.abc import Sequence

from ...alerting.details import says
from ...exporter.status import QueryStatus
from .page_receiver import ReceivedAlert

_HEALTHY = frozenset({"running", "idle", "waiting", "slow", "lagging"})
_FEW = 2
_SHOWN = (
    "summary",
    "reason",
    "python_line",
    "siblings",
    "downstream",
    "last_commit",
    "window",
    "tasks",
)


class DemoOutput:
    """Prints lines with the seconds since the beginning."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._last = ""

    def say(self, text: str) -> None:
        """Print one line."""
        elapsed = time.monotonic() - self._began
        sys.stdout.write(f"[{elapsed:6.1f} s] {text}\n")
        sys.stdout.flush()

    def queries(self, queries: Sequence[QueryStatus]) -> None:
        """Print how many queries are healthy, whenever that changes."""
        healthy = sum(query.state in _HEALTHY for query in queries)
        text = f"job RUNNING, {healthy} of {len(queries)} queries healthy"
        others = _by_state([query for query in queries if query.state not in _HEALTHY])
        if others:
            text += f" ({others})"
        if text != self._last:
            self._last = text
            self.say(text)

    def page(self, page: ReceivedAlert, seconds: float) -> None:
        """Print a page as the person on call reads it, ``seconds`` after its cause."""
        labels, annotations = page.labels, page.annotations
        if page.status == "resolved":
            self.say(annotations["summary"])
            return
        self.say(f"a page arrives, {seconds:.2f} s later")
        rows = [("alertname", labels["alertname"]), ("query", labels["query"])]
        rows += [("severity", labels["severity"])]
        redundant = says(annotations.get("summary", ""), annotations.get("reason", ""))
        shown = [name for name in _SHOWN if name != "reason" or not redundant]
        rows += [(name, annotations[name]) for name in shown if annotations.get(name)]
        sys.stdout.write("\n  +-- PAGE " + "-" * 70 + "\n")
        for name, text in rows:
            lines = textwrap.wrap(text, 64) or [""]
            sys.stdout.write(f"  | {name:<12} {lines[0]}\n")
            sys.stdout.writelines(f"  | {'':<12} {line}\n" for line in lines[1:])
        sys.stdout.write("  +" + "-" * 79 + "\n\n")
        sys.stdout.flush()

    def facts(self, facts: dict[str, str]) -> None:
        """Print the final facts."""
        sys.stdout.write("\nThe facts\n")
        for name, text in facts.items():
            sys.stdout.write(f"  {name:<18} {text}\n")
        sys.stdout.flush()


def _by_state(queries: Sequence[QueryStatus]) -> str:
    """The names of one or two queries, the count of more: "a failed, 5 starting"."""
    names: dict[str, list[str]] = {}
    for query in queries:
        names.setdefault(query.state, []).append(str(query.name))
    return ", ".join(
        f"{len(some)} {state}" if len(some) > _FEW else f"{', '.join(some)} {state}"
        for state, some in names.items()
    )
