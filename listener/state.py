"""What is known of all queries of one driver. Owned and changed by one thread only."""

from __future__ import annotations

from collections import Counter

from msgspec.structs import replace

from .commit_log import LogReport
from .ending import end_past_run
from .events import Event, Idle, Progress, Started, Terminated
from .fold import begin, fold_event, fold_log, fold_probe, succeed
from .ownership import ALONE, Ownership
from .probing import Context, ProbedRun, ProbeReport
from .query import Outcome, Query
from .snapshot import Pause, Snapshot
from .sources.fold_sources import fold_sources
from .sources.report import SourceReport

KEEP_COMPLETED_SECONDS = 15 * 60.0
MAX_GONE_QUERIES = 1000
MAX_PAUSES = 100


class State:
    """Folds observations into queries and publishes immutable snapshots of them."""

    def __init__(self, began_at: float) -> None:
        self.began_at = began_at
        self.events: Counter[str] = Counter()
        self._queries: dict[str, Query] = {}
        self._probe: ProbeReport | None = None
        self._log: LogReport | None = None
        self._context_stopped_at: float | None = None
        self._events_dropped_at: float | None = None
        self._pauses: tuple[Pause, ...] = ()
        self._ownership = ALONE

    def hear(self, event: Event, at: float, context: Context = Context.RUNNING) -> None:
        """Take in one event that arrived at ``at``; ``context`` as seen when it was read."""
        self.events[_KINDS[type(event)]] += 1
        if isinstance(event, Terminated):
            self._end_past_run(event, at, "event", context)
        query = self._route(event, at)
        if query is not None:
            self._queries[query.query_id] = fold_event(query, event, at, context=context)

    def look(self, report: ProbeReport) -> None:
        """Take in a probe report: complete, so a living run it does not name has vanished.

        Of a JVM that is gone nothing more is known: its runs are what they were.
        """
        self._look_at_driver(report)
        if report.context is Context.JVM_GONE:
            return
        named = set()
        for run in report.runs:
            named.add(run.facts.run_id)
            if not run.active:
                self._end_past_run(_as_event(run), report.at, "probe", report.context)
            query = self._present(run, report)
            # A run whose turn it was not is reported as it was last seen: no news.
            if query is not None and query.probed is not run:
                self._queries[query.query_id] = fold_probe(
                    query, run, report.at, context=report.context
                )
        for key, query in self._queries.items():
            if query.alive and query.run_id not in named and query.started_at < report.began_at:
                self._queries[key] = replace(query, vanished_at=report.at)

    def read(self, report: LogReport) -> None:
        """Take in a round of reading checkpoints; what names no present run is let go."""
        self._log = report
        for key, query in self._queries.items():
            log = report.logs.get(query.run_id)
            if log is not None and query.alive:
                self._queries[key] = fold_log(query, log, report.at)

    def ask(self, report: SourceReport) -> None:
        """Take in what is known of all sources asked; the dead are asked too."""
        for key, query in self._queries.items():
            looks = report.looks.get(query.run_id, {})
            trouble = report.unreadable.get(query.run_id, "")
            self._queries[key] = fold_sources(query, looks, trouble)

    def query(self, query_id: str) -> Query | None:
        """What is known of one query."""
        return self._queries.get(query_id)

    def expect_stop(self, name: str) -> None:
        """Take note that the present run of ``name`` is going to be stopped, or just was."""
        for key, query in self._queries.items():
            if query.name == name:
                self._queries[key] = replace(query, stop_expected=True)

    def pause(self, at: float, seconds: float) -> None:
        """Record that nobody watched for ``seconds`` before ``at`` (GC, SIGSTOP, a full CPU)."""
        self._pauses = (*self._pauses, Pause(at, seconds))[-MAX_PAUSES:]

    def own(self, ownership: Ownership) -> None:
        """Take in which queries this process answers for.

        A process that closes has reported what had ended by then; the rest becomes another's.
        """
        just_left = ownership.left - self._ownership.left
        self._ownership = ownership
        for key, query in self._queries.items():
            if query.session in just_left and not query.alive:
                self._queries[key] = replace(query, reported_elsewhere=True)

    def forget(self, now: float) -> None:
        """Drop queries that completed a while ago, and the oldest of too many that are gone.

        A dead query is not forgotten by time: nobody is to read "resolved" who has not cured it.
        """
        gone = [query for query in self._queries.values() if query.gone_at is not None]
        gone.sort(key=lambda query: (not _completed(query), query.gone_at))
        surplus = len(gone) - MAX_GONE_QUERIES
        for index, query in enumerate(gone):
            if index < surplus or (_completed(query) and _is_old(query, now)):
                del self._queries[query.query_id]

    def snapshot(self, now: float) -> Snapshot:
        """Everything known, frozen."""
        return Snapshot(
            at=now,
            began_at=self.began_at,
            queries=tuple(self._queries.values()),
            probe=self._probe,
            log=self._log,
            context_stopped_at=self._context_stopped_at,
            events_dropped_at=self._events_dropped_at,
            pauses=self._pauses,
            ownership=self._ownership,
        )

    def _look_at_driver(self, report: ProbeReport) -> None:
        before = self._probe.listener.dropped_events if self._probe is not None else None
        dropped = report.listener.dropped_events
        if before is not None and dropped is not None and dropped > before:
            self._events_dropped_at = report.at
        if report.context is not Context.RUNNING and self._context_stopped_at is None:
            self._context_stopped_at = report.at
        self._probe = report

    def _end_past_run(self, event: Terminated, at: float, witness: str, context: Context) -> None:
        known = self._queries.get(event.query_id)
        if known is not None and event.run_id in known.unended_runs:
            self._queries[known.query_id] = end_past_run(
                known, event, at, witness=witness, context=context
            )

    def _route(self, event: Event, at: float) -> Query | None:
        """The query an event belongs to; None when it is an old run's, or tells nothing."""
        known = self._queries.get(event.query_id)
        if known is None:
            if isinstance(event, Idle) or _ended_well(event):
                # A nameless idle query will be introduced by the probe; an end without an
                # exception, before anybody watched, is nobody's business.
                return None
            name = None if isinstance(event, Terminated) else event.name
            return self._meet(event.query_id, event.run_id, name, at)
        if event.run_id == known.run_id:
            return known
        if event.run_id in known.past_runs or (isinstance(event, Terminated) and known.alive):
            return None
        return succeed(known, event.query_id, event.run_id, at)

    def _present(self, run: ProbedRun, report: ProbeReport) -> Query | None:
        """The query a probed run belongs to; None when a newer run is known."""
        facts = run.facts
        known = self._queries.get(facts.query_id)
        if known is None:
            return self._meet(facts.query_id, facts.run_id, facts.name, report.at)
        if facts.run_id == known.run_id:
            return known
        if not run.active:
            return None
        if facts.run_id in known.past_runs and known.started_at >= report.began_at:
            return None
        # What runs now is the present run, in whatever order the starts were heard.
        return succeed(known, facts.query_id, facts.run_id, report.at)

    def _meet(self, query_id: str, run_id: str, name: str | None, at: float) -> Query:
        """A query of a new id: a dead one of the same name is what it replaces."""
        for old in self._queries.values():
            if name is not None and old.name == name and not old.alive:
                del self._queries[old.query_id]
                return succeed(old, query_id, run_id, at)
        return begin(query_id, run_id, name, at)


_KINDS = {Started: "started", Progress: "progress", Idle: "idle", Terminated: "terminated"}


def _as_event(run: ProbedRun) -> Terminated:
    return Terminated(run.facts.query_id, run.facts.run_id, run.exception, run.error_class)


def _ended_well(event: Event) -> bool:
    return isinstance(event, Terminated) and event.exception is None


def _completed(query: Query) -> bool:
    return query.ended is not None and query.ended.outcome is Outcome.COMPLETED


def _is_old(query: Query, now: float) -> bool:
    return query.gone_at is not None and now - query.gone_at > KEEP_COMPLETED_SECONDS
