"""Tells the story in the terminal as it happens."""

from __future__ import annotations

import sys
import textwrap
import time
from collections.abc import Sequence

from ...exporter.status import QueryStatus
from .page_receiver import Page

_WELL = frozenset({"running", "idle", "waiting", "slow", "lagging"})
_SHOWN = ("summary", "reason", "table", "siblings", "last_commit", "window", "tasks", "python_line")


class Narrator:
    """Prints lines with the seconds since the beginning."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._last = ""

    def say(self, text: str) -> None:
        """Print one line of the story."""
        elapsed = time.monotonic() - self._began
        sys.stdout.write(f"[{elapsed:6.1f} s] {text}\n")
        sys.stdout.flush()

    def queries(self, queries: Sequence[QueryStatus]) -> None:
        """Tell how many queries are well, whenever that changes."""
        well = [query.name for query in queries if query.state in _WELL]
        others = [f"{query.name} {query.state}" for query in queries if query.name not in well]
        text = f"job RUNNING, {len(well)} of {len(queries)} queries well"
        if others:
            text += f" ({', '.join(others)})"
        if text != self._last:
            self._last = text
            self.say(text)

    def page(self, page: Page, seconds: float) -> None:
        """Show a page as the one on call reads it, ``seconds`` after what it tells of."""
        self.say(f"a page arrives ({page.status}), {seconds:.2f} s later")
        labels, annotations = page.labels, page.annotations
        rows = [("alertname", labels["alertname"]), ("query", labels["query"])]
        rows += [("severity", labels["severity"])]
        rows += [(name, annotations[name]) for name in _SHOWN if annotations.get(name)]
        sys.stdout.write("\n  +-- PAGE " + "-" * 70 + "\n")
        for name, text in rows:
            lines = textwrap.wrap(text, 64) or [""]
            sys.stdout.write(f"  | {name:<12} {lines[0]}\n")
            sys.stdout.writelines(f"  | {'':<12} {line}\n" for line in lines[1:])
        sys.stdout.write("  +" + "-" * 79 + "\n\n")
        sys.stdout.flush()

    def facts(self, facts: dict[str, str]) -> None:
        """Close with the facts."""
        sys.stdout.write("\nThe facts\n")
        for name, text in facts.items():
            sys.stdout.write(f"  {name:<18} {text}\n")
        sys.stdout.flush()
