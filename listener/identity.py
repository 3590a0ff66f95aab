"""Decides which query a run belongs to, by query id, name, session and label. Pure.

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

from collections.abc import Iterator, Mapping
from operator import attrgetter

import msgspec
from msgspec.structs import replace

from .events import Event, Idle, Started, Terminated
from .labels import RESERVED, free_label
from .past_queries import PastQueries
from .probing import ProbedRun, ProbeReport
from .query import Query
from .succession import began_after, begin, ended_before, join, succeed

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
