"""One query: its history, its checkpoint and its run; and what its next run takes over.

The history goes on. What is known of a checkpoint goes on while the runs have the same one. Of the
run before, nothing is left. Times are monotonic seconds.
"""

from __future__ import annotations

from math import ceil
from operator import attrgetter

import msgspec
from msgspec.structs import replace

from ..commit_log import USUAL_HOURS
from ..events import Progress
from ..foresight import intake
from ..foresight.tasks import joined, of_new_id, taken_over
from . import positions
from .history import MAX_PAST_FAILURES, Checkpoint, History, add_totals, latest, with_longest
from .inputs import SourceInput
from .positions import LastRead, Reading
from .run import Ended, Outcome, Run
from .sources import between_runs
from .trends import carry_over

CLOCKS_DIFFER_SECONDS = 5.0
"""The clocks of the storage and of this machine may differ by this much."""
ID_CHARACTERS = 8
"""What is shown of the id of a query without a name."""


class Query(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One query. ``succeed`` begins its next run."""

    query_id: str
    """Spark's id, which the checkpoint keeps; another one under a new checkpoint."""
    name: str | None
    """The full name; everything that leaves the driver shows ``label``."""
    label: str
    """The name that is shown; see ``identity.py`` for the one time that it may change."""
    history: History = History()
    """What survives every restart."""
    checkpoint: Checkpoint = Checkpoint()
    """What survives the restarts that go on from the same checkpoint."""
    run: Run
    """What belongs to the run that is active, or was the last one."""

    @property
    def is_unnamed(self) -> bool:
        """Whether only its id identifies the query."""
        return not self.name

    @property
    def base_name(self) -> str:
        """The text for name patterns: the full name, else the first 8 characters of the id."""
        return self.name or self.query_id[:ID_CHARACTERS]

    @property
    def failure(self) -> Ended | None:
        """The unrecovered failure of this run or of an earlier one."""
        ended = self.run.ended
        if ended is not None and ended.outcome is Outcome.FAILED:
            return ended
        return self.history.unrecovered

    @property
    def completed_at(self) -> float | None:
        """When a run last completed, also in an earlier process, as far as known."""
        return latest(self.history.completed_at, self.run.completed_at)

    @property
    def batches_not_durable(self) -> int | None:
        """How many committed batches its commit log lacked at the last reading.

        Only with async progress tracking; None if unknown.
        """
        facts = self.run.facts
        log = self.run.logged
        done = self.checkpoint.last_commit_batch
        if facts is None or not facts.async_progress or log is None or done is None:
            return None
        return max(0, done - (-1 if log.committed is None else log.committed))

    @property
    def lost_identity(self) -> bool:
        """Whether its checkpoint has a new query id, although its batch ids go on.

        Of an id in an earlier process the last batch is not known; a commit that is older than this
        run shows the same.
        """
        run = self.run
        if not self.checkpoint.id_before or run.goes_on:
            return run.goes_on
        point = self.checkpoint.start_point
        done = point.committed if point is not None else None
        if run.start is None or done is None or done.at is None:
            return False
        return done.at < run.started_at - CLOCKS_DIFFER_SECONDS


# -- pace -------------------------------------------------------------------------------------


CLOSE_SECONDS = 60.0
BATCHES_OF_A_PACE = 5


def pace_of(query: Query, progress: Progress | None) -> intake.Pace:
    """The pace of its batches, of which ``progress`` is the newest.

    A query is close if no more is unread than usually arrives within a batch, or a minute.
    """
    run = query.run
    trigger = run.trigger
    interval = 0.0 if trigger is None else trigger.interval_seconds
    newest = 0.0 if progress is None else progress.batch_seconds or 0.0
    recent = query.history.recent_batches
    usual = sorted(recent)[len(recent) // 2] if len(recent) >= BATCHES_OF_A_PACE else 0.0
    committed_at = run.started_at if run.last_commit_at is None else run.last_commit_at
    if interval:
        # The next batch begins at a multiple of it.
        newest = interval * max(1, ceil(newest / interval))
    return intake.Pace(committed_at, newest, max(CLOSE_SECONDS, interval, usual))


# -- input rows -------------------------------------------------------------------------------


def has_uncounted_rows(query: Query) -> bool:
    """Whether the run may have read rows that no event has reported, or will ever report.

    A ``continuous`` query has no events that count rows. A batch that only the probe has seen may
    have read some, also one in flight.
    """
    run = query.run
    is_continuous = run.facts is not None and run.facts.trigger.is_continuous
    if run.unreported is not None or is_continuous:
        return True
    batch_id = run.in_flight.batch_id if run.in_flight is not None else None
    done = query.checkpoint.last_commit_batch
    return batch_id is not None and (done is None or batch_id > done)


def counted_until(query: Query, now: float) -> float:
    """Up to when all rows are counted: ``now``, or when a batch that may have more began.

    A query that is always busy has such a batch at any time.
    """
    if not has_uncounted_rows(query):
        return now
    run = query.run
    if run.unreported is None and run.in_flight is not None:
        return run.in_flight.since
    return run.started_at if run.progress_at is None else run.progress_at


def _without_input(old: Query, until: float) -> float:
    """Seconds without input rows up to ``until``, of a run and the runs before it; 0 if unknown."""
    if has_uncounted_rows(old):
        return 0.0
    before = old.checkpoint.without_input_before
    return _without(old.run, until, old.run.last_input_at, before)


def _inputs_before(old: Query, until: float) -> tuple[SourceInput, ...]:
    until = counted_until(old, until)
    return tuple(
        replace(
            source,
            last_at=None,
            without_before=_without(old.run, until, source.last_at, source.without_before),
        )
        for source in old.checkpoint.inputs
    )


def _without(old: Run, until: float, last_at: float | None, before: float) -> float:
    if last_at is not None:
        return max(0.0, until - last_at)
    return max(0.0, until - old.started_at) + before


def with_reading(query: Query, reading: Reading) -> Query:
    """The query, which has read up to there."""
    return replace(query, history=replace(query.history, reading=reading))


UNSURE_SECONDS = 60.0
"""So long after its position was stored a run may have read on: twice the time between stores."""


def last_read(query: Query, now: float, stopped_at: float | None = None) -> LastRead:
    """Where the query has read up to, for a later checkpoint or process.

    That is exact once the event of its end has arrived, and surely those of all its batches.
    ``stopped_at`` is when it was over at the latest, such as the SparkContext's stop.
    """
    run = query.run
    reading = query.history.reading
    over_at = None
    if not (reading.is_over and _is_reported(query)):
        ends = (run.gone_at, stopped_at, now + UNSURE_SECONDS)
        over_at = next(at for at in ends if at is not None)
    return LastRead(
        now,
        positions=reading.positions,
        gaps=reading.gaps,
        over_at=over_at,
        session=run.session,
        is_temporary=run.facts is not None and run.facts.is_temporary,
        run_id="" if reading.is_over else run.run_id,
        systems=reading.systems,
        earlier=reading.earlier,
    )


def _is_reported(query: Query) -> bool:
    """Whether no batch of an ended run has been committed whose event was not sent.

    ``stop()`` interrupts a run anywhere, also between the two. A run was at rest if it was idle or
    polled after its last event, and nothing shows a later batch.
    """
    run = query.run
    done = -1 if run.progress is None else run.progress.batch_id
    if run.last_commit_at is not None and done < (run.last_commit_batch or 0):
        return False
    if run.ended is None or run.ended.outcome is not Outcome.STOPPED:
        return True
    flying = None if run.in_flight is None else run.in_flight.batch_id
    planned = None if run.logged is None else run.logged.planned
    if any(batch_id is not None and batch_id > done for batch_id in (flying, planned)):
        return False
    reported_at = run.started_at if run.progress_at is None else run.progress_at
    seen = (run.last_idle_at, *(poll.at for poll in query.checkpoint.polls.values()))
    return any(at is not None and at >= reported_at for at in seen)


# -- the next run -----------------------------------------------------------------------------


UNENDED_RUNS = 16


def succeed(old: Query, query_id: str, run_id: str, at: float, folder: str = "") -> Query:
    """Begin the next run of a query, on the checkpoint in ``folder``, if that is known.

    The file ``metadata`` in the checkpoint holds the id. In the same folder under another id, the
    file may be gone, or the whole checkpoint: the first batch shows that (``fold.begun``).
    """
    is_same_id = old.query_id == query_id
    is_same_folder = bool(folder) and folder == old.run.checkpoint_folder
    is_same_checkpoint = is_same_id or is_same_folder
    return Query(
        query_id=query_id,
        name=old.name,
        label=old.label,
        history=_next_history(old, run_id, at, is_same_id=is_same_id),
        checkpoint=_next_checkpoint(old, query_id, at) if is_same_checkpoint else Checkpoint(),
        run=Run(run_id=run_id, started_at=at),
    )


def _next_history(old: Query, run_id: str, at: float, *, is_same_id: bool) -> History:
    history = old.history
    last = old.checkpoint.last_commit_batch
    if last is not None and (history.earlier_batch is None or last >= history.earlier_batch):
        history = replace(history, earlier_batch=last, earlier_id=old.query_id)
    if is_same_id:
        reading = positions.with_same_checkpoint(history.reading)
    else:
        reading = positions.with_new_checkpoint(last_read(old, at, stopped_at=at))
    return replace(
        history,
        completed_at=old.completed_at,
        unended_runs=tuple(unended for unended in _unended(old) if unended != run_id),
        unrecovered=old.failure,
        reading=reading,
        totals=replace(history.totals, restarts=history.totals.restarts + 1),
        commits_before_run=history.totals.commits,
        spent=history.spent if is_same_id else of_new_id(history.spent),
    )


def _next_checkpoint(old: Query, query_id: str, at: float) -> Checkpoint:
    checkpoint = old.checkpoint
    if old.query_id != query_id:
        checkpoint = replace(checkpoint, start_point=None, id_before=old.query_id)
    elif old.run.last_commit_batch is not None:
        checkpoint = replace(checkpoint, id_before="")
    run = old.run
    if run.facts is not None and run.facts.async_progress:
        # Commits that are not in the log yet run again.
        checkpoint = replace(checkpoint, last_commit_batch=None)
    # The time between the runs of a query that ends by itself counts as time without input.
    until = at if run.ended is None or run.completed_loop else run.ended.at
    return replace(
        checkpoint,
        sources=between_runs(checkpoint.sources),
        inputs=_inputs_before(old, until),
        without_input_before=_without_input(old, until),
        intakes=intake.between_runs(checkpoint.intakes),
        trends=carry_over(checkpoint.trends, at=at, completed=old.run.completed_loop),
    )


def _unended(old: Query) -> tuple[str, ...]:
    unended = old.history.unended_runs
    if old.run.ended is not None:
        return unended
    return (*unended, old.run.run_id)[-UNENDED_RUNS:]


def with_checkpoint_of(query: Query, holder: Query) -> Query:
    """A query that begins where ``holder``, which had the checkpoint until now, has ended."""
    reading = positions.with_same_checkpoint(holder.history.reading)
    reading = replace(reading, gaps=query.history.reading.gaps)
    checkpoint = replace(
        query.checkpoint,
        last_commit_batch=holder.checkpoint.last_commit_batch,
        newest_commit=holder.checkpoint.newest_commit,
        sources=between_runs(holder.checkpoint.sources),
        intakes=intake.between_runs(holder.checkpoint.intakes),
        batches=holder.checkpoint.batches,
        growth=holder.checkpoint.growth,
        start_point=holder.checkpoint.start_point,
    )
    spent = taken_over(query.history.spent, holder.history.spent)
    query = replace(query, checkpoint=checkpoint, history=replace(query.history, spent=spent))
    return with_reading(query, reading)


def remains(query: Query) -> Query:
    """What is kept of a query that is forgotten: no failure, also to come, and nothing large."""
    history = replace(
        query.history,
        unended_runs=(),
        unrecovered=None,
        failures=(),
        unrecovered_failures=0,
        reading=positions.remains(query.history.reading),
    )
    over = Ended(query.run.gone_or_started_at, Outcome.COMPLETED, "forgotten")
    return replace(
        query,
        history=history,
        checkpoint=replace(query.checkpoint, sources={}, intakes={}, growth={}),
        run=replace(query.run, ended=over, progress=None, probed=None),
    )


_AT = attrgetter("at")


def same_query(query: Query, other: Query) -> tuple[Query, Query] | None:
    """Two records of one query, the older one first; None if they are two queries.

    A session has one active query of a name, so one ended, or vanished, before the other began.
    """
    session = query.run.session
    if not session or (query.name, session) != (other.name, other.run.session):
        return None
    for older, newer in ((query, other), (other, query)):
        if older.run.gone_at is not None and older.run.gone_at <= newer.run.started_at:
            return older, newer
    return None


def join(older: Query, newer: Query) -> Query:
    """``newer``, with the failures and the counters of ``older``, which it did not succeed.

    The name of one of them was not known when ``newer`` began.
    """
    before = older.history
    after = newer.history
    totals = add_totals(before.totals, after.totals)
    reading = positions.restore(
        after.reading,
        last_read(older, newer.run.started_at, stopped_at=newer.run.started_at),
        is_same=older.query_id == newer.query_id,
    )
    history = replace(
        with_longest(after, (*before.longest_batches, *after.longest_batches)[-2 * USUAL_HOURS :]),
        unended_runs=(*_unended(older), *after.unended_runs)[-UNENDED_RUNS:],
        failures=tuple(sorted((*before.failures, *after.failures), key=_AT)[-MAX_PAST_FAILURES:]),
        totals=replace(totals, restarts=totals.restarts + 1),
        completed_at=latest(older.completed_at, after.completed_at),
        commits_before_run=before.totals.commits + after.commits_before_run,
        reading=reading,
        late_share=before.late_share or after.late_share,
        spent=joined(before.spent, after.spent, is_same_id=older.query_id == newer.query_id),
    )
    if not _has_recovered_since(newer, older):
        failures = filter(None, (older.failure, after.unrecovered))
        history = replace(
            history,
            unrecovered=max(failures, key=_AT, default=None),
            unrecovered_failures=after.unrecovered_failures + before.unrecovered_failures,
        )
    return replace(newer, history=history)


def _has_recovered_since(newer: Query, older: Query) -> bool:
    if newer.run.activity_seen or newer.run.is_done_with:
        return True
    newest = newer.checkpoint.newest_commit
    return newest is not None and newest[1] > older.run.gone_or_started_at
