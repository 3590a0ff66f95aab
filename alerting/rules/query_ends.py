"""Rules about runs that ended or never began: failed, stopped, missing, given up, flapping."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from fnmatch import fnmatchcase

from ...listener.failure import SESSION_ENDED, Failure
from ...listener.past_failures import mark_of
from ...listener.probe_report import Context
from ...listener.state.history import UNKNOWN_BATCH, RunFailure, latest
from ...listener.state.query import Query
from ...listener.state.run import Ended, Outcome
from ...listener.state.snapshot import Snapshot
from ..facts import (
    CheckpointTaken,
    Facts,
    Failed,
    GivenUp,
    HowStopped,
    ManyFailures,
    NeverSeen,
    NoActivity,
    NotCompleted,
    PastFailure,
    PoisonBatch,
    ProgramEnded,
    SessionExpired,
    StartOverdue,
    Stopped,
)
from ..finding import WHOLE_DRIVER, Finding, Severity, finding_about
from ..kinds import (
    QUERY_FAILED,
    QUERY_FLAPPING,
    QUERY_GIVEN_UP,
    QUERY_MISSING,
    QUERY_STOPPED,
    SharedCause,
)
from ..policy import RESTART_WINDOW_SECONDS, Limits, Policy
from .context import RuleContext, is_handled, is_restarted
from .evidence import collect, report, unfinished

# -- failed -------------------------------------------------------------------------------------

EXPECTED_GRACE_SECONDS = 300.0
"""The grace of an expected error where ``failed_grace_seconds`` is 0."""


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
    found = Failed(
        failure=failure,
        expected_within=grace if has_time else None,
        is_expected_error=is_expected,
        unfinished=unfinished(context),
    )
    is_mild = has_time or is_restarted(context)
    severity = Severity.WARNING if is_mild else Severity.CRITICAL
    evidence = collect(context, with_restart=True)
    shared = SharedCause.SESSION_ENDED if failure.error_class == SESSION_ENDED else None
    return report(context, QUERY_FAILED, severity, found, evidence, shared=shared)


def _is_expected(failure: Failure, patterns: tuple[str, ...]) -> bool:
    names = (failure.error_class, failure.exception)
    return any(fnmatchcase(name, pattern) for name in names for pattern in patterns)


def _failing_seconds(context: RuleContext, ended: Ended) -> float:
    """For how long the query has failed without a commit, also in earlier processes."""
    unrecovered = context.query.history.unrecovered_failures
    failures = context.query.history.failures[-unrecovered:] if unrecovered else ()
    seconds = context.watched_since(min((failure.at for failure in failures), default=ended.at))
    batch = unfinished(context)
    return seconds if batch is None else max(seconds, batch.age_seconds)


# -- stopped ------------------------------------------------------------------------------------

NOTICED_SECONDS = 5.0
SLOWLY_NOTICED_SECONDS = 15.0
"""The next poll detects that a SparkContext stopped; its queries may have ended before that."""


def query_stopped(context: RuleContext) -> Finding | None:
    """``StreamingQueryStopped``: a run ended without an exception, and has not restarted in time.

    Queries with ``once`` and ``availableNow`` end by themselves and do not fire, unless a
    SparkContext that stopped by itself cut them off. Neither does a query after ``expect_stop``,
    one that ``supervise`` restarts, or one in an application that stops its own SparkContext. If
    the trigger is unknown, the alert fires only for an expected query. Where Spark stopped the
    query to start another one on its checkpoint, there is no grace. A query whose session of Spark
    Connect was ended by its client was stopped as announced; one whose session expired was not.
    """
    query, snapshot = context.query, context.snapshot
    # Spark still lists idle queries as active after their SparkContext has stopped.
    gone_at = snapshot.context_stopped_at if query.run.gone_at is None else query.run.gone_at
    # ``query_failed`` reports a failure, and knows how much time it has.
    if gone_at is None or snapshot.context.explains_ends or query.failure is not None:
        return None
    with_context = _ended_with_context(context, gone_at)
    if query.run.stop_expected or not _should_run(context, with_context=with_context):
        return None
    if is_restarted(context) and not with_context:
        return None
    seconds = context.watched_since(gone_at)
    if query.run.taken_by:
        return _taken(context, seconds)
    grace = 0.0 if context.policy.crashed else context.limits.gone_grace_seconds
    has_time = grace > 0 and (seconds <= grace or _is_unconfirmed(context))
    if has_time or _awaits_session(context, gone_at):
        return None
    return _stopped(context, seconds, with_context=with_context)


def _stopped(context: RuleContext, seconds: float, *, with_context: bool) -> Finding:
    run = context.query.run
    shared = None
    found: Facts
    if with_context:
        found = Stopped(how=HowStopped.WITH_CONTEXT, seconds=seconds)
        shared = SharedCause.CONTEXT_STOPPED
    elif run.session_end is not None:
        found = SessionExpired(seconds=seconds, session=run.session_end)
        shared = SharedCause.SESSION_ENDED
    else:
        how = HowStopped.VANISHED if run.ended is None else HowStopped.STOPPED
        found = Stopped(how=how, seconds=seconds)
    return report(context, QUERY_STOPPED, Severity.CRITICAL, found, shared=shared)


def _taken(context: RuleContext, seconds: float) -> Finding:
    query = context.query
    found = CheckpointTaken(
        by=query.run.taken_by, seconds=seconds, checkpoint=query.run.checkpoint_folder
    )
    return report(context, QUERY_STOPPED, Severity.CRITICAL, found)


def _awaits_session(context: RuleContext, gone_at: float) -> bool:
    """Whether the next poll may show that its client has ended the session of a run."""
    probe = context.snapshot.probe
    if probe is None or probe.session_ends is None or probe.began_at >= gone_at:
        return False
    return not (context.policy.ends or context.probe_is_stale)


def _is_unconfirmed(context: RuleContext) -> bool:
    """Whether a single poll lacked the run, and none has followed: the run may still be active.

    Once the probe does not answer any more, only events can show that; a continuous query has none.
    """
    probe, query = context.snapshot.probe, context.query
    if probe is None or query.run.ended is not None or query.run.vanished_at is None:
        return False
    if probe.at > query.run.vanished_at:
        return False
    shows_life = (
        query.run.last_event_at is not None and query.run.last_event_at > query.run.vanished_at
    )
    has_events = query.run.facts is None or not query.run.facts.trigger.is_continuous
    return shows_life or not (has_events and context.probe_is_stale)


def _should_run(context: RuleContext, *, with_context: bool) -> bool:
    """Whether the query should run; one that ends by itself should unless it has completed."""
    trigger, ended = context.query.run.trigger, context.query.run.ended
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

EXPLAINS_SECONDS = 60.0
"""A failure explains the end of the program for so long: the job fails fast, as recommended."""


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
    return finding_about(
        WHOLE_DRIVER,
        QUERY_STOPPED,
        Severity.CRITICAL if is_critical else Severity.WARNING,
        ProgramEnded(how=program.how, queries=tuple(sorted(ran))),
        shared=SharedCause.PROGRAM_ENDED,
    )


def endless(snapshot: Snapshot, policy: Policy) -> dict[str, Query]:
    """By label: this process's active queries that never end by themselves, by all that is known.

    Not those whose stop is expected. Of an unknown trigger, only an expected query counts.
    """
    ownership = snapshot.ownership
    return {
        label: query
        for label, query in snapshot.labels().items()
        if query.run.alive
        and not query.run.stop_expected
        and ownership.is_own(query.run.session)
        and ownership.covers(query.run.session)
        and not policy.limits(query.base_name).ignore
        and _never_ends(query, policy)
    }


def _never_ends(query: Query, policy: Policy) -> bool:
    if query.run.trigger is None:
        return query.name in policy.expected
    return not query.run.trigger.ends_by_itself


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

    If the probe sees the query, it is not missing: the other rules check what it does. Or no run of
    it has completed in time for the last ``complete_by``.
    """
    return _without_activity(context) or _not_completed(context)


