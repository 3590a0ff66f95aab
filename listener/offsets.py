"""Parses the offsets of streaming sources.

Kafka reports ``{"topic": {"0": 42}}``, rate sources an integer, file sources
``{"logOffset": 7}``, Python sources ``{"part-0": 3, "part-1": 8}``, Delta a version and an index,
Iceberg a snapshot and a file in it; event logs hold the same as text. Any other shape is kept as
text: that shows that an offset changed, but neither in which direction nor that data is unread.
"""

from __future__ import annotations

from typing import Any

import msgspec

Position = int | tuple[int, ...]
"""An offset within a partition; a later position is greater."""

Offsets = dict[str, Position] | str
"""Partition -> position; or, for an unknown shape, its text."""

LARGEST = 2**63
WHOLE = ""
"""The key for a source that has no partitions."""
END_INDEX = 2**62
"""A file's index beyond any real one: the version is read (``DeltaSourceOffset.END_INDEX``)."""
BASE_INDEX = -100
"""Before the first file of a Delta version. Delta writes -1 for it, and has smaller indexes than 0
that come after it, for changes of the schema (``DeltaSourceOffset``)."""
_DIGITS = "0123456789"


def parse_offsets(value: Any) -> Offsets | None:
    """Offsets by partition if the shape is known, else as text; None if there are none."""
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value)
        except (msgspec.MsgspecError, RecursionError):
            return None if value == "None" else str(value)
    if value is None:
        return None
    positions = _positions(value)
    return (
        positions if positions is not None else msgspec.json.encode(value, order="sorted").decode()
    )


def by_topic(text: str) -> dict[str, int]:
    """Kafka's offsets by partition, ``topic/0``; empty for any other text."""
    try:
        value = msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return {}
    positions = _kafka(value) if isinstance(value, dict) else None
    return whole(positions)


def whole(offsets: Offsets | None) -> dict[str, int]:
    """By partition: the offsets that are whole numbers, such as Kafka's."""
    if not isinstance(offsets, dict):
        return {}
    return {name: offset for name, offset in offsets.items() if isinstance(offset, int)}


def first_unread(position: Position | None) -> int | None:
    """The first version not fully read at a Delta offset, which is a version and a file index."""
    if not isinstance(position, tuple) or len(position) < len(("version", "index")):
        return None
    version, index = position
    return version + 1 if index >= END_INDEX else version


def unread_from(offsets: Offsets | None) -> dict[str, int]:
    """By partition: what is read next, an offset as Kafka's or a version of a Delta table.

    A table is one partition, whose name is empty.
    """
    if not isinstance(offsets, dict):
        return {}
    versions = [first_unread(position) for position in offsets.values()]
    known = [version for version in versions if version is not None]
    return whole(offsets) | ({WHOLE: known[0]} if known else {})


def planned_in(execution: Any, stream: Any) -> dict[str, Position]:
    """Where a run's last planned batch ends in one source, which may be in flight."""
    return _offsets_of(execution.availableOffsets(), stream)


def committed_in(execution: Any, stream: Any) -> dict[str, Position]:
    """A run's last committed offsets in one source; empty without any, or for an unknown shape."""
    return _offsets_of(execution.committedOffsets(), stream)


def _offsets_of(offsets: Any, stream: Any) -> dict[str, Position]:
    offset = offsets.get(stream)
    positions = parse_offsets(offset.get().json()) if offset.isDefined() else None
    return positions if isinstance(positions, dict) else {}


def lag_between(end: Offsets | None, latest: Offsets | None) -> float | None:
    """Sum of ``latest - end`` over all partitions, each at least 0; None where unknown.

    A partition without an end offset is new and does not count.
    """
    if not isinstance(end, dict) or not isinstance(latest, dict):
        return None
    parts = [
        max(0, ahead - position)
        for partition, position in end.items()
        if isinstance(position, int) and isinstance(ahead := latest.get(partition), int)
    ]
    return float(sum(parts)) if parts else None


def behind(end: Offsets | None, latest: Offsets | None) -> tuple[str, ...]:
    """The partitions that have data after ``end``; offsets that are text have no order."""
    if not isinstance(end, dict) or not isinstance(latest, dict):
        return ()
    return tuple(key for key in end if key in latest and is_before(end[key], latest[key]))


def may_be_behind(end: Offsets | None, latest: Offsets | None) -> bool:
    """Whether data may follow ``end``; offsets that are text only show whether they are equal."""
    if isinstance(latest, str):
        return end != latest
    return bool(behind(end, latest))


def is_before(first: Position, second: Position) -> bool:
    """Whether both positions are of one kind and the first is smaller."""
    if isinstance(first, int) and isinstance(second, int):
        return first < second
    if isinstance(first, tuple) and isinstance(second, tuple):
        return first < second
    return False


def _positions(value: Any) -> dict[str, Position] | None:
    """The positions of a known shape; None for any other."""
    if not isinstance(value, dict):
        number = _integer(value)
        return None if number is None else {WHOLE: number}
    if len(value) == 1:
        # ``logOffset``, and most Python data sources.
        number = _integer(next(iter(value.values())))
        if number is not None:
            return {WHOLE: number}
    return _kafka(value) or _table(value) or _numbered(value)


def _kafka(value: dict[str, Any]) -> dict[str, Position] | None:
    positions: dict[str, Position] = {}
    for topic, partitions in value.items():
        if not isinstance(partitions, dict):
            return None
        for partition, offset in partitions.items():
            number = _integer(offset)
            if number is None:
                return None
            positions[f"{topic}/{partition}"] = number
    return positions or None


def _numbered(value: dict[str, Any]) -> dict[str, Position] | None:
    """Partitions distinguished only by their number; other keys may be anything, such as a time."""
    names = {key.rstrip(_DIGITS) for key in value}
    if len(names) != 1 or not names.isdisjoint(value):
        return None
    positions = {key: _integer(position) for key, position in value.items()}
    numbers: dict[str, Position] = {
        key: number for key, number in positions.items() if number is not None
    }
    return numbers if len(numbers) == len(value) else None


def _table(value: dict[str, Any]) -> dict[str, Position] | None:
    """Delta's ``DeltaSourceOffset`` and Iceberg's ``StreamingOffset``.

    Delta: the version of its table, then the file within it. Iceberg: snapshots have no order, the
    files in a snapshot do.
    """
    version = _integer(value.get("reservoirVersion"))
    index = _integer(value.get("index"))
    if version is not None and index is not None:
        index = BASE_INDEX if index == -1 else index
        return {str(value.get("reservoirId", WHOLE)): (version, index)}
    snapshot = _integer(value.get("snapshot_id"))
    position = _integer(value.get("position"))
    if snapshot is not None and position is not None:
        return {str(snapshot): (position,)}
    return None


def _integer(value: Any) -> int | None:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    # Offsets of all sources are longs; a larger number may fit no float.
    return value if type(value) is int and -LARGEST <= value < LARGEST else None
