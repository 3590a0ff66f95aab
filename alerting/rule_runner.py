"""Runs rules so that one that raises affects no other rule and no other query."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec

from .finding import Finding

P = ParamSpec("P")


class RuleRunner:
    """``errors`` has the first error of each rule that raised, by the rule's name."""

    def __init__(self) -> None:
        self.errors: dict[str, Exception] = {}

    def run(
        self, rule: Callable[P, Finding | None], *args: P.args, **kwargs: P.kwargs
    ) -> Finding | None:
        """What the rule finds; None if it raises."""
        try:
            return rule(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - the other rules must still run
            self.errors.setdefault(rule.__module__.rpartition(".")[2], error)
            return None
