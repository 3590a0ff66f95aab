"""StreamingQueryFlapping: it is started again and again, and dies again and again.

The reason says ``poison_batch`` when every one of the last deaths was of the same batch and
the same error class: starting it once more will not help. With a spool, failures of earlier
processes count, and are said to be theirs.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...listener.query import Died
from ..deaths import in_earlier_processes, is_flapping, poison_batch, recent
from ..evidence import evidence
from ..finding import Finding, QueryState, Severity
from ..headline import code_last
from ..rule_context import RuleContext

NAME = "StreamingQueryFlapping"
POISON = "poison_batch: "
"""Begins its reason where one batch fails again and again."""


def check(context: RuleContext) -> Finding | None:
    """Fire when the restart budget is spent; a commit in between does not give it back."""
    if not is_flapping(context.query, context.limits, context.now):
        return None
    reason = _how(context)
    return Finding(
        alertname=NAME,
        query=context.label,
        severity=Severity.CRITICAL,
        state=QueryState.FLAPPING,
        reason=reason,
        summary=f"{context.label} keeps failing: {code_last(reason)}",
        evidence={**evidence(context), "deaths": _deaths(context)},
    )


def _how(context: RuleContext) -> str:
    poison = poison_batch(context.query, context.limits)
    if poison is not None:
        times = context.limits.restart_budget
        same = context.query.deaths[-times:]
        return (
            f"{POISON}batch {poison.batch_id} failed {times} times with "
            f"{poison.error_class}{_earlier(context, same)}"
        )
    ref = context.query.deaths[-1].at if context.query.failure is not None else context.now
    counted = recent(context.query, context.limits, ref)
    last = context.query.deaths[-1]
    return (
        f"{len(counted)} failures within {context.limits.restart_window_seconds:.0f} s"
        f"{_earlier(context, counted)}, the last of {last.error_class}"
    )


def _earlier(context: RuleContext, deaths: Sequence[Died]) -> str:
    count = in_earlier_processes(deaths, context.snapshot.began_at)
    return f", {count} of them in earlier processes" if count else ""


def _deaths(context: RuleContext) -> str:
    return "\n".join(
        f"{context.now - died.at:.0f} s ago: batch {died.batch_id}, {died.error_class}"
        f"{', in an earlier process' if died.at < context.snapshot.began_at else ''}"
        for died in reversed(context.query.deaths)
    )
