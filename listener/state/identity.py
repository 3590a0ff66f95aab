"""Decides which query a run belongs to, by query id, name, session and label.

A *query* is a stream that people know by its label. It has one run at a time and continues from
run to run. ``docs/limits.md`` has the rules: what introduces a run, which query it belongs to,
and how long a query keeps its label.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import chain, count
from operator import attrgetter

import msgspec
from msgspec.structs import replace

from ...core.text import digest
from ..events import Event, Idle, Started, Terminated
from ..probe_report import ProbedRun, ProbeReport
from .query import ID_CHARACTERS, Query, join, remains, same_query, succeed, with_checkpoint_of
from .run import Run

# -- labels -----------------------------------------------------------------------------------


UNNAMED = "unnamed"
"""The query label of alerts about queries without a name."""
RESERVED = frozenset({"*", UNNAMED})
"""Labels that alerts use for more than one query."""
LABEL_CHARACTERS = 100
HASH_CHARACTERS = 12

_OF_NAMESAKE = re.compile(rf"(?P<base>.+)-[0-9a-f]{{{ID_CHARACTERS}}}(-\d+)?", re.DOTALL)


def base_label(name: str | None, query_id: str = "") -> str:
    """A query's label as long as no other query has it: bounded in length."""
    text = name or query_id[:ID_CHARACTERS]
    if len(text) <= LABEL_CHARACTERS:
        return text
    # Long names often differ only at the end.
    beginning = text[: LABEL_CHARACTERS - HASH_CHARACTERS - 1]
    return f"{beginning}-{digest(text, HASH_CHARACTERS)}"


def is_of_namesake(label: str, name: str | None) -> bool:
    """Whether a query of this name gets such a label: another query has the base label."""
    match = _OF_NAMESAKE.fullmatch(label)
    return name is not None and match is not None and match["base"] == base_label(name)


# -- identity ---------------------------------------------------------------------------------


UNDECIDED_SECONDS = 5.0
"""Five calm polls of the probe at its default interval."""
MAX_PAST = 20_000
"""Ids of past runs, and of their queries. The queues between Spark and us (``mailbox.py``,
``event_paths.py``) hold 10,000 starts and ends each, and a run has one of each: no queued event
belongs to an older run."""
MAX_FORGOTTEN = 1000
"""As many as ended queries that are still shown (``MAX_GONE_QUERIES``)."""

_LAST = attrgetter("run.gone_or_started_at")


class Newcomer(msgspec.Struct, frozen=True):
    """A run that is not known yet, as the observation that introduces it describes it."""

    query_id: str
    run_id: str
    at: float
    name: str | None = None
    session: str = ""
    checkpoint: str = ""
    replaced: str = ""
    """The run that Spark stopped to start this one, see ``Started``."""
    beside: frozenset[str] = frozenset()
    """The ids of all runs in the same report that are active, or were when last polled."""


class UndecidedError(Exception):
    """The query of a run cannot be decided yet."""


