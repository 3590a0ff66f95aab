"""Where a query has read up to, and which records it passed over: one comparison for all sources.

Where a batch begins is compared with where the last one ended, over runs, processes and
checkpoints. That needs positions with an order, in something of known identity: offsets of Kafka,
in a topic of a cluster, or versions of a Delta table, which has an id (``reservoirId``):

* Under a new checkpoint, a run that begins behind the last end has **skipped** what is between.
* Under the same checkpoint, a run begins where the last one ended, so the records between that and
  the first retained one were **deleted** before they were read.
* Another topic under the old name (``TopicDescription.topicId``) was **recreated**: the query goes
  on at its old offset, and the new records before that are not read.

What only might be is no gap. Times are monotonic seconds, on disk Unix seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from functools import lru_cache
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from ...core.text import digest
from ..events import Progress, SourceProgress
from ..offsets import unread_from, whole
from ..source_polls import OFFSET, SourcePoll, topic_of

Key = TypeVar("Key")
Value = TypeVar("Value")

GAP_SECONDS = 24 * 3600.0
"""A gap is an event, not a state: so long after it was found it is over."""
MAX_GAPS = 100
MAX_POSITIONS = 1000
"""Partitions whose positions a query keeps that is not shown any more."""
MARK_CHARACTERS = 12


class Cause(str, Enum):
    """Why records were not read."""

    SKIPPED = "skipped"
    DELETED = "deleted"
    RECREATED = "recreated"


class Position(msgspec.Struct, frozen=True, gc=False):
    """A partition: ``end`` is the first offset that was not read, ``first`` the first retained one.

    ``topic_id`` says which topic of this name it was; empty if the broker does not say.
    """

    end: int
    first: int = 0
    topic_id: str = ""


class Gap(msgspec.Struct, frozen=True, gc=False):
    """The records of a partition from ``start`` to before ``end``, which were not read."""

    place: str
    """The key of the partition, see ``place_of``."""
    start: int
    end: int
    cause: Cause
    found_at: float
    first: int = 0
    """The first offset that is retained, at the last poll."""
    topic_id: str = ""
    unit: str = OFFSET
    """What is counted, see ``SourcePoll.unit``."""
    source: str = ""
    """The table, which has no partitions."""

    @property
    def partition(self) -> str:
        """Its name, such as ``orders/0``, or that of the table."""
        return self.place.partition(" ")[2] or self.source

    @property
    def records(self) -> int:
        """How many offsets it has; transaction markers and compacted records have one, too."""
        return self.end - self.start

    @property
    def is_gone(self) -> bool:
        """Whether all of it is deleted."""
        return self.first >= self.end


class LastRead(msgspec.Struct, frozen=True):
    """Where the runs of one checkpoint had read up to, as known ``at`` a time, and the gaps."""

    at: float
    positions: dict[str, Position] = {}
    gaps: tuple[Gap, ...] = ()
    over_at: float | None = None
    """If it may have read on: when that was over at the latest. None if the positions are exact."""
    session: str = ""
    """Of the last run, if the next one runs in the same process."""
    is_temporary: bool = False
    """Whether its checkpoint was made for one run only."""
    run_id: str = ""
    """The last run, if its end event may still come, and events of batches before that."""
    systems: dict[int, str] = {}
    """By source index: the hash of the system that the last run read."""
    earlier: LastRead | None = None
    """Of the checkpoint before, as far as this one has not been compared with it."""


class Batch(msgspec.Struct, frozen=True, gc=False):
    """A batch that has read fewer rows than offsets from one source; it ended at ``at``."""

    start: dict[str, int]
    end: dict[str, int]
    rows: int
    at: float


class Reading(msgspec.Struct, frozen=True):
    """What is known of where a query reads; ``positions`` are those of its present checkpoint."""

    positions: dict[str, Position] = {}
    gaps: tuple[Gap, ...] = ()
    earlier: LastRead | None = None
    """Of the checkpoint before, until the present one has been compared with it."""
    systems: dict[int, str] = {}
    """By source index: the hash of the system that was polled."""
    is_over: bool = False
    """Whether the end event of the run has arrived: no event of a batch follows."""
    sparse: dict[int, Batch] = {}
    """By source index: a batch since the last poll that may have passed over deleted records."""
    lowest: dict[str, int] = {}
    """By place: the lowest offset at which a batch since the last poll began."""

    @property
    def unsure_since(self) -> float | None:
        """From when on no record was read under the checkpoint before; None if that is exact."""
        return None if self.earlier is None else self.earlier.over_at


@lru_cache(maxsize=1000)
def _mark(system: str) -> str:
    """The hash that identifies a system."""
    return digest(system, MARK_CHARACTERS)


def place_of(system: str, partition: str) -> str:
    """The key of a partition: the hash of its system, and its name."""
    return _place(_mark(system), partition)


def _place(mark: str, partition: str) -> str:
    return f"{mark} {partition}"


# -- gaps -------------------------------------------------------------------------------------


def with_gap(gaps: tuple[Gap, ...], gap: Gap) -> tuple[Gap, ...]:
    """Add a gap; one that it touches becomes part of it. No more than ``MAX_GAPS`` are kept."""
    if gap.end <= gap.start:
        return gaps
    same = [
        other
        for other in gaps
        if other.place == gap.place
        and other.topic_id == gap.topic_id
        and other.start <= gap.end
        and gap.start <= other.end
    ]
    start = min((other.start for other in same), default=gap.start)
    end = max((other.end for other in same), default=gap.end)
    found_at = min((other.found_at for other in same), default=gap.found_at)
    joined = replace(
        gap,
        start=min(start, gap.start),
        end=max(end, gap.end),
        found_at=min(found_at, gap.found_at),
    )
    if any((other.start, other.end) == (joined.start, joined.end) for other in same):
        return gaps
    kept = tuple(other for other in gaps if other not in same)
    return (*kept, joined) if len(kept) < MAX_GAPS else gaps


def without_read(gaps: tuple[Gap, ...], place: str, position: Position) -> tuple[Gap, ...]:
    """The gaps, without what a query at this position will read after all.

    It reads from its position on, but nothing that is deleted. A gap in a topic that was deleted
    itself stays.
    """
    kept = []
    for gap in gaps:
        if gap.place != place:
            kept.append(gap)
        elif is_other_topic(gap.topic_id, position.topic_id):
            kept.append(replace(gap, first=max(gap.first, gap.end)))
        else:
            first = max(gap.first, position.first)
            end = min(gap.end, max(position.end, first))
            if end > gap.start:
                kept.append(replace(gap, first=first, end=end))
    return tuple(kept)


def is_other_topic(before: str, now: str) -> bool:
    """Whether a topic was replaced, by its id; an unknown id proves nothing."""
    return bool(before and now) and before != now


def recent(gaps: tuple[Gap, ...], now: float) -> tuple[Gap, ...]:
    """The gaps that were found less than ``GAP_SECONDS`` ago."""
    return tuple(gap for gap in gaps if now - gap.found_at < GAP_SECONDS)


# -- following --------------------------------------------------------------------------------


SOON_SECONDS = 60.0
"""A poll that shows what a batch passed over is at most so much later: four polls by default."""


def follow_batch(
    reading: Reading, progress: Progress, at: float, *, is_first: bool = True
) -> Reading:
    """Apply a committed batch: it ended where the next one begins.

    ``is_first``: whether it is the first of its run. Only there no rows at all show something: a
    sink that does not read its batches (``foreachBatch``) has none in any.
    """
    positions, gaps, sparse = dict(reading.positions), reading.gaps, dict(reading.sparse)
    lowest, with_gaps = dict(reading.lowest), {gap.place for gap in gaps}
    for index, source in enumerate(progress.sources):
        mark, start, end = reading.systems.get(index), *map(unread_from, (source.start, source.end))
        batch = _sparse(source, at) if is_first or source.input_rows else None
        if batch is not None and index not in sparse:
            sparse[index] = batch
        if mark is None:
            continue
        for partition, offset in end.items():
            place = _place(mark, partition)
            before = positions.get(place) or Position(offset)
            if place in with_gaps:
                left_at = start.get(partition, before.end)
                gaps = without_read(gaps, place, replace(before, end=left_at))
            # Spark begins a partition that is new to it at the first retained offset.
            begun = start.get(partition, 0)
            if begun < lowest.get(place, offset + 1):
                lowest[place] = begun
            positions[place] = Position(offset, before.first, before.topic_id)
    return replace(reading, positions=positions, gaps=gaps, sparse=sparse, lowest=lowest)


def _sparse(source: SourceProgress, at: float) -> Batch | None:
    """The batch if it has read fewer rows than offsets."""
    start, end = whole(source.start), whole(source.end)
    start = {name: offset for name, offset in start.items() if name in end}
    offsets = sum(end[name] - offset for name, offset in start.items())
    return Batch(start, end, source.input_rows, at) if 0 <= source.input_rows < offsets else None


def follow_poll(
    reading: Reading,
    index: int,
    poll: SourcePoll,
    before: SourcePoll | None,
    batch: Mapping[str, int],
) -> Reading:
    """Apply a poll of a source.

    ``before`` is the last poll of the same run; ``batch`` is where a batch ended that was reported
    after the poll began.
    """
    if not poll.system:
        return reading
    positions, gaps = dict(reading.positions), recent(reading.gaps, poll.at)
    with_gaps, lowest = {gap.place for gap in gaps}, dict(reading.lowest)
    for partition, begin in poll.begins.items():
        begun = Position(begin, poll.kept_from.get(partition, 0))
        gaps = without_read(gaps, place_of(poll.system, partition), begun)
    for partition, committed in (poll.begins | poll.committed).items():
        place = place_of(poll.system, partition)
        old = positions.get(place)
        now = _position(poll, partition, old)
        if old is not None and is_other_topic(old.topic_id, now.topic_id):
            last = before.committed.get(partition, old.end) if before is not None else old.end
            # The new topic may be shorter, and what batches have read from a lower offset on is
            # not passed over.
            limits = last, committed, poll.latest.get(partition, committed)
            crossed = min(*limits, lowest.get(place, last))
            gaps = with_gap(gaps, _gap(poll, place, now, (now.first, crossed), Cause.RECREATED))
        elif (passed := _deleted(poll, partition, before)) is not None:
            gaps = with_gap(gaps, _gap(poll, place, now, passed, Cause.DELETED))
        if place in with_gaps:
            gaps = without_read(gaps, place, now)
        positions[place] = replace(now, end=batch.get(partition, committed))
        if partition not in batch:
            lowest.pop(place, None)
    gaps = _add_passed(gaps, reading.sparse.get(index), poll)
    return replace(
        reading,
        positions=positions,
        gaps=gaps,
        systems={**reading.systems, index: _mark(poll.system)},
        sparse=_not_before(reading.sparse, index, poll.at),
        lowest=lowest,
    )


def _deleted(poll: SourcePoll, partition: str, before: SourcePoll | None) -> tuple[int, int] | None:
    """From where to where a poll proves that a partition was deleted before it was read."""
    if poll.at_rest:
        # No batch was planned by then, so the next one begins behind these.
        committed = (poll.begins | poll.committed)[partition]
        return committed, poll.earliest.get(partition, committed)
    # Once: it ends like every gap.
    return None if before is not None and before.passed else poll.passed.get(partition)


def of_topics_read(
    reading: Reading, polls: Mapping[int, SourcePoll], ends: Iterable[str]
) -> Reading:
    """Forget positions in topics that no source reads any more, once all sources were polled.

    ``ends`` are the partitions of the newest batch.
    """
    asked = {index: poll for index, poll in polls.items() if poll.system and poll.committed}
    if not asked or not asked.keys() >= reading.systems.keys():
        return reading
    marks = {_mark(poll.system) for poll in asked.values()}
    topics = {
        (_mark(poll.system), topic_of(partition))
        for poll in asked.values()
        for partition in (*poll.committed, *ends)
    }
    parts = {place: place.partition(" ") for place in reading.positions}
    gone = [
        place
        for place, (mark, _, partition) in parts.items()
        if mark in marks and (mark, topic_of(partition)) not in topics
    ]
    if not gone:
        return reading
    return replace(
        reading,
        positions=_without(reading.positions, gone),
        lowest=_without(reading.lowest, gone),
    )


def _without(values: Mapping[str, Value], keys: Iterable[str]) -> dict[str, Value]:
    gone = set(keys)
    return {key: value for key, value in values.items() if key not in gone}


def _position(poll: SourcePoll, partition: str, old: Position | None) -> Position:
    """The position that a poll shows; what it does not know is as before."""
    before = old or Position(0)
    topic_id = poll.topic_ids.get(topic_of(partition), before.topic_id)
    first = 0 if is_other_topic(before.topic_id, topic_id) else before.first
    end = poll.committed.get(partition, before.end)
    return Position(end, poll.kept_from.get(partition, first), topic_id)


def _gap(poll: SourcePoll, place: str, now: Position, span: tuple[int, int], cause: Cause) -> Gap:
    start, end = span
    source = "" if poll.unit == OFFSET else poll.description
    return Gap(place, start, end, cause, poll.at, now.first, now.topic_id, poll.unit, source)


def _add_passed(gaps: tuple[Gap, ...], batch: Batch | None, poll: SourcePoll) -> tuple[Gap, ...]:
    """Add what a batch passed over because it was deleted.

    Retention may also have deleted it since, and a batch may have fewer rows than offsets for other
    reasons (transaction markers, aborted and compacted records). So it must have read each offset
    that is retained, and nothing else, and the poll must follow soon.
    """
    is_soon = batch is not None and batch.at <= poll.at <= batch.at + SOON_SECONDS
    if batch is None or not is_soon or not poll.earliest.keys() >= batch.start.keys():
        return gaps
    passed = {
        name: (start, min(batch.end[name], poll.earliest[name]))
        for name, start in batch.start.items()
        if poll.earliest[name] > start
    }
    retained = sum(
        max(0, batch.end[name] - max(start, poll.earliest[name]))
        for name, start in batch.start.items()
    )
    for name, span in passed.items() if batch.rows == retained else ():
        place = place_of(poll.system, name)
        gap = _gap(poll, place, _position(poll, name, None), span, Cause.DELETED)
        gaps = with_gap(gaps, gap)
    return gaps


def _not_before(batches: Mapping[int, Batch], index: int, at: float) -> dict[int, Batch]:
    """Those that a poll at that time of source ``index`` has not decided."""
    return {key: batch for key, batch in batches.items() if key != index or batch.at > at}


# -- over checkpoints and processes -----------------------------------------------------------


def with_same_checkpoint(reading: Reading) -> Reading:
    """Begin the next run under the same checkpoint."""
    return replace(reading, sparse={}, lowest={}, is_over=False)


def with_new_checkpoint(last: LastRead) -> Reading:
    """Begin the first run under a new checkpoint, after the last one had read so far."""
    earlier = replace(last, gaps=(), earlier=None)
    if last.earlier is not None:
        times = [at for at in (last.over_at, last.earlier.over_at) if at is not None]
        positions = {**last.earlier.positions, **last.positions}
        earlier = replace(earlier, positions=positions, over_at=max(times, default=None))
    return Reading(gaps=last.gaps, earlier=earlier)


def remains(reading: Reading) -> Reading:
    """What is kept of a query that is forgotten: nothing large."""
    if len(reading.positions) <= MAX_POSITIONS:
        return reading
    return Reading(gaps=reading.gaps)


def handed_over(reading: Reading) -> Reading:
    """What is left to a query when another takes its checkpoint, and reads on from there."""
    return Reading(gaps=reading.gaps)


def continued(reading: Reading) -> Reading:
    """Go on under another query id in the same folder: its batches follow those before."""
    earlier = reading.earlier
    if earlier is None:
        return reading
    positions = {**earlier.positions, **reading.positions}
    return replace(reading, positions=positions, earlier=None)


def follow_late(reading: Reading, run_id: str, progress: Progress | None) -> Reading:
    """Apply a late event of the run under the checkpoint before; without progress, of its end.

    Spark posts starts at once and queues the other events, so a start may overtake them.
    """
    earlier = reading.earlier
    if earlier is None or not run_id or earlier.run_id != run_id:
        return reading
    if progress is None:
        return replace(reading, earlier=replace(earlier, over_at=None, run_id=""))
    positions = dict(earlier.positions)
    for index, source in enumerate(progress.sources):
        mark = earlier.systems.get(index)
        for partition, end in unread_from(source.end).items() if mark is not None else ():
            place = _place(mark or "", partition)
            positions[place] = replace(positions.get(place, Position(end)), end=end)
    return replace(reading, earlier=replace(earlier, positions=positions))


LATE_SECONDS = 30.0
"""For so long the end event of the run before is waited for."""


def compare(
    reading: Reading,
    begins: Mapping[int, Mapping[str, int]],
    polls: Mapping[int, SourcePoll],
    *,
    session: str,
    is_temporary: bool,
) -> Reading:
    """Compare where a new checkpoint begins with where the one before it had ended.

    ``begins`` has the first offset of each partition, by source index. A source is compared once it
    was polled, which shows the system and the topic.
    """
    earlier = reading.earlier
    if earlier is None or not begins:
        return reading
    asked = {index for index, poll in polls.items() if poll.system}
    is_elsewhere = bool(session and earlier.session) and session != earlier.session
    if is_elsewhere or (is_temporary and earlier.is_temporary):
        return replace(reading, earlier=None)
    gaps, left = reading.gaps, dict(earlier.positions)
    over_at = earlier.over_at
    for place, (offset, partition, poll) in _begun(begins, polls).items():
        old, written = left.get(place), poll.written_since.get(partition)
        is_late = earlier.run_id and over_at is not None and poll.at - over_at < LATE_SECONDS
        if old is None or is_late or (over_at is not None and written is None):
            continue
        del left[place]
        now = replace(_position(poll, partition, None), end=offset)
        gaps = without_read(gaps, place, now)
        if not is_other_topic(old.topic_id, now.topic_id):
            end = old.end if over_at is None else max(old.end, written or 0)
            gaps = with_gap(gaps, _gap(poll, place, now, (end, offset), Cause.SKIPPED))
    if asked == begins.keys():
        # What is left of other topics is not read any more.
        places = {
            place_of(polls[index].system, partition)
            for index, begin in begins.items()
            for partition in begin
        }
        left = {place: old for place, old in left.items() if place in places}
    return replace(reading, gaps=gaps, earlier=replace(earlier, positions=left) if left else None)


def _begun(
    begins: Mapping[int, Mapping[str, int]], polls: Mapping[int, SourcePoll]
) -> dict[str, tuple[int, str, SourcePoll]]:
    """By place: where it begins, in the source that begins first if two read it."""
    begun: dict[str, tuple[int, str, SourcePoll]] = {}
    for index, begin in begins.items():
        poll = polls.get(index)
        if poll is None or not poll.system:
            continue
        for partition in begin.keys() & poll.latest.keys():
            place, offset = place_of(poll.system, partition), begin[partition]
            if place not in begun or offset < begun[place][0]:
                begun[place] = offset, partition, poll
    return begun


def restore(reading: Reading, last: LastRead, *, is_same: bool) -> Reading:
    """Add what an earlier process knew; ``is_same`` if it used the same checkpoint."""
    gaps = last.gaps
    if not is_same:
        begun = with_new_checkpoint(last)
        return replace(reading, earlier=begun.earlier, gaps=_joined(gaps, reading.gaps))
    for place, old in last.positions.items():
        now = reading.positions.get(place)
        if now is not None and is_other_topic(old.topic_id, now.topic_id):
            span = now.first, min(old.end, now.end)
            gap = Gap(place, *span, Cause.RECREATED, last.at, now.first, now.topic_id)
            gaps = with_gap(gaps, gap)
    for place, now in reading.positions.items():
        gaps = without_read(gaps, place, now)
    return replace(
        reading,
        positions={**last.positions, **reading.positions},
        gaps=_joined(gaps, reading.gaps),
        earlier=reading.earlier or last.earlier,
        systems={**last.systems, **reading.systems},
    )


def _joined(older: tuple[Gap, ...], newer: Iterable[Gap]) -> tuple[Gap, ...]:
    for gap in newer:
        older = with_gap(older, gap)
    return older


KEEP_EVERY_SECONDS = 30.0


def to_store(
    before: Mapping[Key, LastRead], now: Mapping[Key, LastRead], *, is_last: bool
) -> Mapping[Key, LastRead]:
    """What is stored of all queries after ``before``: the newest, but not at every batch.

    The end of a run, a gap, and what is stored last are stored at once. All are taken together, so
    that many queries cause no more writes than one, and no position is older than its time says.
    """
    if is_last or not before or any(_is_urgent(before.get(key), now[key]) for key in now):
        return now
    kept = {key: before[key] for key in now}
    taken_at = max((reading.at for reading in before.values()), default=0.0)
    is_due = any(reading.at - taken_at >= KEEP_EVERY_SECONDS for reading in now.values())
    has_read = is_due and any(_known(before[key]) != _known(now[key]) for key in now)
    return now if has_read else kept


def _is_urgent(before: LastRead | None, now: LastRead) -> bool:
    if before is None or (before.over_at is None) != (now.over_at is None):
        return True
    return list(map(_span, before.gaps)) != list(map(_span, now.gaps))


def _known(last: LastRead) -> tuple[object, ...]:
    return last.positions, last.gaps, last.earlier


def _span(gap: Gap) -> tuple[str, int, int]:
    return gap.place, gap.start, gap.end


def shifted(last: LastRead, seconds: float) -> LastRead:
    """Convert the times to a clock that is ``seconds`` ahead."""
    return replace(
        last,
        at=last.at + seconds,
        over_at=None if last.over_at is None else last.over_at + seconds,
        gaps=tuple(replace(gap, found_at=gap.found_at + seconds) for gap in last.gaps),
        earlier=None if last.earlier is None else shifted(last.earlier, seconds),
    )


def not_after(last: LastRead, now: float) -> LastRead:
    """What an earlier process knew, whose clock may have been ahead: nothing is of the future."""
    return replace(
        last,
        at=min(last.at, now),
        over_at=None if last.over_at is None else min(last.over_at, now),
        gaps=tuple(replace(gap, found_at=min(gap.found_at, now)) for gap in last.gaps),
        earlier=None if last.earlier is None else not_after(last.earlier, now),
    )


def without_run(last: LastRead) -> LastRead:
    """What another process may know: no run or session of this one goes on there."""
    earlier = None if last.earlier is None else without_run(last.earlier)
    return replace(last, session="", run_id="", earlier=earlier)
