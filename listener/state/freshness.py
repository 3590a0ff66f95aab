"""How fresh the data of a query is, in seconds in which a promise was kept. Pure.

The data of a query is complete until the newest moment of which is proven that all that had arrived
at its sources by then is committed; its age is the time since. What proves it:

* An idle trigger: nothing was unread then.
* A committed batch that left nothing unread: all until it asked its sources. Where a source does
  not say what it has, its batches count as such.
* A batch that left data unread has a mark at what the source had; a later one that passes the mark
  proves all until the mark was set.
* A poll of a source while the query runs: nothing is unread, or everything that an earlier poll
  saw is read. Of a backlog that is older than the polls, the first record's timestamp counts.

A query that does not run proves nothing, nor does one that nobody sees: the age of its data grows.
Planned time does not count, and no data ages in it. Times are monotonic seconds, on disk Unix.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, inf

import msgspec
from msgspec.structs import replace

from ..events import SourceProgress
from ..offsets import Offsets, may_be_behind
from ..past_failures import KEEP_SECONDS, MAX_KEPT, mark_of
from .query import Query
from .snapshot import Snapshot
from .sources import Backlog, PolledSource

DAY_SECONDS = 86_400.0
BUDGET_DAYS = 30
BUDGET_SECONDS = BUDGET_DAYS * DAY_SECONDS
"""The time to which the objective applies."""


class Promise(msgspec.Struct, frozen=True):
    """The data is at most ``seconds`` old in the share ``objective`` of the time."""

    seconds: float
    objective: float

    @property
    def budget_seconds(self) -> float:
        """For how long within ``BUDGET_DAYS`` the data may be older."""
        return (1.0 - self.objective) * BUDGET_SECONDS


class Mark(msgspec.Struct, frozen=True, gc=False):
    """What the sources had at a moment, as a batch found them."""

    at: float
    latest: tuple[Offsets | None, ...]


class Freshness(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The age of the data of one query, and for how long it was older than promised."""

    promise: Promise
    counted_at: float
    """Up to when its time is counted."""
    complete_until: float
    """All that had arrived by then is committed; later by the planned time since."""
    total_seconds: float = 0.0
    bad_seconds: float = 0.0
    left_out_seconds: float = 0.0
    """Planned time, which is not in the total."""
    bad_by_day: dict[int, float] = {}
    """The bad seconds of the last ``BUDGET_DAYS``, by day since 1970."""
    planned_until: float = -inf
    """Until when its time does not count."""
    committed_at: float | None = None
    """The newest commit that was seen."""
    mark: Mark | None = None
    held_back_at: float | None = None
    """The newest idle trigger that left data unread (``minOffsetsPerTrigger``)."""

    @property
    def good_seconds(self) -> float:
        """The seconds in which the promise was kept."""
        return self.total_seconds - self.bad_seconds

    @property
    def deadline(self) -> float:
        """Until when the data is new enough if nothing more is committed."""
        return self.complete_until + self.promise.seconds

    @property
    def is_planned(self) -> bool:
        """Whether its time does not count now."""
        return self.planned_until > self.counted_at

    @property
    def age_seconds(self) -> float:
        """How old its newest data was when it was counted; without planned time."""
        return self.counted_at - self.complete_until

    def budget_left_seconds(self, wall: float) -> float:
        """What is left of the budget of ``BUDGET_DAYS`` at Unix time ``wall``; it may be negative.

        The oldest day of them counts whole.
        """
        first = wall // DAY_SECONDS - BUDGET_DAYS
        used = sum(seconds for day, seconds in self.bad_by_day.items() if day >= first)
        return self.promise.budget_seconds - used


def begin(promise: Promise, query: Query | None, now: float) -> Freshness:
    """Begin to count: until it is known better, the data is complete when a run begins."""
    since = now if query is None else min(now, query.run.started_at)
    return Freshness(promise=promise, counted_at=now, complete_until=since)


