"""The source form of an alert."""

from __future__ import annotations

from typing import NamedTuple

AS_REPORTED = "{{ $labels.severity }}"


class Rule(NamedTuple):
    """One alert. ``severity`` is critical, warning or none, or the label of each series of
    ``expr`` (``AS_REPORTED``); times are Prometheus' durations.

    ``expr`` is PromQL whose series have ``app``, and ``query`` unless that is fixed here.
    ``comment`` is for readers of the rules, the three texts are for receivers of the alert.
    """

    name: str
    severity: str
    expr: str
    summary: str
    description: str
    reason: str = ""
    wait: str = ""
    keep: str = ""
    app: str = ""
    query: str = ""
    comment: str = ""


class RuleGroup(NamedTuple):
    """Rules that Prometheus evaluates one after the other."""

    name: str
    rules: tuple[Rule, ...]
