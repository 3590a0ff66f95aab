"""The state of all queries of one driver. One thread owns and changes it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from math import inf

from msgspec.structs import replace

from ..commit_log import LogReport
from ..events import KIND_OF, Event, Progress, Terminated
from ..foresight.resources import Resources
from ..mailbox import Arrived
from ..past_failures import PastFailures
from ..probe_report import Context, ProbedRun, ProbeReport, SessionEnd
from ..source_polls import SourceReport
from .fold import (
    end_past_run,
    expect_stop,
    fold_event,
    fold_logs,
    fold_probe,
    fold_sources,
    replaced_by,
    session_ended,
)
from .identity import UNDECIDED_SECONDS, UNNAMED, Identity, Newcomer, UndecidedError
from .positions import Reading, follow_late, handed_over, recent
from .query import Query, with_reading
from .snapshot import Ownership, Pause, Snapshot, SupervisedQuery, add_poll, add_reading

# -- forgetting -------------------------------------------------------------------------------


KEEP_COMPLETED_SECONDS = 15 * 60.0
MAX_GONE_QUERIES = 1000
MAX_GONE_UNNAMED = 20
"""Each restart of a query without a name and a checkpoint leaves one more of them."""
FORGET_EVERY = 100
"""Queries are forgotten at each hundredth new one, and not only once a minute."""


def to_forget(
    queries: Iterable[Query],
    now: float,
    expected: Collection[str],
    supervised: Collection[str] = (),
    runs_again: Callable[[Query], bool] = lambda _: False,
) -> list[Query]:
    """Queries that completed some time ago, and the oldest ones above the limit of ended queries.

    A failed query is not forgotten by age, so its alert does not resolve before somebody fixes
    it; nor is one that has passed over records, until that is over. Neither an expected query (by
    name) nor a supervised one (by label) is ever forgotten. One that ``runs_again`` is not
    forgotten by age.
    """
    gone = [
        query
        for query in queries
        if query.run.gone_at is not None
        and query.name not in expected
        and query.label not in supervised
    ]
    gone.sort(key=lambda query: (_worth(query), query.run.gone_at))
    unnamed = [query for query in gone if query.is_unnamed]
    surplus = {query.label for query in unnamed[: max(0, len(unnamed) - MAX_GONE_UNNAMED)]}
    named = [query for query in gone if query.label not in surplus]
    surplus |= {query.label for query in named[: max(0, len(named) - MAX_GONE_QUERIES)]}
    old = now - KEEP_COMPLETED_SECONDS
    return [
        query
        for query in gone
        if query.label in surplus
        or (
            query.run.has_completed
            and query.run.gone_or_started_at < old
            and not runs_again(query)
            and not recent(query.history.reading.gaps, now)
        )
    ]


def has_name(query: Query, name: str) -> bool:
    """Whether ``name`` refers to this query."""
    return name in (query.name, query.label) or (name == UNNAMED and query.is_unnamed)


def _worth(query: Query) -> int:
    """Rank for forgetting; what nobody may have fixed yet comes last: failures and sudden stops."""
    if query.failure is not None:
        return 2
    if query.run.has_completed or query.run.stop_expected:
        return 0
    return 1 if query.is_unnamed else 2


# -- state ------------------------------------------------------------------------------------


MAX_PAUSES = 100
MAX_UNDECIDED = 1000
"""Events; far more than a few restarts produce within ``UNDECIDED_SECONDS``."""


class State:
    """Folds observations into queries and publishes immutable snapshots of them.

    ``Identity`` decides which query an observation belongs to.
    """

    def __init__(
        self,
        began_at: float,
        expected: Iterable[str] = (),
        runs_again: Callable[[Query], bool] = lambda _: False,
    ) -> None:
        self.began_at = began_at
        self._runs_again = runs_again
        """Whether a query that has completed is remembered, however long ago that was."""
        self.events: Counter[str] = Counter()
        self.expected = frozenset(expected)
        self.supervised: Mapping[str, SupervisedQuery] = {}
        self._undecided: dict[str, list[Arrived]] = {}
        """By query id: the events of a run whose query is not decided yet, oldest first."""
        self._has_ended = False
        """Whether a run has ended since held events were last decided."""
        self._queries: dict[str, Query] = {}
        self._identity = Identity(self._queries)
        self._driver = Snapshot(at=began_at, began_at=began_at)
        """What is known of the driver as a whole; ``snapshot`` adds the queries."""

    def apply_event(self, event: Event, at: float, context: Context = Context.RUNNING) -> None:
        """Apply an event that arrived at ``at``; ``context`` is the state when it was read."""
        self.events[KIND_OF[type(event)].value] += 1
        self._apply(Arrived(event, at, context), wait=True)
        self._settle()

    def apply_probe(self, report: ProbeReport) -> None:
        """Apply a probe report; it is complete, so an active run that it lacks has vanished.

        After the JVM has ended nothing more is known and its runs keep their state.
        """
        self._driver = add_poll(self._driver, report)
        if report.context is Context.JVM_GONE:
            return
        for run in report.runs:
            self._apply_known(run, report)
        named = {run.facts.run_id for run in report.runs}
        for query in self._queries.values():
            last = query.run
            if last.alive and last.run_id not in named and last.started_at < report.began_at:
                self._put(replace(query, run=replace(last, vanished_at=report.at)))
        self._identity.note_free_checkpoints(report)
        # Only now is it known which other queries of the same name are active, and which run that
        # the poll lacks goes on under its own id: its label passes to no run by its name.
        polled = {run.facts.query_id for run in report.runs if run.active}
        held = set(self._undecided_since(report.began_at)) - polled
        self._decide(filter(self._identity.has, held), wait=False)
        active = frozenset(run.facts.run_id for run in report.runs if run.active)
        for run in report.runs:
            self._apply_new(run, report, active)
        self._decide(self._undecided_since(report.began_at), wait=False)
        self._settle()
        self._end_sessions(report.session_ends or {})

    def _end_sessions(self, ends: Mapping[str, SessionEnd]) -> None:
        for query in self._queries.values() if ends else ():
            if (ended := ends.get(query.run.session)) is not None:
                self._put(session_ended(query, ended))

    def apply_commit_log(self, report: LogReport) -> None:
        """Apply a round of checkpoint reading; entries without a current run are ignored."""
        self._driver = replace(self._driver, log=report)
        for query in self._queries.values():
            self._put(fold_logs(query, report))

    def apply_sources(self, report: SourceReport) -> None:
        """Apply a report of source polls, which includes failed queries."""
        for query in self._queries.values():
            polls = report.polls.get(query.run.run_id, {})
            trouble = report.unreadable.get(query.run.run_id, "")
            self._put(fold_sources(query, polls, trouble))

    def apply_reading(self, reading: Resources) -> None:
        """Apply a reading of the driver's container and disks."""
        self._driver = add_reading(self._driver, reading)

    def query(self, some_id: str) -> Query | None:
        """The query that an id of it or of its run belongs to, or belonged to."""
        return self._identity.present(some_id)

    def restore(self, past: PastFailures) -> None:
        """Add the failures of earlier processes to newly found queries."""
        for query in past.restored(self._queries):
            self._put(query)
        before = dict[str, float]()
        for failed in past.unmet:
            if failed.completed_at is not None:
                before[failed.mark] = max(failed.completed_at, before.get(failed.mark, -inf))
        if before != self._driver.completed_before:
            self._driver = replace(self._driver, completed_before=before)

    def expect_stop(self, name: str, *, is_label: bool = False, until: float = inf) -> None:
        """Record that the current run of ``name`` will be stopped before ``until``, or just was."""
        named = self._called(name, is_label=is_label)
        # If several queries have the name, only active ones are meant.
        for query in [query for query in named if query.run.alive] or named:
            self._put(expect_stop(query, until))

    def expect_end(self, until: float) -> None:
        """Record that the whole driver will end before ``until``."""
        self._driver = replace(self._driver, end_expected_until=until)

    def _end_announcements(self, now: float) -> None:
        """Drop the announcements of stops that did not come: what ends later was not planned."""
        for query in self._queries.values():
            if query.run.alive and query.run.stop_expected_until <= now:
                run = replace(query.run, stop_expected=False, stop_expected_until=inf)
                self._put(replace(query, run=run))

    def pause(self, at: float, seconds: float) -> None:
        """Record that this process was paused for ``seconds`` before ``at`` (GC, SIGSTOP, CPU)."""
        pauses = (*self._driver.pauses, Pause(at, seconds))[-MAX_PAUSES:]
        self._driver = replace(self._driver, pauses=pauses)

    def own(self, ownership: Ownership) -> None:
        """Set which queries this process alerts for.

        A process that closes has reported all ends up to then; others take over its other queries.
        """
        self._driver = replace(self._driver, ownership=ownership)
        if not ownership.left:
            return
        for query in self._queries.values():
            was_reported = ownership.was_reported(query.run.session, query.run.gone_at)
            if was_reported and not query.run.reported_elsewhere:
                self._put(replace(query, run=replace(query.run, reported_elsewhere=True)))

    def forget(self, now: float) -> None:
        """Drop queries completed some time ago, and the oldest ended ones above the limit."""
        gone = to_forget(
            self._queries.values(), now, self.expected, self.supervised, self._runs_again
        )
        for query in gone:
            self._drop(query)

    def forget_name(self, name: str, *, is_label: bool = False) -> None:
        """Drop the ended queries of this name, which will not return.

        A name that another query has is still expected.
        """
        named = self._called(name, is_label=is_label)
        ended = [query for query in named if not query.run.alive]
        for query in ended:
            self._drop(with_reading(query, Reading()))
        if ended == named:
            forgotten = {name, *(query.name for query in named)}
            self.expected -= forgotten - {query.name for query in self._queries.values()}

    def _called(self, name: str, *, is_label: bool) -> list[Query]:
        """The queries that have this name, or the one that has this label."""
        queries = self._queries.values()
        if is_label:
            return [query for query in queries if query.label == name]
        return [query for query in queries if has_name(query, name)]

    def snapshot(self, now: float) -> Snapshot:
        """The current state, frozen."""
        self._decide(self._undecided_since(now - UNDECIDED_SECONDS), wait=False)
        self._settle()
        self._end_announcements(now)
        return replace(
            self._driver,
            at=now,
            queries=tuple(self._queries.values()),
            expected=self.expected,
            supervised=self.supervised,
        )

    def _apply_known(self, run: ProbedRun, report: ProbeReport) -> None:
        if not run.active:
            self._end_past_run(run.end_event, report.at, "probe", report.context)
        query = self.query(run.facts.query_id)
        if query is None or query.run.run_id != run.facts.run_id:
            return
        # A run that was not polled this time is reported with its last poll; skip that.
        if query.run.probed is not run:
            self._put(fold_probe(query, run, report.at, context=report.context))

    def _apply_new(self, run: ProbedRun, report: ProbeReport, active: frozenset[str]) -> None:
        new = self._identity.met_by_probe(run, report)
        if new is None or self._identity.awaits_start(new):
            return
        # The end of one of them may have arrived meanwhile; it was active beside the new run.
        new = replace(new, beside=active)
        namesakes = [query for query in self._queries.values() if query.name == new.name]
        unseen = any(
            query.run.started_at >= report.began_at or query.run.vanished_at == report.at
            for query in namesakes
        )
        try:
            self._introduce(new, wait=unseen)
        except UndecidedError:
            return
        # First, so that the held start of an earlier run is known to be older.
        self._apply_known(run, report)
        self._decide([new.query_id], wait=False)

    def _apply(self, seen: Arrived, *, wait: bool) -> None:
        event = seen.event
        query = self.query(event.query_id)
        if query is None or query.run.run_id != event.run_id:
            self._follow_late(event)
            if event.query_id in self._undecided:
                self._hold(seen)
                return
            if isinstance(event, Terminated):
                self._end_past_run(event, seen.at, "event", seen.context)
            try:
                query = self._new_run(seen, wait=wait)
            except UndecidedError:
                self._hold(seen)
                return
        if query is not None:
            self._put(fold_event(query, event, seen.at, context=seen.context))
        self._has_ended |= isinstance(event, Terminated)

    def _settle(self) -> None:
        """After an end, decide held events: their run may succeed the run that has ended."""
        while self._has_ended:
            self._has_ended = False
            self._decide(self._undecided, wait=True)

    def _hold(self, seen: Arrived) -> None:
        self._undecided.setdefault(seen.event.query_id, []).append(seen)
        if sum(map(len, self._undecided.values())) >= MAX_UNDECIDED:
            self._decide(self._undecided, wait=False)

    def _undecided_since(self, at: float) -> list[str]:
        return [query_id for query_id, held in self._undecided.items() if held[0].at < at]

    def _decide(self, query_ids: Iterable[str], *, wait: bool) -> None:
        # First the runs that go on under their own id: no run by name takes their label.
        for query_id in sorted(query_ids, key=self._identity.has, reverse=True):
            for seen in self._undecided.pop(query_id, ()):
                self._apply(seen, wait=wait)

    def _new_run(self, seen: Arrived, *, wait: bool) -> Query | None:
        """The query whose next run an event introduces; None if it introduces none."""
        event = seen.event
        new = self._identity.met_by_event(event, seen.at, wait=wait)
        if new is None:
            return None
        query = self.query(event.query_id)
        if isinstance(event, Terminated) and query is not None and query.run.alive:
            # An earlier run failed, not the active one.
            self._identity.add_past(query.label, event.run_id, event.query_id)
            self._put(end_past_run(query, event, seen.at, signal="event", context=seen.context))
            return None
        return self._introduce(new, wait=wait)

    def _end_past_run(self, event: Terminated, at: float, signal: str, context: Context) -> None:
        query = self.query(event.run_id)
        if query is not None and event.run_id in query.history.unended_runs:
            self._put(end_past_run(query, event, at, signal=signal, context=context))

    def _follow_late(self, event: Event) -> None:
        """Apply an event of a past run, which the start of the next one overtook."""
        query = self.query(event.run_id)
        is_batch = isinstance(event, Progress) and event.committed
        if query is not None and (is_batch or isinstance(event, Terminated)):
            batch = event if isinstance(event, Progress) else None
            reading = follow_late(query.history.reading, event.run_id, batch)
            self._put(with_reading(query, reading))

    def _introduce(self, new: Newcomer, *, wait: bool) -> Query:
        holder, stopped = self._identity.holder(new.query_id), self._identity.replaced_by(new)
        query = self._identity.introduce(new, wait=wait)
        is_new = query.label not in self._queries
        self._put(query)
        if holder is not None and holder.label != query.label:
            holder = with_reading(holder, handed_over(holder.history.reading))
            if stopped is not None and (holder.run.alive or holder.run.run_id == new.replaced):
                holder = replaced_by(holder, query.label, new.at)
            self._put(holder)
        if is_new and (query.is_unnamed or len(self._queries) % FORGET_EVERY == 0):
            self.forget(new.at)
        return query

    def _put(self, query: Query) -> None:
        before = self._queries.get(query.label)
        if before is not None and before.is_unnamed and not query.is_unnamed:
            del self._queries[query.label]
            query = self._identity.named(query)
        self._queries[query.label] = query

    def _drop(self, query: Query) -> None:
        del self._queries[query.label]
        self._identity.forget(query)
