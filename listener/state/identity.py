"""Decides which query a run belongs to, by query id, name, session and label.

A *query* is a stream that people know by its label. It has one run at a time and continues from
run to run. ``docs/identity.md`` says the same for users.

What introduces a run that is not known yet:

==============================================  ================================================
observation                                     effect
==============================================  ================================================
start event                                     introduces the run, unless it is older than the
                                                current run of its id or the active run of its
                                                name and session: by its timestamp or, if the
                                                start of that run is unknown, by the next poll
the probe shows the run as active               introduces it, even if it counted as a past run
end with an exception (event)                   introduces a failed run; while another run of the
                                                query is active, the failure of an earlier run
progress                                        introduces a query of an unknown id, if no known
                                                query has its name; never a run of a known query
idle, end without an exception                  none
the probe's record of an ended run              introduces a failed run, once, of an unknown
                                                query; otherwise none
any observation of a past run                   none, but an end that was still missing counts
==============================================  ================================================

Which query an introduced run belongs to:

==============================================  ================================================
what is known                                   the run belongs to
==============================================  ================================================
the query id                                    that query, forgotten ones included
a name that an active query of the same         that query: Spark allows one per session, so the
session has                                     end of the old run is only late
a name that only ended queries have             the one of the same session, otherwise the one
                                                that ended last: the run takes over its label,
                                                counters, deaths and unrecovered failure
a name that an active query of another          the ended query of that name in its own session
session has, or had in the same poll            if there is one, otherwise a new query
a name that an active query has, and one of     undecided until the other query ends, the probe
the sessions is unknown                         has seen both, or ``UNDECIDED_SECONDS`` have passed
no name                                         a new query: only its id identifies it
==============================================  ================================================

A query gets its label once: the name, or the first 8 characters of the id. A long label is cut
to ``LABEL_CHARACTERS`` with a hash; a label that another query already has gets
``-<first 8 of the id>``. It stays with its query for the life of the process, with one exception: a
query first known by a failure whose start event was lost gets its label again with its name, or
becomes one with the query of that name in the same session, if one of the two had ended before the
other began.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from hashlib import sha256
from operator import attrgetter
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from ..events import Event, Idle, Started, Terminated
from ..mailbox import Arrived
from ..probe import ProbedRun, ProbeReport
from .flow import Places
from .fold import PAST_DEATHS, add_totals, is_done_with, lasting_commit
from .query import (
    BASELINE_BATCHES,
    RECENT_BATCHES,
    Ended,
    Outcome,
    Query,
    has_uncounted_rows,
    without_input,
)
from .trends import Trends, carry_over

# -- past queries -----------------------------------------------------------------------------
# A bounded record of past runs and forgotten queries.
#
# A past run or query is recognised for as long as an observation of it can still arrive, so a late
# observation never counts as a new run.


MAX_PAST_RUNS = 10_000
"""The queues between Spark and us hold 10,000 starts and ends each (``mailbox.py``,
``event_queue.py``), and a run has one of each: no queued event belongs to an older run."""

MAX_FORGOTTEN = 1000
"""As many as ended queries that are still shown (``MAX_GONE_QUERIES``)."""

T = TypeVar("T")


class PastQueries:
    """The labels of past runs and past query ids, and what is kept of forgotten queries."""

    def __init__(self) -> None:
        self._runs: dict[str, str] = {}
        self._ids: dict[str, str] = {}
        self._forgotten: dict[str, Query] = {}

    def add_run(self, query_id: str, run_id: str, label: str) -> None:
        """Record that a run of this query ended or was replaced."""
        _put(self._runs, run_id, label, MAX_PAST_RUNS)
        self.add_id(query_id, label)

    def add_id(self, query_id: str, label: str) -> None:
        """Record that this query had this id: the end of a run has no name."""
        _put(self._ids, query_id, label, MAX_PAST_RUNS)

    def bring_back(self, run_id: str) -> None:
        """Record that a past run is active after all."""
        self._runs.pop(run_id, None)

    def label_of_run(self, run_id: str) -> str | None:
        """The label of the query that a past run belongs to; None if it is not a past run."""
        return self._runs.get(run_id)

    def label_of_id(self, query_id: str) -> str | None:
        """The label that a query id had before it was replaced or forgotten."""
        return self._ids.get(query_id)

    def rename(self, old: str, new: str) -> None:
        """Record that the query with the label ``old`` has the label ``new`` from now on."""
        self._runs = {run: new if label == old else label for run, label in self._runs.items()}
        self._ids = {one: new if label == old else label for one, label in self._ids.items()}

    def forget(self, query: Query) -> None:
        """Keep only what its next run needs: its identity, and counters that never decrease."""
        self.add_run(query.query_id, query.run_id, query.label)
        # There can be hundreds of unnamed queries, and few of them return.
        unnamed = [label for label, one in self._forgotten.items() if one.is_unnamed]
        if len(self._forgotten) >= MAX_FORGOTTEN:
            del self._forgotten[unnamed[0] if unnamed else next(iter(self._forgotten))]
        self._forgotten[query.label] = _remains(query)

    def remember(self, label: str | None) -> Query | None:
        """What is kept of a forgotten query."""
        return self._forgotten.get(label) if label is not None else None

    def take(self, label: str) -> None:
        """Remove a forgotten query that has returned."""
        self._forgotten.pop(label, None)

    @property
    def forgotten(self) -> Iterable[Query]:
        """What is kept of all forgotten queries, oldest first."""
        return self._forgotten.values()


def _remains(query: Query) -> Query:
    gone_at = query.gone_or_started_at
    return Query(
        query_id=query.query_id,
        run_id=query.run_id,
        name=query.name,
        label=query.label,
        started_at=query.started_at,
        start=query.start,
        ended=Ended(gone_at, Outcome.COMPLETED, "forgotten"),
        last_commit_batch=query.last_commit_batch,
        totals=query.totals,
        last_input_at=gone_at if has_uncounted_rows(query) else query.last_input_at,
        without_input_before=query.without_input_before,
    )


def _put(known: dict[str, T], key: str, value: T, limit: int) -> None:
    known.pop(key, None)
    known[key] = value
    if len(known) > limit:
        del known[next(iter(known))]


# -- undecided --------------------------------------------------------------------------------
# Holds events of runs whose query is not decided yet.


MAX_EVENTS = 1000
"""Far more than a few restarts produce within ``UNDECIDED_SECONDS``."""


class Undecided:
    """Holds events by query id, in their order."""

    def __init__(self) -> None:
        self._held: dict[str, list[Arrived]] = {}
        self._count = 0

    def __contains__(self, query_id: str) -> bool:
        return query_id in self._held

    @property
    def is_full(self) -> bool:
        """Whether all held events must be decided now."""
        return self._count >= MAX_EVENTS

    def add(self, seen: Arrived) -> None:
        """Hold an event after those of the same query."""
        self._held.setdefault(seen.event.query_id, []).append(seen)
        self._count += 1

    def take(self, query_id: str) -> list[Arrived]:
        """Remove and return the held events of a query, oldest first."""
        held = self._held.pop(query_id, [])
        self._count -= len(held)
        return held

    def since(self, at: float) -> list[str]:
        """The queries with an event held since before ``at``."""
        return [key for key, held in self._held.items() if held[0].at < at]

    def all(self) -> list[str]:
        """The queries with held events."""
        return list(self._held)


# -- succession -------------------------------------------------------------------------------
# How a query goes on from run to run.


UNENDED_RUNS = 16


def begin(query_id: str, run_id: str, name: str | None, at: float, *, label: str) -> Query:
    """Create the record of a new query."""
    return Query(query_id=query_id, run_id=run_id, name=name, label=label, started_at=at)


def succeed(old: Query, query_id: str, run_id: str, at: float) -> Query:
    """Begin the next run: keep the totals and the baseline, reset the signs of activity."""
    same_query = old.query_id == query_id
    return Query(
        query_id=query_id,
        run_id=run_id,
        name=old.name,
        label=old.label,
        started_at=at,
        unended_runs=tuple(run for run in _unended(old) if run != run_id),
        last_commit_batch=lasting_commit(old) if same_query else None,
        newest_commit=old.newest_commit if same_query else None,
        unrecovered=old.failure,
        deaths=old.deaths,
        unrecovered_deaths=old.unrecovered_deaths,
        retention=old.retention if same_query else {},
        trends=carry_over(old.trends) if same_query else Trends(),
        baseline=old.baseline,
        recent_batches=old.recent_batches,
        totals=replace(old.totals, restarts=old.totals.restarts + 1),
        commits_before_run=old.totals.commits,
        jobs_per_batch=old.jobs_per_batch,
        places=old.places if same_query else Places(),
        start_point=old.start_point if same_query else None,
        without_input_before=without_input(old, at) if same_query else 0.0,
    )


def _unended(old: Query) -> tuple[str, ...]:
    if old.ended is not None:
        return old.unended_runs
    return (*old.unended_runs, old.run_id)[-UNENDED_RUNS:]


def began_after(query: Query, others: Iterable[Query]) -> Query | None:
    """The query of the same name and session whose run began after ``query`` had ended."""
    ended_at = query.gone_at
    if ended_at is None:
        return None
    same = _of_name_and_session(query, others)
    return next((one for one in same if one.started_at >= ended_at), None)


def ended_before(query: Query, others: Iterable[Query]) -> Query | None:
    """The query of the same name and session that had ended before ``query`` was first seen.

    That includes one that has only vanished from polls: a session has one active query of a name.
    """
    seen_at = min([query.started_at, *(died.at for died in query.deaths)])
    same = _of_name_and_session(query, others)
    return next((one for one in same if one.gone_at is not None and one.gone_at <= seen_at), None)


def _of_name_and_session(query: Query, others: Iterable[Query]) -> Iterator[Query]:
    """The others with its name in its session; none if the session is unknown."""
    place = (query.name, query.session)
    return (one for one in others if query.session and (one.name, one.session) == place)


def join(older: Query, newer: Query) -> Query:
    """One query of two: ``newer``, whose run began after that of ``older`` had ended, and its past.

    One of them was not known by its name, so ``newer`` did not succeed ``older``.
    """
    committed_at = newer.newest_commit[1] if newer.newest_commit is not None else 0.0
    recovered = (
        newer.activity_seen or is_done_with(newer) or committed_at > older.gone_or_started_at
    )
    failures = [one for one in (older.failure, newer.unrecovered) if one is not None]
    deaths = sorted((*older.deaths, *newer.deaths), key=lambda died: died.at)
    return replace(
        newer,
        unended_runs=(*_unended(older), *newer.unended_runs)[-UNENDED_RUNS:],
        unrecovered=newer.unrecovered
        if recovered
        else max(failures, key=lambda one: one.at, default=None),
        deaths=tuple(deaths[-PAST_DEATHS:]),
        unrecovered_deaths=newer.unrecovered_deaths
        + (0 if recovered else older.unrecovered_deaths),
        totals=add_totals(older.totals, newer.totals, restarts=1),
        commits_before_run=older.totals.commits + newer.commits_before_run,
        baseline=(*older.baseline, *newer.baseline)[-BASELINE_BATCHES:],
        recent_batches=(*older.recent_batches, *newer.recent_batches)[-RECENT_BATCHES:],
        jobs_per_batch=newer.jobs_per_batch or older.jobs_per_batch,
    )


# -- labels -----------------------------------------------------------------------------------
# The text that identifies a query to people.


UNNAMED = "unnamed"
"""The query label of alerts about queries without a name."""
RESERVED = frozenset({"*", UNNAMED})
"""Labels that alerts use for more than one query."""
LABEL_CHARACTERS = 100
HASH_CHARACTERS = 12
ID_CHARACTERS = 8

_OF_NAMESAKE = re.compile(rf"(?P<base>.+)-[0-9a-f]{{{ID_CHARACTERS}}}(-\d+)?", re.DOTALL)


def base_label(name: str | None, query_id: str = "") -> str:
    """A query's label as long as no other query has it: bounded in length."""
    text = name or query_id[:ID_CHARACTERS]
    if len(text) <= LABEL_CHARACTERS:
        return text
    # Long names often differ only at the end.
    digest = sha256(text.encode(errors="surrogatepass")).hexdigest()[:HASH_CHARACTERS]
    return f"{text[: LABEL_CHARACTERS - HASH_CHARACTERS - 1]}-{digest}"


