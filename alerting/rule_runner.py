"""Asks rules, so that one that raises costs no other rule and no other query anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec

from .finding import Finding

P = ParamSpec("P")


class RuleRunner:
    """One round of evaluation; ``errors`` are what rules have raised, the first of each."""

    def __init__(self) -> None:
        self.errors: dict[str, Exception] = {}

    def run(
        self, rule: Callable[P, Finding | None], *args: P.args, **kwargs: P.kwargs
    ) -> Finding | None:
        """What the rule finds; None where it raises."""
        try:
            return rule(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - whatever it is, the other rules stand
            self.errors.setdefault(rule.__module__.rpartition(".")[2], error)
            return None