def pass_time(before: Freshness, until: float, wall_of_zero: float) -> Freshness:
    """Count the time up to ``until``, in which nothing more was committed.

    ``wall_of_zero`` is the Unix time of monotonic 0.
    """
    before = _leave_out(before, min(until, before.planned_until))
    passed = until - before.counted_at
    if passed <= 0:
        return before
    bad = min(passed, max(0.0, until - before.deadline))
    return replace(
        before,
        counted_at=until,
        total_seconds=before.total_seconds + passed,
        bad_seconds=before.bad_seconds + bad,
        bad_by_day=_with_bad(before.bad_by_day, until + wall_of_zero, bad),
    )


def _leave_out(before: Freshness, until: float) -> Freshness:
    passed = until - before.counted_at
    if passed <= 0:
        return before
    return replace(
        before,
        counted_at=until,
        complete_until=before.complete_until + passed,
        left_out_seconds=before.left_out_seconds + passed,
    )


def _with_bad(by_day: dict[int, float], until: float, seconds: float) -> dict[int, float]:
    """Add bad seconds before Unix time ``until`` to their days."""
    if not seconds:
        return by_day
    first = ceil(until / DAY_SECONDS) - 1 - BUDGET_DAYS
    days = {day: bad for day, bad in by_day.items() if day >= first}
    while seconds > 0:
        day = ceil(until / DAY_SECONDS) - 1
        if day < first:
            break
        part = min(seconds, until - day * DAY_SECONDS)
        days[day] = days.get(day, 0.0) + part
        seconds -= part
        until -= part
    return days


def follow(
    before: Freshness, query: Query | None, snapshot: Snapshot, wall_of_zero: float
) -> Freshness:
    """Count the time until the snapshot, with what the query has proven meanwhile.

    ``query`` is None while an expected query was not seen.
    """
    if query is None:
        return pass_time(before, snapshot.at, wall_of_zero)
    proof = _proof(before, query, is_running=snapshot.is_running(query))
    counted = pass_time(before, min(proof.at, snapshot.at), wall_of_zero)
    if proof.until > counted.complete_until:
        counted = replace(counted, complete_until=min(proof.until, counted.counted_at))
    counted = pass_time(counted, snapshot.at, wall_of_zero)
    committed_at = query.run.last_commit_at
    if committed_at is not None and committed_at != counted.committed_at:
        counted = replace(counted, committed_at=committed_at)
    mark = _next_mark(before, query)
    held_back_at = _held_back_at(before, query)
    if mark is before.mark and held_back_at == before.held_back_at:
        return counted
    return replace(counted, mark=mark, held_back_at=held_back_at)


# -- proofs -----------------------------------------------------------------------------------


class Proof(msgspec.Struct, frozen=True, gc=False):
    """Since ``at`` it is known that all that had arrived ``until`` a moment is committed."""

    at: float
    until: float


NO_PROOF = Proof(-inf, -inf)


def _proof(before: Freshness, query: Query, *, is_running: bool) -> Proof:
    run = query.run
    proofs = [NO_PROOF, _proof_by_batches(before, query, is_running=is_running)]
    if run.last_idle_at is not None and run.last_idle_at != _held_back_at(before, query):
        proofs.append(Proof(run.last_idle_at, run.last_idle_at))
    return max(proofs, key=lambda proof: proof.until)


def _held_back_at(before: Freshness, query: Query) -> float | None:
    return query.run.last_idle_at if query.run.holds_back else before.held_back_at


def _proof_by_batches(before: Freshness, query: Query, *, is_running: bool) -> Proof:
    """What the newest batch and the newest polls prove; of several sources the oldest counts."""
    asked_at = _asked_at(before, query)
    run = query.run
    sources = () if run.progress is None else run.progress.sources
    polled = query.checkpoint.sources if is_running else {}
    mark = before.mark
    untils = [
        max(
            _read_until(source, asked_at, is_polled=_answers(query, index)),
            _marked_until(source, index, mark),
            _polled_until(polled.get(index)),
        )
        for index, source in enumerate(sources)
    ]
    polls = [source.poll.at for source in polled.values() if source.poll is not None]
    known = [at for at in (run.last_commit_at, *polls) if at is not None]
    return Proof(max(known, default=-inf), min(untils, default=asked_at))


def _answers(query: Query, index: int) -> bool:
    source = query.checkpoint.sources.get(index)
    return source is not None and source.poll is not None and bool(source.poll.committed)