def _without_activity(context: RuleContext) -> Finding | None:
    query = context.query
    if not query.run.alive or query.run.activity_seen or query.run.probed is not None:
        return None
    waited = context.watched_since(query.run.started_at)
    if waited <= context.limits.start_grace_seconds:
        return None
    return report(context, QUERY_MISSING, Severity.CRITICAL, NoActivity(seconds=waited))


def _not_completed(context: RuleContext) -> Finding | None:
    query, snapshot = context.query, context.snapshot
    due_at = run_due_at(query.name, query, snapshot, context.now, context.limits)
    if due_at is None or not _is_due(due_at, snapshot):
        return None
    flight = query.run.in_flight
    found = NotCompleted(
        times=_text(context.limits),
        due_at=due_at,
        completed_at=_unix(query.completed_at, snapshot, context.now),
        running_seconds=context.watched_since(query.run.started_at) if query.run.alive else None,
        batch_id=None if flight is None else flight.batch_id,
    )
    return report(context, QUERY_MISSING, Severity.CRITICAL, found, collect(context))


def run_due_at(
    name: str | None, query: Query | None, snapshot: Snapshot, now: float, limits: Limits
) -> float | None:
    """By when the next run of a query must complete, in Unix seconds: in the past, it is overdue.

    A completion counts for the nearest deadline: a run that was late yesterday is not in time for
    today, and one of yesterday evening is. A deadline before the process began counts where it is
    known when a run last completed. None without a deadline, and for a query that never ends by
    itself or may not.
    """
    deadlines = limits.deadlines
    if deadlines is None or snapshot.wall is None:
        return None
    if query is not None and (query.run.trigger is None or not query.run.trigger.ends_by_itself):
        return None
    known_at = _known_completion(name, query, snapshot)
    completed_at = latest(known_at, _earlier_commit(query, snapshot))
    completed, began = (_unix(at, snapshot, now) for at in (completed_at, snapshot.began_at))
    last, following = deadlines.last(snapshot.wall), deadlines.next(snapshot.wall)
    if last is None or following is None:
        return None
    before = deadlines.last(last - 1.0)
    is_own = known_at is not None or (began is not None and began < last)
    if is_own and before is not None and not _counts(completed, before, last):
        return last
    if _counts(completed, last, following):
        return deadlines.next(following)
    return following