def free_label(name: str | None, query_id: str, taken: Collection[str]) -> str:
    """The base label, with a suffix if it is taken."""
    base = base_label(name, query_id)
    if base not in taken:
        return base
    label = f"{base}-{query_id[:ID_CHARACTERS]}"
    number = 2
    while label in taken:
        label = f"{base}-{query_id[:ID_CHARACTERS]}-{number}"
        number += 1
    return label


def is_of_namesake(label: str, name: str | None) -> bool:
    """Whether a query of this name gets such a label: another query has the base label."""
    match = _OF_NAMESAKE.fullmatch(label)
    return name is not None and match is not None and match["base"] == base_label(name)


# -- identity ---------------------------------------------------------------------------------


UNDECIDED_SECONDS = 5.0
"""Five calm polls of the probe at its default interval."""

_LAST = attrgetter("gone_or_started_at")


class Newcomer(msgspec.Struct, frozen=True):
    """A run that is not known yet, as the observation that introduces it describes it."""

    query_id: str
    run_id: str
    at: float
    name: str | None = None
    session: str = ""
    beside: frozenset[str] = frozenset()
    """The ids of all runs in the same report that are active, or were when last polled."""


class UndecidedError(Exception):
    """The query of a run cannot be decided yet."""


class Identity:
    """The queries of one driver by id, name and run; the number of past ones is bounded."""

    def __init__(self) -> None:
        self._labels: dict[str, str] = {}
        self._past = PastQueries()

    def label(self, query_id: str) -> str | None:
        """The label of the query that an id belongs to, or belonged to; None if unknown."""
        return self._labels.get(query_id) or self._past.label_of_id(query_id)

    def label_of_past_run(self, run_id: str) -> str | None:
        """The label of the query that a past run belongs to; None if it is not a past run."""
        return self._past.label_of_run(run_id)

    def present(self, query_id: str, queries: Mapping[str, Query]) -> Query | None:
        """The query that an id belongs to, or belonged to; None if unknown or forgotten."""
        label = self.label(query_id)
        return queries.get(label) if label is not None else None

    def met_by_event(
        self, event: Event, at: float, queries: Mapping[str, Query], *, wait: bool
    ) -> Newcomer | None:
        """The run that an event outside any current run introduces; None if it introduces none.

        Raises:
            UndecidedError: it is not known yet which run is older, and ``wait`` is set.

        """
        if self._past.label_of_run(event.run_id) is not None:
            return None
        new = Newcomer(event.query_id, event.run_id, at)
        if isinstance(event, Started):
            known = self.present(event.query_id, queries) or self._active_namesake(event, queries)
            if known is not None and _is_older(event, at, known, wait=wait):
                self._past.add_id(event.query_id, known.label)
                return None
            return replace(new, name=event.name, session=event.session)
        if isinstance(event, Terminated):
            return new if event.exception is not None else None
        if isinstance(event, Idle) or self.label(event.query_id) is not None:
            return None
        namesakes = self._namesakes(event.name, queries) if event.name else ()
        return None if any(namesakes) else replace(new, name=event.name)

    def met_by_probe(
        self, run: ProbedRun, report: ProbeReport, queries: Mapping[str, Query]
    ) -> Newcomer | None:
        """The run that a poll introduces; None if it introduces none."""
        facts = run.facts
        known = self.present(facts.query_id, queries)
        if run.active:
            # A poll that began before the current run shows the run before it.
            if known is not None and (
                known.run_id == facts.run_id or known.started_at >= report.began_at
            ):
                return None
        elif run.exception is None or self.label(facts.query_id) is not None:
            return None
        return Newcomer(facts.query_id, facts.run_id, report.at, facts.name, facts.session)

    def add_past_run(self, query_id: str, run_id: str, label: str) -> None:
        """Record a run of a known query that had ended before it was first observed."""
        self._past.add_run(query_id, run_id, label)

    def introduce(self, new: Newcomer, queries: Mapping[str, Query], *, wait: bool) -> Query:
        """The query that a new run belongs to, at the start of that run.

        Raises:
            UndecidedError: the query is not known yet, and ``wait`` is set.

        """
        old = self._predecessor(new, queries, wait=wait)
        self._past.bring_back(new.run_id)
        if old is None:
            label = self._free_label(new, queries)
            query = begin(new.query_id, new.run_id, new.name, new.at, label=label)
        else:
            query = succeed(old, new.query_id, new.run_id, new.at)
            self._keep_past(old, old.label)
        self._labels[query.query_id] = query.label
        return query

    def named(self, query: Query, queries: Mapping[str, Query]) -> Query:
        """A query whose name was unknown, with the label of its name, or as the past of another."""
        later = began_after(query, queries.values())
        earlier = ended_before(query, queries.values()) if later is None else None
        if later is not None:
            named = join(query, later)
            self._keep_past(query, later.label)
        elif earlier is not None:
            named = replace(join(earlier, query), label=earlier.label)
            self._keep_past(earlier, earlier.label)
        else:
            new = Newcomer(query.query_id, query.run_id, query.started_at, query.name)
            named = replace(query, label=self._free_label(new, queries))
        self._past.rename(query.label, named.label)
        self._labels[named.query_id] = named.label
        return named

    def forget(self, query: Query) -> None:
        """Drop an ended query; its label, counters and last run stay known."""
        self._labels.pop(query.query_id, None)
        self._past.forget(query)

    def _keep_past(self, run: Query, label: str) -> None:
        self._labels.pop(run.query_id, None)
        self._past.add_run(run.query_id, run.run_id, label)
        self._past.take(label)

    def _predecessor(
        self, new: Newcomer, queries: Mapping[str, Query], *, wait: bool
    ) -> Query | None:
        label = self.label(new.query_id)
        known = (queries.get(label) if label is not None else None) or self._past.remember(label)
        is_active = known is not None and (known.alive or known.run_id in new.beside)
        if known is not None and (known.query_id == new.query_id or not is_active):
            return known
        if not new.name:
            return None
        namesakes = list(self._namesakes(new.name, queries))
        living = [one for one in namesakes if one.alive or one.run_id in new.beside]
        dead = [one for one in namesakes if one not in living]
        own = [one for one in (*living, *dead) if new.session and one.session == new.session]
        if own:
            return own[0]
        if not living:
            return max(dead, key=_LAST, default=None)
        if wait and not (new.session and all(one.session for one in living)):
            raise UndecidedError
        # An ended query whose session is also unknown may be the predecessor.
        unknown = [one for one in dead if not one.session and not new.session]
        return max(unknown, key=_LAST, default=None)

    def _namesakes(self, name: str, queries: Mapping[str, Query]) -> Iterator[Query]:
        for query in (*queries.values(), *self._past.forgotten):
            if query.name == name:
                yield query

    def _active_namesake(self, event: Started, queries: Mapping[str, Query]) -> Query | None:
        """The active query with the name and in the session of a start event."""
        same = self._namesakes(event.name, queries) if event.name and event.session else ()
        return next((one for one in same if one.alive and one.session == event.session), None)

    def _free_label(self, new: Newcomer, queries: Mapping[str, Query]) -> str:
        taken = {*RESERVED, *queries, *(one.label for one in self._past.forgotten)}
        return free_label(new.name, new.query_id, taken)


def _is_older(event: Started, at: float, present: Query, *, wait: bool) -> bool:
    """Whether a start event that arrived at ``at`` is from a run before the current one."""
    known = present.start.timestamp if present.start is not None else None
    if known is not None and event.timestamp is not None:
        return event.timestamp < known
    if not present.alive or present.probed_at is None:
        # No poll will decide.
        return False
    if wait and present.start is None:
        raise UndecidedError
    return not wait and present.probed_at > at