def _asked_at(before: Freshness, query: Query) -> float:
    """When the newest committed batch asked its sources for data, at the earliest.

    A batch begins after the commit before it; that is all that is known of one without an event,
    and of one that repeats an earlier plan.
    """
    run = query.run
    if run.last_commit_at is None:
        return -inf
    progress = run.progress
    at = run.progress_at
    is_reported = progress is not None and progress.batch_id == run.last_commit_batch
    if progress is not None and at is not None and is_reported and not _repeats_plan(query):
        trigger = run.trigger
        if trigger is not None and trigger.is_real_time:
            return at  # it reads until it ends
        if progress.batch_seconds is not None:
            return at - progress.batch_seconds
    has_new = before.committed_at is not None and run.last_commit_at > before.committed_at
    return before.committed_at if has_new and before.committed_at is not None else -inf


def _repeats_plan(query: Query) -> bool:
    """Whether the first batch of the run was planned by an earlier run."""
    first = query.run.first_batch
    if first is None or first != query.run.last_commit_batch:
        return False
    point = query.checkpoint.start_point
    unfinished = None if point is None else point.unfinished
    failures = query.history.failures
    is_planned_before = unfinished is not None and unfinished.batch_id == first
    return is_planned_before or bool(failures and failures[-1].batch_id == first)


def _is_behind(source: SourceProgress) -> bool:
    unread = source.lag_offsets or source.backlog_files or source.backlog_bytes
    return bool(unread) or may_be_behind(source.end, source.latest)


def _read_until(source: SourceProgress, asked_at: float, *, is_polled: bool) -> float:
    """Until when a batch that asked then has read the source.

    Of a source that is polled and does not say in events what it has, only polls count.
    """
    if source.behind_seconds is not None:
        return asked_at - source.behind_seconds
    is_silent = source.latest is None and source.lag_offsets is None
    return -inf if _is_behind(source) or (is_silent and is_polled) else asked_at


def _marked_until(source: SourceProgress, index: int, mark: Mark | None) -> float:
    if mark is None or index >= len(mark.latest) or mark.latest[index] is None:
        return -inf
    return -inf if may_be_behind(source.end, mark.latest[index]) else mark.at


def _next_mark(before: Freshness, query: Query) -> Mark | None:
    """The mark, or that of the newest batch once all sources have passed it."""
    progress = query.run.progress
    mark = before.mark
    if progress is None or not any(map(_is_behind, progress.sources)):
        return None
    if mark is not None and len(mark.latest) == len(progress.sources):
        passed = zip(progress.sources, mark.latest, strict=True)
        if any(may_be_behind(source.end, latest) for source, latest in passed):
            return mark
    asked_at = _asked_at(before, query)
    latest = tuple(source.latest for source in progress.sources)
    return mark if asked_at == -inf else Mark(asked_at, latest)


def _polled_until(source: PolledSource | None) -> float:
    """Until when the polls show that the source is read."""
    poll = None if source is None else source.poll
    if source is None or poll is None or not poll.committed or poll.missing_reason:
        return -inf
    ahead = poll.at - poll.wall
    untils = [
        _backlog_until(backlog, poll.waiting_since.get(partition, -inf) + ahead)
        for partition, backlog in source.backlogs.items()
    ]
    return min([poll.at, *untils])


def _backlog_until(backlog: Backlog, written_at: float) -> float:
    """Until when a partition is read, whose first unread record was written then."""
    since = backlog.marks[0].at
    return since if backlog.has_beginning else min(since, written_at)


# -- over processes ---------------------------------------------------------------------------


END_OF_TIME = 253_402_300_799.0
"""The last second of the year 9999: planned time without an end is stored with this one."""


def stored(count: Freshness, wall_of_zero: float) -> Freshness:
    """What a later process needs, in Unix seconds."""
    count = _shifted(count, wall_of_zero)
    return replace(count, planned_until=min(max(count.planned_until, 0.0), END_OF_TIME))


def restored(count: Freshness, wall_of_zero: float, now: float) -> Freshness:
    """What an earlier process has stored, without a future, in which the clock may have been."""
    count = _shifted(count, -wall_of_zero)
    counted_at = min(count.counted_at, now)
    return replace(
        count, counted_at=counted_at, complete_until=min(count.complete_until, counted_at)
    )