def _is_due(due_at: float, snapshot: Snapshot) -> bool:
    """Whether the time has come, and Spark has not ended."""
    is_over = snapshot.wall is not None and due_at <= snapshot.wall
    return is_over and snapshot.context is Context.RUNNING


def _counts(completed: float | None, before: float, deadline: float) -> bool:
    return completed is not None and completed >= (before + deadline) / 2


def _known_completion(name: str | None, query: Query | None, snapshot: Snapshot) -> float | None:
    """When a run last completed, in this process or, with a spool, in an earlier one."""
    if query is None:
        return snapshot.completed_before.get(mark_of(name))
    return query.completed_at


def _earlier_commit(query: Query | None, snapshot: Snapshot) -> float | None:
    """When an earlier process committed last, if it left nothing unfinished.

    A run without data has committed nothing, so that this proves only that one has completed.
    """
    point = None if query is None else query.checkpoint.start_point
    if point is None or point.committed is None or point.unfinished is not None:
        return None
    done_at = point.committed.at
    return done_at if done_at is not None and done_at < snapshot.began_at else None


def _text(limits: Limits) -> str:
    return "" if limits.deadlines is None else limits.deadlines.text


def _unix(at: float | None, snapshot: Snapshot, now: float) -> float | None:
    return None if at is None or snapshot.wall is None else snapshot.wall - (now - at)


def query_given_up(context: RuleContext) -> Finding | None:
    """``StreamingQueryGivenUp``: ``supervise`` does not restart the query any more.

    It fires until the query runs again or is forgotten.
    """
    supervised = context.snapshot.supervised.get(context.query.label)
    if supervised is None or not supervised.given_up or context.query.run.alive:
        return None
    ended = context.query.failure
    found = GivenUp(
        why=supervised.given_up,
        restarts=supervised.restarts,
        failure=None if ended is None else ended.failure,
    )
    evidence = collect(context, with_restart=True)
    return report(context, QUERY_GIVEN_UP, Severity.CRITICAL, found, evidence)


def query_absent(
    label: str, name: str, snapshot: Snapshot, now: float, policy: Policy
) -> Finding | None:
    """Both alerts, for a supervised or expected query that no signal has ever seen.

    It is missing if its start by ``supervise`` is overdue, or if it is expected, for longer than
    ``start_grace_seconds``; that begins when the start function of a supervised one returns. One
    with a ``complete_by`` of its own has time until then; one of all queries may not be for it.
    """
    limits, supervised = policy.limits(name), snapshot.supervised.get(label)
    if limits.ignore:
        return None
    if supervised is not None and supervised.given_up:
        given_up = GivenUp(why=supervised.given_up, restarts=supervised.restarts)
        return finding_about(label, QUERY_GIVEN_UP, Severity.CRITICAL, given_up)
    due_at = started_at = None
    if supervised is not None:
        due_at, started_at = supervised.due_at, supervised.started_at
    if snapshot.context.explains_ends or (due_at is None and name not in policy.expected):
        return None
    if due_at is None and policy.sets_deadline(name):
        return _never_completed(label, name, snapshot, now, limits)
    since = snapshot.began_at if started_at is None else started_at
    waited = snapshot.watched(since if due_at is None else due_at, now)
    if waited <= limits.start_grace_seconds:
        return None
    overdue: Facts = StartOverdue(seconds=waited)
    if due_at is None:
        known_queries = tuple(sorted(snapshot.labels()))
        overdue = NeverSeen(seconds=waited, known_queries=known_queries)
    return finding_about(label, QUERY_MISSING, Severity.CRITICAL, overdue)


