"""StreamingQueryFlapping: the query restarts and fails again and again.

The reason says ``poison_batch`` when all of the last failures had the same batch and the same
error class: another restart will not help. With a spool, failures in earlier processes count too,
and the reason says how many they are.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...core.states import QueryState
from ...listener.state.query import UNKNOWN_BATCH, Died, Query
from ..alert_text import code_last
from ..evidence import evidence, report
from ..finding import Finding, Severity
from ..policy import RESTART_WINDOW_SECONDS, Limits
from ..rule_context import RuleContext, is_handled

NAME = "StreamingQueryFlapping"


def check(context: RuleContext) -> Finding | None:
    """Fire when the restart budget is used up; a commit in between does not reset it.

    For a query that ``supervise`` has given up, or restarts without delay, it is a warning.
    """
    if not is_flapping(context.query, context.limits, context.now):
        return None
    severity = Severity.WARNING if is_handled(context) else Severity.CRITICAL
    facts = {**evidence(context), "deaths": _deaths(context)}
    state, reason = QueryState.FLAPPING, _reason(context)
    does, says = "keeps failing", code_last(reason)
    return report(context, NAME, severity, state, reason, does=does, says=says, facts=facts)


def _reason(context: RuleContext) -> str:
    poison = poison_batch(context.query, context.limits)
    if poison is not None:
        times = context.limits.restart_budget
        same = context.query.deaths[-times:]
        return (
            f"poison_batch: batch {poison.batch_id} failed {times} times with "
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


# -- failures over all runs ---------------------------------------------------------------------


def is_flapping(query: Query, limits: Limits, now: float) -> bool:
    """Whether the restart budget is used up.

    While a query is down, its failures do not expire: the problem still exists.
    """
    if not query.deaths:
        return False
    at = query.deaths[-1].at if query.failure is not None else now
    spent = len(recent(query.deaths, at)) >= limits.restart_budget
    return spent or poison_batch(query, limits) is not None


def poison_batch(query: Query, limits: Limits) -> Died | None:
    """A failure, if all failures of the budget had its batch and its error class.

    One whose batch is not known may have had the same.
    """
    last = query.deaths[-limits.restart_budget :]
    if query.unrecovered_deaths == 0 or repeated(last) < limits.restart_budget:
        return None
    with_batch = [died for died in last if died.batch_id != UNKNOWN_BATCH]
    newest = with_batch[-1] if with_batch else None
    return None if newest is None or is_committed(query, newest) else newest


def repeated(deaths: Sequence[Died]) -> int:
    """How many of the last failures had one error class and, where it is known, one batch."""
    count, batch_id = 0, UNKNOWN_BATCH
    for died in reversed(deaths):
        another = UNKNOWN_BATCH not in {batch_id, died.batch_id} and batch_id != died.batch_id
        if another or died.error_class != deaths[-1].error_class:
            break
        batch_id = max(batch_id, died.batch_id)
        count += 1
    return count


def is_committed(query: Query, died: Died) -> bool:
    """Whether the checkpoint showed, when the last run began, that the batch was committed.

    A process that querypulse did not monitor may have committed it.
    """
    point = query.start_point
    done = point.committed if point is not None else None
    return done is not None and done.batch_id >= died.batch_id != UNKNOWN_BATCH


def was_flapping_already(query: Query, limits: Limits) -> bool:
    """Whether the budget was already used up when the query last became unhealthy."""
    fell = max(0, len(query.deaths) - max(1, query.unrecovered_deaths))
    until_then = query.deaths[: fell + 1]
    if not until_then:
        return False
    return len(recent(until_then, until_then[-1].at)) >= limits.restart_budget


def recent(deaths: Sequence[Died], at: float) -> list[Died]:
    """The failures within the restart window that ends at ``at``."""
    return [died for died in deaths if at - died.at <= RESTART_WINDOW_SECONDS]