def _shifted(count: Freshness, seconds: float) -> Freshness:
    return replace(
        count,
        counted_at=count.counted_at + seconds,
        complete_until=count.complete_until + seconds,
        planned_until=count.planned_until + seconds,
        committed_at=None,
        mark=None,
        held_back_at=None,
    )


# -- all queries --------------------------------------------------------------------------------


def _newest(counts: Mapping[str, Freshness], most: int) -> Mapping[str, Freshness]:
    """At most so many, counted last: each restart of a query without a name leaves one."""
    if len(counts) <= most:
        return counts
    by_time = sorted(counts.items(), key=lambda entry: entry[1].counted_at)
    return dict(by_time[len(by_time) - max(0, most) :])


class FreshnessCounts:
    """The freshness of each query that has a promise, by its label; used by one thread."""

    def __init__(self) -> None:
        self.counts: Mapping[str, Freshness] = {}
        """Of all queries with a promise that were ever seen."""
        self._left: dict[str, Freshness] = {}

    def restore(self, left: Mapping[str, Freshness], now: float, wall_of_zero: float) -> None:
        """Add what an earlier process has counted, and the time since, by the mark of the label.

        It is added when the query is seen. Times are as they were stored, in Unix seconds.
        """
        for mark, kept in left.items():
            count = restored(kept, wall_of_zero, now)
            if now - count.counted_at <= KEEP_SECONDS:
                self._left[mark] = count
        self.counts = {
            label: self._with_left(label, count, wall_of_zero)
            for label, count in self.counts.items()
        }

    def update(
        self,
        snapshot: Snapshot,
        promises: Mapping[str, Promise],
        planned: Mapping[str, float],
        wall: float,
    ) -> Mapping[str, Freshness]:
        """Count the time of the queries with a promise, by label, and return their freshness.

        ``planned`` says until when the time of a query does not count, by label.
        """
        queries = snapshot.labels()
        wall_of_zero = wall - snapshot.at
        counted = {}
        for label, promise in promises.items():
            query = queries.get(label)
            before = self.counts.get(label)
            if before is None:
                before = begin(promise, query, snapshot.at)
                before = self._with_left(label, before, wall_of_zero)
            count = follow(before, query, snapshot, wall_of_zero)
            until = planned.get(label, -inf)
            if count.promise != promise or count.planned_until != until:
                count = replace(count, promise=promise, planned_until=until)
            counted[label] = count
        others = {label: one for label, one in self.counts.items() if label not in counted}
        self.counts = {**_newest(others, MAX_KEPT - len(counted)), **counted}
        return counted

    def kept(self, wall_of_zero: float) -> dict[str, Freshness]:
        """What the next process needs, by the mark of the label, in Unix seconds."""
        counts = self._left | {mark_of(label): count for label, count in self.counts.items()}
        newest = _newest(counts, MAX_KEPT)
        return {mark: stored(count, wall_of_zero) for mark, count in newest.items()}

    def forget(self, label: str) -> None:
        """Drop a query that will not come back."""
        self.counts = {other: count for other, count in self.counts.items() if other != label}

    def _with_left(self, label: str, count: Freshness, wall_of_zero: float) -> Freshness:
        """The count with what an earlier process has counted of the same query."""
        left = self._left.pop(mark_of(label), None)
        if left is None:
            return count
        began_at = count.counted_at - count.total_seconds - count.left_out_seconds
        earlier = pass_time(left, began_at, wall_of_zero)
        is_proven = count.complete_until > began_at
        days = earlier.bad_by_day | {
            day: earlier.bad_by_day.get(day, 0.0) + bad for day, bad in count.bad_by_day.items()
        }
        return replace(
            count,
            complete_until=count.complete_until if is_proven else earlier.complete_until,
            total_seconds=earlier.total_seconds + count.total_seconds,
            bad_seconds=earlier.bad_seconds + count.bad_seconds,
            left_out_seconds=earlier.left_out_seconds + count.left_out_seconds,
            bad_by_day=days,
        )
