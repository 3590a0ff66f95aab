"""Rules about runs that ended or never began: failed, stopped, missing, given up, flapping."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from fnmatch import fnmatchcase

from ...core.states import QueryState
from ...core.text import listed
from ...listener.failure import SESSION_ENDED, Failure
from ...listener.probe_report import Context
from ...listener.state.query import UNKNOWN_BATCH, Ended, Outcome, Query, RunFailure
from ...listener.state.snapshot import Snapshot
from ..alert_text import NEXT_STEPS
from ..finding import (
    QUERY_FAILED,
    QUERY_FLAPPING,
    QUERY_GIVEN_UP,
    QUERY_MISSING,
    QUERY_STOPPED,
    WHOLE_DRIVER,
    Finding,
    Severity,
    finding_about,
)
from ..policy import RESTART_WINDOW_SECONDS, Limits, Policy
from .context import RuleContext, is_handled, is_restarted
from .evidence import evidence, failure_facts, on_restart, report, unfinished, with_age

# -- failed -------------------------------------------------------------------------------------

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
        "Cannot load current offset at snapshot|Cannot find snapshot after": (
            "1. The table has expired the snapshot of the checkpoint: a restart fails again.\n"
            "2. Start with a new checkpoint and stream-from-timestamp, the time of the last commit;"
            " read snapshots that have expired since then from the table itself.\n"
            "3. Keep snapshots (history.expire.max-snapshot-age-ms) longer than it may be down."
        ),
        r'return value of "org\.apache\.iceberg\.Snapshot\.parentId\(\)" is null': (
            "1. The table was rolled back behind the snapshot of the checkpoint.\n"
            "2. Roll it forward again, or start with a new checkpoint and stream-from-timestamp.\n"
            "3. Rows that were rolled back may have been written already: check the sink."
        ),
        "DELTA_LOG_FILE_NOT_FOUND(?:_FOR_STREAMING_SOURCE)?|DELTA_VERSION_NOT_FOUND": (
            "1. The log of the table was cleaned up before the query had read it: a restart fails"
            " again, also with failOnDataLoss=false.\n"
            "2. Start with a new checkpoint: it reads the whole table, or from startingTimestamp.\n"
            "3. Keep the log (delta.logRetentionDuration) longer than the query may be down."
        ),
        r"FAILED_READ_FILE\.FILE_NOT_EXIST|DELTA_FILE_NOT_FOUND_DETAILED"
        r"|iceberg\.exceptions\.NotFoundException: Failed to open input stream for file": (
            "1. A data file was deleted before it was read: VACUUM, expire_snapshots, by hand.\n"
            "2. Restore the file, or start with a new checkpoint behind that version.\n"
            "3. Keep files (delta.deletedFileRetentionDuration) longer than it may be late."
        ),
        r"The snapshot with id \d+ has expired": (
            "1. The table (Paimon) has expired the snapshot that the query reads next.\n"
            "2. Start with a new checkpoint; what has expired is in no later snapshot's changes.\n"
            "3. Set a consumer-id, which keeps unread snapshots, or snapshot.time-retained."
        ),
        "UNRELEASED_THREAD_ERROR|instance could not be acquired": (
            "1. A task that hangs, or a second attempt of it, holds the lock of the state store.\n"
            "2. Restart the query; if the task hangs in the executor, restart the executor.\n"
            "3. Again and again: turn speculation off, look for stages that read the state twice."
        ),
        SESSION_ENDED: (
            "1. The session does not come back, nor do its queries: restart the job.\n"
            "2. Or call spark.stop(), create a session, attach to it, and start the queries from "
            "the same checkpoints.\n"
            "3. Find what took the session: a network outage longer than its time-out, a restart "
            "of the server, somebody who released it."
        ),
    }.items()
}
"""Next steps by what the error says, where the steps of the alert's runbook are too general."""


