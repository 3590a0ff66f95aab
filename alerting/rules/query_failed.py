"""StreamingQueryFailed: a run ended with an exception, and no later run has committed.

If earlier processes planned its batch and none of them committed it, the reason says so and for
how long: the job restarts again and again and does not get past this batch.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

from ...core.states import QueryState
from ...listener.failure import Failure
from ...listener.state.query import Ended
from ..alert_text import NEXT_STEPS
from ..evidence import evidence, failure_facts, on_restart, report, unfinished, with_age
from ..finding import Finding, Severity
from ..rule_context import RuleContext, is_restarted

NAME = "StreamingQueryFailed"
EXPECTED_GRACE_SECONDS = 300.0
"""The grace of an expected error where ``failed_grace_seconds`` is 0."""
STEPS_BY_ERROR = {
    re.compile(rf"\b(?:{pattern})\b"): steps
    for pattern, steps in {
        "CONCURRENT_STREAM_LOG_UPDATE|CONCURRENT_QUERY"
        "|Multiple streaming (?:jobs|queries)|same id is already active": (
            "1. Another run uses this checkpoint: find the second driver or query, and stop one.\n"
            "2. Give each query a checkpoint of its own.\n"
            "3. Restart this query from the same checkpoint."
        ),
        "UNKNOWN_FIELD_EXCEPTION|UnknownFieldException|DELTA_STREAMING_METADATA_EVOLUTION"
        "|DELTA_SCHEMA_CHANGED(?:_WITH_VERSION|_WITH_STARTING_OPTIONS)?": (
            "1. The schema of the source has changed: restart the query to read the new one.\n"
            "2. If it fails again, the sink refuses new columns: allow them (mergeSchema).\n"
            "3. If that is part of the job's life, add its error class to expected_errors."
        ),
        "OffsetOutOfRangeException|KAFKA_DATA_LOSS|DELTA_VERSIONS_NOT_CONTIGUOUS"
        "|Some data may have been lost": (
            "1. The source has deleted data that the query had not read.\n"
            "2. Restore that data, or accept the loss: failOnDataLoss=false reads on behind it.\n"
            "3. Raise the retention of the source, or find out why the query was late."
        ),
        "UNRELEASED_THREAD_ERROR|instance could not be acquired": (
            "1. A task that hangs, or a second attempt of it, holds the lock of the state store.\n"
            "2. Restart the query; if the task hangs in the executor, restart the executor.\n"
            "3. Again and again: turn speculation off, look for stages that read the state twice."
        ),
    }.items()
}
"""Next steps by what the error says, where the steps of the alert's runbook are too general."""


def check(context: RuleContext) -> Finding | None:
    """Fire after the grace period (0 s by default), and keep firing until a new run commits.

    While ``supervise`` restarts the query, the alert is a warning; so it is if the process ends
    within the grace, since a restart is expected. An expected error is a warning within the grace.
    A batch that earlier processes planned longer ago, and never committed, leaves no time.
    """
    ended = context.query.failure
    if ended is None or ended.failure is None:
        return None
    failure, grace = ended.failure, context.limits.failed_grace_seconds
    is_expected = _is_expected(failure, context.policy.expected_errors)
    if is_expected:
        grace = grace or EXPECTED_GRACE_SECONDS
    has_time = grace > 0 and _failing_seconds(context, ended) <= grace
    if has_time and not context.policy.ends and not is_expected:
        return None
    headline = failure.headline
    if has_time:
        why = "this error is expected" if is_expected else "the process ends"
        headline += f"; {why}, and a restart is expected within {grace:.0f} s"
    text = f"{failure.error_class} {failure.exception} {failure.message}"
    facts = {
        **evidence(context),
        **on_restart(context.query),
        **failure_facts(failure),
        "exception": "" if failure.exception == failure.error_class else failure.exception,
        "error_message": "" if failure.reason.endswith(failure.message) else failure.message,
        "seen_by": ended.signal,
        NEXT_STEPS: next(
            (steps for error, steps in STEPS_BY_ERROR.items() if error.search(text)), ""
        ),
    }
    return report(
        context,
        NAME,
        Severity.WARNING if has_time or is_restarted(context) else Severity.CRITICAL,
        QueryState.FAILED,
        with_age(failure.reason, context),
        does="failed",
        says=with_age(headline, context),
        facts=facts,
    )


def _is_expected(failure: Failure, patterns: tuple[str, ...]) -> bool:
    names = (failure.error_class, failure.exception)
    return any(fnmatchcase(name, pattern) for name in names for pattern in patterns)


def _failing_seconds(context: RuleContext, ended: Ended) -> float:
    """For how long the query has failed without a commit, also in earlier processes."""
    unrecovered = context.query.unrecovered_deaths
    failures = context.query.deaths[-unrecovered:] if unrecovered else ()
    seconds = context.watched_since(min((failure.at for failure in failures), default=ended.at))
    batch = unfinished(context)
    return seconds if batch is None else max(seconds, batch.age_seconds)