class Identity:
    """The queries of one driver by id, name and run; the number of past ones is bounded."""

    def __init__(self, queries: Mapping[str, Query]) -> None:
        self._queries = queries
        """By label: the queries that are shown; their owner changes them."""
        self._labels: dict[str, str] = {}
        """By query id: the label of the query that has this id now."""
        self._past: dict[str, str] = {}
        """By id of a past run, or of a query before its id was replaced: the label."""
        self._forgotten: dict[str, Query] = {}
        """By label: what is kept of a query that is no longer shown, and of a label it gave up."""
        self._left: frozenset[str] = frozenset()
        """Ended runs after which a poll showed no run on their checkpoint."""

    def label(self, some_id: str) -> str | None:
        """The label of the query that has or had this id, or that this past run belongs to."""
        return self._labels.get(some_id) or self._past.get(some_id)

    def has(self, query_id: str) -> bool:
        """Whether a query has this id now: it was neither replaced nor forgotten."""
        return query_id in self._labels

    def present(self, some_id: str) -> Query | None:
        """The query that an id belongs to, or belonged to; None if unknown or forgotten."""
        return self._queries.get(self.label(some_id) or "")

    def met_by_event(self, event: Event, at: float, *, wait: bool) -> Newcomer | None:
        """The run that an event outside any current run introduces; None if it introduces none.

        Raises:
            UndecidedError: it is not known yet which run is older, and ``wait`` is set.

        """
        if event.run_id in self._past:
            return None
        new = Newcomer(event.query_id, event.run_id, at)
        if isinstance(event, Started):
            present = self.present(event.query_id) or self._active_namesake(event)
            if present is not None and _is_older(event, at, present, wait=wait):
                self.add_past(present.label, event.query_id)
                return None
            return replace(
                new,
                name=event.name,
                session=event.session,
                checkpoint=event.checkpoint,
                replaced=event.replaced,
            )
        if isinstance(event, Terminated):
            return new if event.exception is not None else None
        if isinstance(event, Idle) or self.label(event.query_id) is not None:
            return None
        return None if self._namesakes(event.name) else replace(new, name=event.name)

    def met_by_probe(self, run: ProbedRun, report: ProbeReport) -> Newcomer | None:
        """The run that a poll introduces; None if it introduces none."""
        facts = run.facts
        if run.active:
            query = self.present(facts.query_id)
            # A poll that began before the current run shows the run before it.
            if query and (
                query.run.run_id == facts.run_id or query.run.started_at >= report.began_at
            ):
                return None
        elif run.exception is None or self.label(facts.query_id) is not None:
            return None
        return Newcomer(
            facts.query_id,
            facts.run_id,
            report.at,
            facts.name,
            facts.session,
            facts.checkpoint,
        )

    def replaced_by(self, new: Newcomer) -> Query | None:
        """The query of another name that had the checkpoint, if Spark stopped a run for this one.

        The start of the stopped run may have been lost. A poll that showed no run on the checkpoint
        proves that this run was started later, and that the event of the end was late.
        """
        query = self.holder(new.query_id)
        if query is None or not new.replaced or not _is_renamed(query, new):
            return None
        is_late = new.replaced in self._past or query.run.run_id in self._left
        return None if is_late else query

    def note_free_checkpoints(self, report: ProbeReport) -> None:
        """Record which of the ended runs have left their checkpoint to nobody by this poll."""
        active = {run.facts.query_id for run in report.runs if run.active}
        gone = (query for query in self._queries.values() if query.run.gone_at is not None)
        self._left = frozenset(
            query.run.run_id
            for query in gone
            if query.run.run_id in self._left
            or (query.run.started_at < report.began_at and query.query_id not in active)
        )

    def awaits_start(self, new: Newcomer) -> bool:
        """Whether the start event of a polled run is to say first if Spark stopped another for it.

        Without that event, the run continues the query after ``UNDECIDED_SECONDS``.
        """
        query = self.holder(new.query_id)
        if query is None or not _is_renamed(query, new):
            return False
        return new.at - query.run.gone_or_started_at < UNDECIDED_SECONDS

    def add_past(self, label: str, *ids: str) -> None:
        """Record ids of runs that are over, and of queries, all of the query with this label."""
        for past in ids:
            self._past.pop(past, None)
            self._past[past] = label
        while len(self._past) > MAX_PAST:
            del self._past[next(iter(self._past))]

    def introduce(self, new: Newcomer, *, wait: bool) -> Query:
        """The query that a new run belongs to, at the start of that run.

        Raises:
            UndecidedError: the query is not known yet, and ``wait`` is set.

        """
        old, holder = self._predecessor(new, wait=wait), self.holder(new.query_id)
        self._past.pop(new.run_id, None)
        if old is None:
            label = self._free_label(new.name, new.query_id)
            run = Run(run_id=new.run_id, started_at=new.at)
            query = Query(query_id=new.query_id, name=new.name, label=label, run=run)
        else:
            query = succeed(old, new.query_id, new.run_id, new.at, new.checkpoint)
            self._replace(old, query)
        if holder is not None and holder.label != query.label:
            query = with_checkpoint_of(query, holder)
            self.add_past(holder.label, holder.run.run_id)
        self._labels[query.query_id] = query.label
        return query

    def named(self, query: Query) -> Query:
        """A query whose name was unknown, with the label of its name, or as one with another."""
        for other in self._queries.values():
            if (pair := same_query(query, other)) is not None:
                named = replace(join(*pair), label=other.label)
                self._replace(pair[0], named)
                break
        else:
            named = replace(query, label=self._free_label(query.name, query.query_id))
        self._past = {
            past: named.label if label == query.label else label
            for past, label in self._past.items()
        }
        self._labels[named.query_id] = named.label
        # Its counters would fall if the label were given again.
        self._keep(replace(query, name=None))
        return named

    def forget(self, query: Query) -> None:
        """Drop an ended query; its label, counters and last run stay known."""
        self._leave_id(query, query.label)
        self._keep(query)

    def _replace(self, old: Query, new: Query) -> None:
        self._leave_id(old, new.label)
        self._forgotten.pop(new.label, None)

    def _leave_id(self, query: Query, label: str) -> None:
        """Its run is over, and its id, unless another query has that by now, is of the past."""
        self.add_past(label, query.run.run_id)
        if self._labels.get(query.query_id, query.label) == query.label:
            self._labels.pop(query.query_id, None)
            self.add_past(label, query.query_id)

    def _keep(self, query: Query) -> None:
        if len(self._forgotten) >= MAX_FORGOTTEN:
            # There can be hundreds of unnamed queries, and few of them return.
            unnamed = (label for label, old in self._forgotten.items() if old.is_unnamed)
            del self._forgotten[next(unnamed, next(iter(self._forgotten)))]
        self._forgotten[query.label] = remains(query)

    def _predecessor(self, new: Newcomer, *, wait: bool) -> Query | None:
        old = self._of_id(new) or self._of_folder(new)
        if old is not None:
            return old
        if not new.name:
            given_up = self._forgotten.get(base_label(None, new.query_id))
            return given_up if given_up and given_up.query_id == new.query_id else None
        return self._of_name(new, wait=wait)

    def _of_id(self, new: Newcomer) -> Query | None:
        """The query of the new run's id, unless Spark stopped it for a query of another name."""
        label = self.label(new.query_id) or ""
        old = self._queries.get(label) or self._forgotten.get(label)
        if old is None or (old.query_id == new.query_id and not _is_renamed(old, new)):
            return old
        earlier = self._earlier_holder(new)
        if earlier is not None:
            return earlier
        if old.query_id == new.query_id:
            return None if self.replaced_by(new) else old
        return None if old.run.alive or old.run.run_id in new.beside else old

    def holder(self, query_id: str) -> Query | None:
        """The query that has this id now."""
        query = self.present(query_id)
        return query if query is not None and query.query_id == query_id else None

    def _of_name(self, new: Newcomer, *, wait: bool) -> Query | None:
        namesakes = self._namesakes(new.name)
        living = [query for query in namesakes if _may_live_beside(query, new)]
        dead = [query for query in namesakes if query not in living]
        for query in (*living, *dead):
            if new.session and query.run.session == new.session:
                return query
        if not living:
            return max(dead, key=_LAST, default=None)
        is_sure = all(query.run.session and query.run.vanished_at is None for query in living)
        if wait and not (is_sure and new.session):
            raise UndecidedError
        # An ended query whose session is also unknown may be the predecessor.
        unknown = [query for query in dead if not query.run.session and not new.session]
        return max(unknown, key=_LAST, default=None)

    def _earlier_holder(self, new: Newcomer) -> Query | None:
        """The query of the new run's name that had its checkpoint before another query took it."""
        namesakes = (query for query in self._namesakes(new.name) if not query.run.alive)
        return next((query for query in namesakes if query.query_id == new.query_id), None)

    def _of_folder(self, new: Newcomer) -> Query | None:
        """The ended query of the new run's name, or without a name too, in the same folder."""
        queries = (*self._queries.values(), *self._forgotten.values()) if new.checkpoint else ()
        same = (
            query
            for query in queries
            if query.run.checkpoint_folder == new.checkpoint
            and (query.name or "") == (new.name or "")
        )
        ended = [query for query in same if not _may_live_beside(query, new)]
        return max(ended, key=_LAST, default=None)

    def _namesakes(self, name: str | None) -> list[Query]:
        queries = (*self._queries.values(), *self._forgotten.values()) if name else ()
        return [query for query in queries if query.name == name]

    def _active_namesake(self, event: Started) -> Query | None:
        """The active query with the name and in the session of a start event."""
        same = self._namesakes(event.name) if event.session else ()
        active = (query for query in same if query.run.alive and query.run.session == event.session)
        return next(active, None)

    def _free_label(self, name: str | None, query_id: str) -> str:
        """The base label, with a suffix if it is taken."""
        base, taken = base_label(name, query_id), {*RESERVED, *self._queries, *self._forgotten}
        longer = f"{base}-{query_id[:ID_CHARACTERS]}"
        labels = chain((base, longer), (f"{longer}-{number}" for number in count(2)))
        return next(label for label in labels if label not in taken)


def _is_renamed(query: Query, new: Newcomer) -> bool:
    """Whether both have a name, and not the same one."""
    return bool(query.name and new.name) and query.name != new.name


def _is_older(event: Started, at: float, present: Query, *, wait: bool) -> bool:
    """Whether a start event that arrived at ``at`` is from a run before the current one."""
    if event.replaced == present.run.run_id:
        return False
    began = present.run.start.timestamp if present.run.start is not None else None
    if began is not None and event.timestamp is not None:
        return event.timestamp < began
    if not present.run.alive or present.run.probed_at is None:
        # No poll will decide.
        return False
    if wait and present.run.start is None:
        raise UndecidedError
    return not wait and present.run.probed_at > at


def _may_live_beside(query: Query, new: Newcomer) -> bool:
    """Whether a query of the new run's name is active, or may be: polls can miss a run briefly."""
    if query.run.alive or query.run.run_id in new.beside:
        return True
    if query.run.ended is not None or query.run.vanished_at is None:
        return False
    is_elsewhere = query.run.session and new.session and query.run.session != new.session
    return bool(is_elsewhere) and new.at - query.run.vanished_at < UNDECIDED_SECONDS
