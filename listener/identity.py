"""Which query is this? Query id, run id, name, session and label, in one place. Pure.

A *query* is a line of work that people know by its label. It has one run at a time, and goes on
from run to run. ``docs/identity.md`` says the same for users.

What introduces a run, where the run was not met before:

==============================================  ================================================
observation                                     what it does
==============================================  ================================================
start event                                     introduces the run, unless it is older than the
                                                present run by its own timestamp; where the
                                                start event of that one is missing: unless the
                                                next poll sees it still alive
the probe sees the run alive                    introduces it, even if it was taken for a past run
end with an exception (event)                   introduces a failed run; while another run of the
                                                query lives, it is a death of an earlier run
progress                                        introduces a query of an unknown id and a name
                                                that nobody bears; never a run of a known query
idle, end without an exception                  nothing
the probe's memory of a run that has ended      introduces a failed run, once, of a query that
                                                nobody has met; otherwise nothing
anything of a past run                          nothing, but an end that was still missing counts
==============================================  ================================================

Whose run it is, when the run is introduced:

==============================================  ================================================
known is                                        the run belongs to
==============================================  ================================================
the query id                                    that query, forgotten ones included
a name, borne by a living query of the same     that query: Spark allows one in a session, so the
session                                         end of the old run is merely late
a name, all of whose other bearers are dead     the one of the same session, otherwise the one
                                                that died last: label, counters, deaths and a
                                                failure that is not resolved go over
a name, borne by a living query of another      the dead bearer of its own session if there is
session                                         one, otherwise a new query
a name, borne by a living query, and one of     undecided until the other ends, the probe has
the sessions is unknown                         seen both, or ``UNDECIDED_SECONDS`` are over
no name                                         a new query: nothing but its id says who it is
==============================================  ================================================

A label is given once: the name, or the first 8 characters of the id. It is cut to
``LABEL_CHARACTERS`` with a hash, and gets ``-<first 8 of the id>`` where another query had it
first. It stays with its query for the life of the process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import sha256

import msgspec
from msgspec.structs import replace

from .events import Event, Idle, Started, Terminated
from .fold import begin, succeed
from .past_queries import PastQueries
from .probing import ProbedRun, ProbeReport
from .query import Query

LABEL_CHARACTERS = 100
HASH_CHARACTERS = 12
ID_CHARACTERS = 8
UNDECIDED_SECONDS = 5.0
"""Ten polls of the probe at its default interval."""

UNNAMED = "unnamed"
"""The query label of alerts about queries without a name."""
RESERVED = frozenset({"*", UNNAMED})
"""Labels that alerts use for more than one query."""


class Newcomer(msgspec.Struct, frozen=True):
    """A run that was not met before, as far as the observation that introduces it says."""

    query_id: str
    run_id: str
    at: float
    name: str | None = None
    session: str = ""


class UndecidedError(Exception):
    """Nobody knows yet whose run it is."""


class Identity:
    """Knows the queries of one driver by id, name and run, the past ones within bounds."""

    def __init__(self) -> None:
        self._labels: dict[str, str] = {}
        self._past = PastQueries()

    def label(self, query_id: str) -> str | None:
        """The label of the query that an id belongs to, or did; None if it was never met."""
        return self._labels.get(query_id) or self._past.label_of_id(query_id)

    def label_of_past_run(self, run_id: str) -> str | None:
        """The label of the query that a past run belongs to; None if it is no past run."""
        return self._past.label_of_run(run_id)

    def present(self, query_id: str, queries: Mapping[str, Query]) -> Query | None:
        """The query that an id belongs to, or did; None if it was never met or is forgotten."""
        label = self.label(query_id)
        return queries.get(label) if label is not None else None

    def met_by_event(
        self, event: Event, at: float, queries: Mapping[str, Query], *, wait: bool
    ) -> Newcomer | None:
        """The run that an event introduces, which is no present run; None if it does not.

        Raises:
            UndecidedError: nobody knows yet which run is the older one, and it can wait.

        """
        if self._past.label_of_run(event.run_id) is not None:
            return None
        new = Newcomer(event.query_id, event.run_id, at)
        if isinstance(event, Started):
            known = self.present(event.query_id, queries)
            if known is not None and _is_older(event, at, known, wait=wait):
                return None
            return replace(new, name=event.name, session=event.session)
        if isinstance(event, Terminated):
            return new if event.exception is not None else None
        if isinstance(event, Idle) or self.label(event.query_id) is not None:
            return None
        bearers = self._bearers(event.name, queries) if event.name else ()
        return None if any(bearers) else replace(new, name=event.name)

    def met_by_probe(
        self, run: ProbedRun, report: ProbeReport, queries: Mapping[str, Query]
    ) -> Newcomer | None:
        """The run that a poll introduces; None if it does not."""
        facts = run.facts
        known = self.present(facts.query_id, queries)
        if run.active:
            # A poll that began before the present run did shows the run before it.
            if known is not None and (
                known.run_id == facts.run_id or known.started_at >= report.began_at
            ):
                return None
        elif run.exception is None or self.label(facts.query_id) is not None:
            return None
        return Newcomer(facts.query_id, facts.run_id, report.at, facts.name, facts.session)

    def add_past_run(self, query_id: str, run_id: str, label: str) -> None:
        """Take note of a run of a known query that was over before it was met."""
        self._past.add_run(query_id, run_id, label)

    def introduce(self, new: Newcomer, queries: Mapping[str, Query], *, wait: bool) -> Query:
        """The query of a run that was not met before, at the beginning of that run.

        Raises:
            UndecidedError: nobody knows yet whose run it is, and it can wait.

        """
        old = self._predecessor(new, queries, wait=wait)
        self._past.bring_back(new.run_id)
        if old is None:
            label = self._free_label(new, queries)
            query = begin(new.query_id, new.run_id, new.name, new.at, label=label)
        else:
            query = succeed(old, new.query_id, new.run_id, new.at)
            self._labels.pop(old.query_id, None)
            self._past.add_run(old.query_id, old.run_id, old.label)
            self._past.take(old.label)
        self._labels[query.query_id] = query.label
        return query

    def forget(self, query: Query) -> None:
        """Drop a query that is gone; its label, counters and last run stay known."""
        self._labels.pop(query.query_id, None)
        self._past.forget(query)

    def _predecessor(
        self, new: Newcomer, queries: Mapping[str, Query], *, wait: bool
    ) -> Query | None:
        label = self.label(new.query_id)
        known = (queries.get(label) if label is not None else None) or self._past.remember(label)
        if known is not None and (known.query_id == new.query_id or not known.alive):
            return known
        if not new.name:
            return None
        bearers = list(self._bearers(new.name, queries))
        living = [one for one in bearers if one.alive]
        dead = [one for one in bearers if not one.alive]
        own = [one for one in (*living, *dead) if new.session and one.session == new.session]
        if own:
            return own[0]
        if not living:
            return max(dead, key=_gone_at, default=None)
        if wait and not (new.session and all(one.session for one in living)):
            raise UndecidedError
        # One of which nobody knows the session either may be the one that ended.
        unknown = [one for one in dead if not one.session and not new.session]
        return max(unknown, key=_gone_at, default=None)

    def _bearers(self, name: str, queries: Mapping[str, Query]) -> Iterator[Query]:
        for query in (*queries.values(), *self._past.forgotten):
            if query.name == name:
                yield query

    def _free_label(self, new: Newcomer, queries: Mapping[str, Query]) -> str:
        """Its base label, with a suffix where another query has that."""
        base = base_label(new.name, new.query_id)
        taken = {*RESERVED, *queries, *(one.label for one in self._past.forgotten)}
        if base not in taken:
            return base
        label = f"{base}-{new.query_id[:ID_CHARACTERS]}"
        number = 2
        while label in taken:
            label = f"{base}-{new.query_id[:ID_CHARACTERS]}-{number}"
            number += 1
        return label


def base_label(name: str | None, query_id: str = "") -> str:
    """What a query is shown under as long as no other query is: bounded in length."""
    text = name or query_id[:ID_CHARACTERS]
    if len(text) <= LABEL_CHARACTERS:
        return text
    # Long names often differ at their end only.
    digest = sha256(text.encode(errors="surrogatepass")).hexdigest()[:HASH_CHARACTERS]
    return f"{text[: LABEL_CHARACTERS - HASH_CHARACTERS - 1]}-{digest}"


def _is_older(event: Started, at: float, present: Query, *, wait: bool) -> bool:
    """Whether a start event that arrived at ``at`` is of an earlier run than the present one."""
    if present.start is not None:
        known = present.start.timestamp
        return known is not None and event.timestamp is not None and event.timestamp < known
    if not present.alive or present.probed_at is None:
        # No poll will decide.
        return False
    if wait:
        raise UndecidedError
    return present.probed_at > at


def _gone_at(query: Query) -> float:
    return query.started_at if query.gone_at is None else query.gone_at