def _never_completed(
    label: str, name: str, snapshot: Snapshot, now: float, limits: Limits
) -> Finding | None:
    """An expected query with a deadline need not be seen before that."""
    due_at = run_due_at(name, None, snapshot, now, limits)
    if due_at is None or not _is_due(due_at, snapshot):
        return None
    completed_at = _unix(_known_completion(name, None, snapshot), snapshot, now)
    found = NotCompleted(times=_text(limits), due_at=due_at, completed_at=completed_at)
    return finding_about(label, QUERY_MISSING, Severity.CRITICAL, found)


# -- flapping -----------------------------------------------------------------------------------


def query_flapping(context: RuleContext) -> Finding | None:
    """``StreamingQueryFlapping``: the restart budget is used up; a commit in between is no reset.

    The reason says ``poison_batch`` when all of the last failures had the same batch and the same
    error class: another restart will not help. With a spool, failures in earlier processes count
    too, and the reason says how many they are. For a query that ``supervise`` has given up, or
    restarts without delay, it is a warning.
    """
    query = context.query
    limits = context.limits
    if not is_flapping(query, limits, context.now):
        return None
    severity = Severity.WARNING if is_handled(context) else Severity.CRITICAL
    poison = poison_batch(query, limits)
    found = _many_failures(context) if poison is None else _poison(context, poison)
    return report(context, QUERY_FLAPPING, severity, found)


def _poison(context: RuleContext, failure: RunFailure) -> PoisonBatch:
    times = context.limits.restart_budget
    return PoisonBatch(
        batch_id=failure.batch_id,
        times=times,
        error_class=failure.error_class,
        earlier=_count_earlier(context, context.query.history.failures[-times:]),
        failures=_past_failures(context),
        failure=_last_failure(context),
    )


def _many_failures(context: RuleContext) -> ManyFailures:
    query = context.query
    last = query.history.failures[-1]
    counted = recent(query.history.failures, last.at if query.failure is not None else context.now)
    return ManyFailures(
        times=len(counted),
        within_seconds=RESTART_WINDOW_SECONDS,
        error_class=last.error_class,
        earlier=_count_earlier(context, counted),
        failures=_past_failures(context),
        failure=_last_failure(context),
    )


def _last_failure(context: RuleContext) -> Failure | None:
    ended = context.query.failure
    return None if ended is None else ended.failure


def _count_earlier(context: RuleContext, failures: Sequence[RunFailure]) -> int:
    return sum(failure.at < context.snapshot.began_at for failure in failures)


def _past_failures(context: RuleContext) -> tuple[PastFailure, ...]:
    """All failures that are remembered, the newest first."""
    return tuple(
        PastFailure(
            seconds_ago=context.now - failure.at,
            batch_id=None if failure.batch_id == UNKNOWN_BATCH else failure.batch_id,
            error_class=failure.error_class,
            is_of_earlier_process=failure.at < context.snapshot.began_at,
        )
        for failure in reversed(context.query.history.failures)
    )


# -- failures over all runs ---------------------------------------------------------------------


def is_flapping(query: Query, limits: Limits, now: float) -> bool:
    """Whether the restart budget is used up.

    While a query is down, its failures do not expire: the problem still exists.
    """
    if not query.history.failures:
        return False
    at = query.history.failures[-1].at if query.failure is not None else now
    spent = len(recent(query.history.failures, at)) >= limits.restart_budget
    return spent or poison_batch(query, limits) is not None


def poison_batch(query: Query, limits: Limits) -> RunFailure | None:
    """A failure, if all failures of the budget had its batch and its error class.

    One whose batch is not known may have had the same.
    """
    last = query.history.failures[-limits.restart_budget :]
    if query.history.unrecovered_failures == 0 or repeated(last) < limits.restart_budget:
        return None
    with_batch = [died for died in last if died.batch_id != UNKNOWN_BATCH]
    newest = with_batch[-1] if with_batch else None
    if newest is None or newest.error_class == SESSION_ENDED:
        return None
    return None if is_committed(query, newest) else newest


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
    point = query.checkpoint.start_point
    done = point.committed if point is not None else None
    return done is not None and done.batch_id >= died.batch_id != UNKNOWN_BATCH


def was_flapping_already(query: Query, limits: Limits) -> bool:
    """Whether the budget was already used up when the query last became unhealthy."""
    fell = max(0, len(query.history.failures) - max(1, query.history.unrecovered_failures))
    until_then = query.history.failures[: fell + 1]
    if not until_then:
        return False
    return len(recent(until_then, until_then[-1].at)) >= limits.restart_budget


def recent(failures: Sequence[RunFailure], at: float) -> list[RunFailure]:
    """The query's own failures within the restart window that ends at ``at``.

    A Spark Connect session that ends fails all its queries, whatever they do.
    """
    own = (died for died in failures if died.error_class != SESSION_ENDED)
    return [died for died in own if at - died.at <= RESTART_WINDOW_SECONDS]
