"""Where a run of a Delta source began to read, and which deleted versions its first batch passed.

With ``failOnDataLoss=false`` Delta reads on behind versions whose commit files are deleted, and
says nothing. (Since Delta 4.4 it fails if also those of the last batch are, which a restart reads
once more, unless ``streaming.trailingCommitValidation.enabled`` is false.)

Under a new checkpoint with ``startingVersion`` its first offset is where its first batch ended;
only ``DeltaSource.getStartingVersion``, a lazy value, has where that began. We read its field,
because a call would compute it: ``latest`` would be another version then.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Any

import msgspec

from ..offsets import WHOLE, parse_offsets, unread_from
from ..spark.jvm import THROWN, private_field
from .delta_files import adds_rows

CLEANING_SECONDS = 60.0
"""A checkpoint deletes old commit files at once; by then it has."""
SOON_SECONDS = 60.0
"""For so long after the first batch began, only Delta itself is thought to delete any."""
MAX_WITHOUT_ROWS = 20


class Begin(msgspec.Struct, frozen=True):
    """The first trigger of a run that it reported, at Unix seconds.

    ``version`` is the first version that was unread by then; None while a snapshot is read.
    """

    wall: float
    version: int | None = None
    is_new: bool = False
    """Whether nothing was committed before: the checkpoint is new."""


class LogSeen(msgspec.Struct, frozen=True):
    """The log of the table at Unix seconds ``wall``: its oldest commit.

    ``cleaned_at`` is the storage's time of the last checkpoint, after which Delta deletes old
    commits; None without one.
    """

    wall: float
    oldest: int
    cleaned_at: float | None = None


def begin_of(execution: Any, stream: Any) -> Begin | None:
    """Where a run began; None before its first trigger, or if two sources have one description."""
    reported = execution.recentProgress()
    if not len(reported):
        return None
    first = reported[0]
    description = stream.toString()
    sources = [source for source in first.sources() if source.description() == description]
    if len(sources) != 1:
        return None
    start = sources[0].startOffset()
    wall = datetime.fromisoformat(str(first.timestamp()).replace("Z", "+00:00")).timestamp()
    return Begin(wall, version_in(start), is_new=start is None)


def offset_text(offsets: Any, stream: Any) -> str | None:
    """The offset of a source in a ``StreamProgress``, as text; None without one."""
    offset = offsets.get(stream)
    return str(offset.get().json()) if offset.isDefined() else None


def version_in(text: str | None) -> int | None:
    """The first unread version at an offset; None within a snapshot, which needs no commits."""
    return None if _is_in_snapshot(text) else unread_from(parse_offsets(text)).get(WHOLE)


def _is_in_snapshot(text: str | None) -> bool:
    try:
        offset = msgspec.json.decode(text or "")
    except msgspec.MsgspecError:
        return False
    return isinstance(offset, dict) and str(offset.get("isStartingVersion")).lower() == "true"


def table_id(stream: Any) -> str:
    """The id that the table got when it was created; empty if Delta does not show it."""
    with suppress(LookupError, *THROWN):
        return str(private_field(stream, "tableId") or "")
    return ""


def starting_version(stream: Any) -> int | None:
    """Where a new checkpoint begins: 0 for a snapshot, which has all rows; None if not known."""
    with suppress(LookupError, *THROWN):
        version = private_field(stream, "getStartingVersion")
        if version is not None:
            return int(version.get()) if version.isDefined() else 0
    return None


def behind_rows(
    version: int, has: Callable[[int], bool], commit: Callable[[int], str | None]
) -> int | None:
    """The version after the last one before ``version`` that may add rows.

    None if that is not among the last ``MAX_WITHOUT_ROWS``.
    """
    for last in range(version - 1, max(-1, version - 1 - MAX_WITHOUT_ROWS), -1):
        if not has(last) or adds_rows(commit(last)):
            return last + 1
    return 0 if version <= MAX_WITHOUT_ROWS else None


def passed_over(begin: Begin, log: LogSeen) -> tuple[int, int] | None:
    """The versions that the first batch passed over, without the second one; None if none.

    They were deleted before it began. Delta deletes commits only after a checkpoint, so a log
    without a new one is as it was. What may have been deleted after it was read is not passed.
    """
    if begin.version is None or log.oldest <= begin.version:
        return None
    cleaned_at = log.cleaned_at
    was_cleaned = cleaned_at is not None and cleaned_at + CLEANING_SECONDS <= begin.wall
    is_sure = log.wall <= begin.wall or (was_cleaned and log.wall <= begin.wall + SOON_SECONDS)
    return (begin.version, log.oldest) if is_sure else None
