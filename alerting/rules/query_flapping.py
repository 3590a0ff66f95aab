"""StreamingQueryFlapping: it is started again and again, and dies again and again.

The reason says ``poison_batch`` when every one of the last deaths was of the same batch and
the same error class: starting it once more will not help.
"""

from __future__ import annotations

from ..case import Case
from ..deaths import is_flapping, poison_batch, recent
from ..evidence import evidence
from ..finding import Finding, Severity, State
from ..headline import code_last

NAME = "StreamingQueryFlapping"


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
        return (
            f"poison_batch: batch {poison.batch_id} failed {times} times with {poison.error_class}"
        )
    ref = case.query.deaths[-1].at if case.query.failure is not None else case.now
    count = len(recent(case.query, case.limits, ref))
    last = case.query.deaths[-1]
    return (
        f"{count} failures within {case.limits.restart_window_seconds:.0f} s, "
        f"the last of {last.error_class}"
    )


def _deaths(case: Case) -> str:
    return "\n".join(
        f"{case.now - died.at:.0f} s ago: batch {died.batch_id}, {died.error_class}"
        for died in reversed(case.query.deaths)
    )
