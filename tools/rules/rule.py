"""One alert as it is written down here."""

from __future__ import annotations

from typing import NamedTuple

AS_REPORTED = "{{ $labels.severity }}"


class Rule(NamedTuple):
    """One alert. ``severity`` is critical, warning or none, or what ``expr`` says of each
    series (``AS_REPORTED``); times are Prometheus' durations.

    ``expr`` is PromQL whose series carry ``app``, and ``query`` unless that is fixed here.
    ``comment`` is for whoever reads the rules, the three texts are for who is told.
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


class Group(NamedTuple):
    """Rules that are evaluated one after the other."""

    name: str
    rules: tuple[Rule, ...]
