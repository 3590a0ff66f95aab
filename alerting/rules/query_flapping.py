"""StreamingQueryFlapping: the query restarts and fails again and again.

The reason says ``poison_batch`` when all of the last failures had the same batch and the same
error class: another restart will not help. With a spool, failures in earlier processes count too,
and the reason says how many they are.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...core.states import QueryState
from ...listener.state.query import UNKNOWN_BATCH, Died
from ..alert_text import code_last
from ..evidence import evidence, report
from ..finding import Finding, Severity
from ..policy import RESTART_WINDOW_SECONDS
from ..restarts import is_flapping, poison_batch, recent
from ..rule_context import RuleContext, is_handled

NAME = "StreamingQueryFlapping"
POISON = "poison_batch: "
"""The reason begins with this when one batch fails again and again."""


def check(context: RuleContext) -> Finding | None:
    """Fire when the restart budget is used up; a commit in between does not reset it.

    For a query that ``supervise`` has given up, or restarts without delay, it is a warning.
    """
    if not is_flapping(context.query, context.limits, context.now):
        return None
    severity = Severity.WARNING if is_handled(context) else Severity.CRITICAL
    facts = {**evidence(context), "deaths": _deaths(context)}
    state, reason = QueryState.FLAPPING, _reason(context)
    return report(
        context,
        NAME,
        severity,
        state,
        reason,
        does="keeps failing",
        says=code_last(reason),
        facts=facts,
    )


def batch_of(reason: str) -> str:
    """The batch that fails again and again, as a reason names it; empty if none does."""
    return reason.removeprefix(POISON).partition(" failed")[0] if reason.startswith(POISON) else ""


def _reason(context: RuleContext) -> str:
    poison = poison_batch(context.query, context.limits)
    if poison is not None:
        times = context.limits.restart_budget
        same = context.query.deaths[-times:]
        return (
            f"{POISON}batch {poison.batch_id} failed {times} times with "
            f"{poison.error_class}{_earlier(context, same)}"
        )
    at = context.query.deaths[-1].at if context.query.failure is not None else context.now
    counted = recent(context.query.deaths, at)
    last = context.query.deaths[-1]
    return (
        f"{len(counted)} failures within {RESTART_WINDOW_SECONDS:.0f} s"
        f"{_earlier(context, counted)}, the last with {last.error_class}"
    )


def _earlier(context: RuleContext, deaths: Sequence[Died]) -> str:
    count = sum(died.at < context.snapshot.began_at for died in deaths)
    return f", {count} of them in earlier processes" if count else ""


def _deaths(context: RuleContext) -> str:
    return "\n".join(
        f"{context.now - died.at:.0f} s ago: {_batch(died)}, {died.error_class}"
        f"{', in an earlier process' if died.at < context.snapshot.began_at else ''}"
        for died in reversed(context.query.deaths)
    )


def _batch(died: Died) -> str:
    return f"batch {died.batch_id}" if died.batch_id != UNKNOWN_BATCH else "unknown batch"