def query_failed(context: RuleContext) -> Finding | None:
    """``StreamingQueryFailed``: a run ended with an exception, and no later run has committed.

    It fires after the grace period (0 s by default). While ``supervise`` restarts the query, the
    alert is a warning; so it is if the process ends within the grace, since a restart is expected.
    An expected error is a warning within the grace. A batch that earlier processes planned longer
    ago, and never committed, leaves no time: the job restarts again and again and does not get past
    it, as the reason says. Queries that ended with their Spark Connect session share the cause.
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
        QUERY_FAILED,
        Severity.WARNING if has_time or is_restarted(context) else Severity.CRITICAL,
        with_age(failure.reason, context),
        facts,
        says=with_age(headline, context),
        cause=failure.message if failure.error_class == SESSION_ENDED else "",
    )


def _is_expected(failure: Failure, patterns: tuple[str, ...]) -> bool:
    names = (failure.error_class, failure.exception)
    return any(fnmatchcase(name, pattern) for name in names for pattern in patterns)


def _failing_seconds(context: RuleContext, ended: Ended) -> float:
    """For how long the query has failed without a commit, also in earlier processes."""
    unrecovered = context.query.unrecovered_failures
    failures = context.query.failures[-unrecovered:] if unrecovered else ()
    seconds = context.watched_since(min((failure.at for failure in failures), default=ended.at))
    batch = unfinished(context)
    return seconds if batch is None else max(seconds, batch.age_seconds)


# -- stopped ------------------------------------------------------------------------------------

NOTICED_SECONDS = 5.0
SLOWLY_NOTICED_SECONDS = 15.0
"""The next poll detects that a SparkContext stopped; its queries may have ended before that."""
CONTEXT_GONE = "the SparkContext stopped by itself"
SESSION_GONE = "the Spark Connect session has ended, and the job did not ask for that"
STEPS_OF_TAKEN = (
    "1. Decide which of the two queries owns the checkpoint.\n"
    "2. Stop the other one, and give it a checkpoint of its own.\n"
    "3. Start the owner again: rows that the other one read went to its sink."
)
"""Next steps where another query was started on the checkpoint."""
MAX_NAMED = 20


def query_stopped(context: RuleContext) -> Finding | None:
    """``StreamingQueryStopped``: a run ended without an exception, and has not restarted in time.

    Queries with ``once`` and ``availableNow`` end by themselves and do not fire, unless a
    SparkContext that stopped by itself cut them off. Neither does a query after ``expect_stop``,
    one that ``supervise`` restarts, or one in an application that stops its own SparkContext. If
    the trigger is unknown, the alert fires only for an expected query. Where Spark stopped the
    query to start another one on its checkpoint, there is no grace.
    """
    query, snapshot = context.query, context.snapshot
    # Spark still lists idle queries as active after their SparkContext has stopped.
    gone_at = snapshot.context_stopped_at if query.gone_at is None else query.gone_at
    # ``query_failed`` reports a failure, and knows how much time it has.
    if gone_at is None or snapshot.context.explains_ends or query.failure is not None:
        return None
    with_context = _ended_with_context(context, gone_at)
    if query.stop_expected or not _should_run(context, with_context=with_context):
        return None
    if is_restarted(context) and not with_context:
        return None
    seconds = context.watched_since(gone_at)
    if query.taken_by:
        return _taken(context, seconds)
    grace = 0.0 if context.policy.crashed else context.limits.gone_grace_seconds
    if grace and (seconds <= grace or _is_unconfirmed(context)):
        return None
    how = "disappeared without an end event"
    if with_context:
        how = "ended with its SparkContext, which stopped by itself"
    elif query.ended is not None:
        how = "stopped without an exception"
    reason = f"{how} {seconds:.0f} s ago and has not restarted"
    cause = CONTEXT_GONE if with_context else ""
    return report(context, QUERY_STOPPED, Severity.CRITICAL, reason, cause=cause)


def _taken(context: RuleContext, seconds: float) -> Finding:
    query = context.query
    where = f"its checkpoint, {query.checkpoint}" if query.checkpoint else "its checkpoint"
    reason = f"Spark stopped it {seconds:.0f} s ago: {query.taken_by} was started on {where}"
    facts = {**evidence(context), "taken_by": query.taken_by, NEXT_STEPS: STEPS_OF_TAKEN}
    return report(context, QUERY_STOPPED, Severity.CRITICAL, reason, facts)


def _is_unconfirmed(context: RuleContext) -> bool:
    """Whether a single poll lacked the run, and none has followed: the run may still be active.

    Once the probe does not answer any more, only events can show that; a continuous query has none.
    """
    probe, query = context.snapshot.probe, context.query
    if probe is None or query.ended is not None or query.vanished_at is None:
        return False
    if probe.at > query.vanished_at:
        return False
    shows_life = query.last_event_at is not None and query.last_event_at > query.vanished_at
    has_events = query.facts is None or not query.facts.trigger.is_continuous
    return shows_life or not (has_events and context.probe_is_stale)


def _should_run(context: RuleContext, *, with_context: bool) -> bool:
    """Whether the query should run; one that ends by itself should unless it has completed."""
    trigger, ended = context.query.trigger, context.query.ended
    if trigger is None:
        return context.query.name in context.policy.expected
    if not trigger.ends_by_itself:
        return True
    return with_context and (ended is None or ended.outcome is not Outcome.COMPLETED)


def _ended_with_context(context: RuleContext, gone_at: float) -> bool:
    """Whether the SparkContext ended the query; a query that ended earlier has another cause.

    The context stopped after the last poll that saw it running, which may be some seconds ago if
    polls are slow.
    """
    stopped_at, ran_at = context.snapshot.context_stopped_at, context.snapshot.context_ran_at
    if context.snapshot.context is not Context.STOPPED or stopped_at is None:
        return False
    earliest = stopped_at - NOTICED_SECONDS
    if ran_at is not None:
        earliest = min(earliest, max(ran_at, stopped_at - SLOWLY_NOTICED_SECONDS))
    return gone_at >= earliest


# -- the main program -----------------------------------------------------------------------------

PROGRAM_ENDED = "the main program ended"
EXPLAINS_SECONDS = 60.0
"""A failure explains the end of the program for so long: the job fails fast, as recommended."""
STEPS_OF_PROGRAM = (
    "1. Find out why the main program ended: the log of the driver, its exit code.\n"
    "2. Start the job again: its queries go on from their checkpoints.\n"
    "3. Let it wait for its queries (await_any_failure), and announce a planned end: spark.stop()."
)


def program_ended(
    snapshot: Snapshot, now: float, policy: Policy, findings: Iterable[Finding]
) -> Finding | None:
    """``StreamingQueryStopped`` of the driver: the program ended, and with it endless queries.

    Critical if an exception ended it, or if one of the queries is expected; else a warning, since a
    script that processes what there is ends like that, too. It does not fire if a critical failure
    of the last minute explains the end, nor for queries that have a critical finding already.
    """
    program = policy.program
    if program is None or snapshot.context is not Context.RUNNING:
        return None
    paged = {found.query for found in findings if found.severity is Severity.CRITICAL}
    if program.is_explained or _has_just_failed(snapshot, now, paged):
        return None
    ran = {label: query for label, query in endless(snapshot, policy).items() if label not in paged}
    if not ran:
        return None
    is_expected = any(query.name in policy.expected for query in ran.values())
    is_critical = (program.has_failed or is_expected) and not program.may_be_meant
    count = f"{len(ran)} streaming {'query' if len(ran) == 1 else 'queries'}"
    reason = f"{program.how} while {count} ran: {listed(sorted(ran), MAX_NAMED)}"
    return Finding(
        QUERY_STOPPED,
        WHOLE_DRIVER,
        Severity.CRITICAL if is_critical else Severity.WARNING,
        QueryState.STOPPED_UNEXPECTEDLY,
        reason,
        summary=reason,
        evidence={NEXT_STEPS: STEPS_OF_PROGRAM},
        cause=PROGRAM_ENDED,
    )


def endless(snapshot: Snapshot, policy: Policy) -> dict[str, Query]:
    """By label: this process's active queries that never end by themselves, by all that is known.

    Not those whose stop is expected. Of an unknown trigger, only an expected query counts.
    """
    ownership = snapshot.ownership
    return {
        label: query
        for label, query in snapshot.labels().items()
        if query.alive
        and not query.stop_expected
        and ownership.is_own(query.session)
        and ownership.covers(query.session)
        and not policy.limits(query.base_name).ignore
        and _never_ends(query, policy)
    }


def _never_ends(query: Query, policy: Policy) -> bool:
    if query.trigger is None:
        return query.name in policy.expected
    return not query.trigger.ends_by_itself


def _has_just_failed(snapshot: Snapshot, now: float, paged: Collection[str]) -> bool:
    """Whether a query of ``paged`` has just failed, which its own alert reports."""
    return any(
        query.failure is not None and snapshot.watched(query.failure.at, now) <= EXPLAINS_SECONDS
        for query in snapshot.queries
        if query.label in paged
    )


# -- missing and given up -----------------------------------------------------------------------


def query_missing(context: RuleContext) -> Finding | None:
    """``StreamingQueryMissing``: it was started, but no signal has seen it since then.

    If the probe sees the query, it is not missing: the other rules check what it does.
    """
    query = context.query
    if not query.alive or query.activity_seen or query.probed is not None:
        return None
    waited = context.watched_since(query.started_at)
    if waited <= context.limits.start_grace_seconds:
        return None
    reason = f"started {waited:.0f} s ago, no activity since"
    return report(context, QUERY_MISSING, Severity.CRITICAL, reason)


def query_given_up(context: RuleContext) -> Finding | None:
    """``StreamingQueryGivenUp``: ``supervise`` does not restart the query any more.

    It fires until the query runs again or is forgotten.
    """
    supervised = context.snapshot.supervised.get(context.query.label)
    if supervised is None or not supervised.given_up or context.query.alive:
        return None
    ended = context.query.failure
    facts = {"restarts": str(supervised.restarts), **evidence(context), **on_restart(context.query)}
    if ended is not None and ended.failure is not None:
        facts |= failure_facts(ended.failure)
    return report(context, QUERY_GIVEN_UP, Severity.CRITICAL, supervised.given_up, facts)


def query_absent(
    label: str, name: str, snapshot: Snapshot, now: float, policy: Policy
) -> Finding | None:
    """Both alerts, for a supervised or expected query that no signal has ever seen.

    It is missing if its start by ``supervise`` is overdue, or if it is expected, for longer than
    ``start_grace_seconds``; that begins when the start function of a supervised one returns.
    """
    limits, supervised = policy.limits(name), snapshot.supervised.get(label)
    if limits.ignore:
        return None
    if supervised is not None and supervised.given_up:
        facts = {"restarts": str(supervised.restarts)}
        return finding_about(label, QUERY_GIVEN_UP, Severity.CRITICAL, supervised.given_up, facts)
    due_at = started_at = None
    if supervised is not None:
        due_at, started_at = supervised.due_at, supervised.started_at
    if snapshot.context.explains_ends or (due_at is None and name not in policy.expected):
        return None
    since = snapshot.began_at if started_at is None else started_at
    waited = snapshot.watched(since if due_at is None else due_at, now)
    if waited <= limits.start_grace_seconds:
        return None
    reason, facts = f"its start has been due for {waited:.0f} s", {}
    if due_at is None:
        reason = f"expected, but not seen in {waited:.0f} s of monitoring"
        facts = {"known_queries": ", ".join(sorted(snapshot.labels())) or "none"}
    return finding_about(label, QUERY_MISSING, Severity.CRITICAL, reason, facts)


# -- flapping -----------------------------------------------------------------------------------


def query_flapping(context: RuleContext) -> Finding | None:
    """``StreamingQueryFlapping``: the restart budget is used up; a commit in between is no reset.

    The reason says ``poison_batch`` when all of the last failures had the same batch and the same
    error class: another restart will not help. With a spool, failures in earlier processes count
    too, and the reason says how many they are. For a query that ``supervise`` has given up, or
    restarts without delay, it is a warning.
    """
    query, limits, began_at = context.query, context.limits, context.snapshot.began_at
    if not is_flapping(query, limits, context.now):
        return None
    poison, last = poison_batch(query, limits), query.failures[-1]
    if poison is not None:
        times, counted = limits.restart_budget, [*query.failures[-limits.restart_budget :]]
        begin = f"poison_batch: batch {poison.batch_id} failed {times} times with "
        begin, end = begin + poison.error_class, ""
    else:
        counted = recent(query.failures, last.at if query.failure is not None else context.now)
        begin = f"{len(counted)} failures within {RESTART_WINDOW_SECONDS:.0f} s"
        end = f", the last with {last.error_class}"
    earlier = sum(died.at < began_at for died in counted)
    reason = f"{begin}{f', {earlier} of them in earlier processes' if earlier else ''}{end}"
    failures = "\n".join(
        f"{context.now - died.at:.0f} s ago: "
        f"{'unknown batch' if died.batch_id == UNKNOWN_BATCH else f'batch {died.batch_id}'}, "
        f"{died.error_class}{', in an earlier process' if died.at < began_at else ''}"
        for died in reversed(query.failures)
    )
    severity = Severity.WARNING if is_handled(context) else Severity.CRITICAL
    facts = {**evidence(context), "deaths": failures}
    return report(context, QUERY_FLAPPING, severity, reason, facts)


# -- failures over all runs ---------------------------------------------------------------------


def is_flapping(query: Query, limits: Limits, now: float) -> bool:
    """Whether the restart budget is used up.

    While a query is down, its failures do not expire: the problem still exists.
    """
    if not query.failures:
        return False
    at = query.failures[-1].at if query.failure is not None else now
    spent = len(recent(query.failures, at)) >= limits.restart_budget
    return spent or poison_batch(query, limits) is not None


def poison_batch(query: Query, limits: Limits) -> RunFailure | None:
    """A failure, if all failures of the budget had its batch and its error class.

    One whose batch is not known may have had the same.
    """
    last = query.failures[-limits.restart_budget :]
    if query.unrecovered_failures == 0 or repeated(last) < limits.restart_budget:
        return None
    with_batch = [died for died in last if died.batch_id != UNKNOWN_BATCH]
    newest = with_batch[-1] if with_batch else None
    return None if newest is None or is_committed(query, newest) else newest


def repeated(failures: Sequence[RunFailure]) -> int:
    """How many of the last failures had one error class and, where it is known, one batch."""
    count, batch_id = 0, UNKNOWN_BATCH
    for died in reversed(failures):
        another = UNKNOWN_BATCH not in {batch_id, died.batch_id} and batch_id != died.batch_id
        if another or died.error_class != failures[-1].error_class:
            break
        batch_id = max(batch_id, died.batch_id)
        count += 1
    return count


def is_committed(query: Query, died: RunFailure) -> bool:
    """Whether the checkpoint showed, when the last run began, that the batch was committed.

    A process that querypulse did not monitor may have committed it.
    """
    point = query.start_point
    done = point.committed if point is not None else None
    return done is not None and done.batch_id >= died.batch_id != UNKNOWN_BATCH


def was_flapping_already(query: Query, limits: Limits) -> bool:
    """Whether the budget was already used up when the query last became unhealthy."""
    fell = max(0, len(query.failures) - max(1, query.unrecovered_failures))
    until_then = query.failures[: fell + 1]
    if not until_then:
        return False
    return len(recent(until_then, until_then[-1].at)) >= limits.restart_budget


def recent(failures: Sequence[RunFailure], at: float) -> list[RunFailure]:
    """The failures within the restart window that ends at ``at``."""
    return [died for died in failures if at - died.at <= RESTART_WINDOW_SECONDS]
