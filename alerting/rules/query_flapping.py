"""StreamingQueryFlapping: it is started again and again, and dies again and again.

The reason says ``poison_batch`` when every one of the last deaths was of the same batch and
the same error class: starting it once more will not help. With a spool, failures of earlier
processes count, and are said to be theirs.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...listener.query import Died
from ..case import Case
from ..deaths import in_earlier_processes, is_flapping, poison_batch, recent
from ..evidence import evidence
from ..finding import Finding, Severity, State
from ..headline import code_last

NAME = "StreamingQueryFlapping"
POISON = "poison_batch: "
"""Begins its reason where one batch fails again and again."""


def check(case: Case) -> Finding | None:
    """Fire when the restart budget is spent; a commit in between does not give it back."""
    if not is_flapping(case.query, case.limits, case.now):
        return None
    reason = _how(case)
    return Finding(
        alertname=NAME,
        query=case.label,
        severity=Severity.CRITICAL,
        state=State.FLAPPING,
        reason=reason,
        summary=f"{case.label} keeps failing: {code_last(reason)}",
        evidence={**evidence(case), "deaths": _deaths(case)},
    )


def _how(case: Case) -> str:
    poison = poison_batch(case.query, case.limits)
    if poison is not None:
        times = case.limits.restart_budget
        same = case.query.deaths[-times:]
        return (
            f"{POISON}batch {poison.batch_id} failed {times} times with "
            f"{poison.error_class}{_earlier(case, same)}"
        )
    ref = case.query.deaths[-1].at if case.query.failure is not None else case.now
    counted = recent(case.query, case.limits, ref)
    last = case.query.deaths[-1]
    return (
        f"{len(counted)} failures within {case.limits.restart_window_seconds:.0f} s"
        f"{_earlier(case, counted)}, the last of {last.error_class}"
    )


def _earlier(case: Case, deaths: Sequence[Died]) -> str:
    count = in_earlier_processes(deaths, case.snapshot.began_at)
    return f", {count} of them in earlier processes" if count else ""


def _deaths(case: Case) -> str:
    return "\n".join(
        f"{case.now - died.at:.0f} s ago: batch {died.batch_id}, {died.error_class}"
        f"{', in an earlier process' if died.at < case.snapshot.began_at else ''}"
        for died in reversed(case.query.deaths)
    )
