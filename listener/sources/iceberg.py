"""Polls the snapshots of an Iceberg table that a query reads: what is unread, what may expire.

A query needs the snapshot of its offset: once that has expired, it fails ("Cannot load current
offset at snapshot", Iceberg 1.12), unless it is the current one. ``expire_snapshots``
removes snapshots that are older than ``history.expire.max-snapshot-age-ms``, but not the newest
``history.expire.min-snapshots-to-keep`` (Iceberg, "Table configuration").

The query's own table object is never refreshed here, because that would change what a batch
plans. The table is loaded once more, from the catalog without its cache. ``table`` is private to
Iceberg's stream, and exists since Iceberg 0.12.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec
from msgspec.structs import replace

from ...core.text import duration
from ..offsets import WHOLE, committed_in
from ..source_polls import SourceError, SourcePoll
from ..spark.jvm import java_errors, private_field

REFRESH_EVERY_SECONDS = 60.0
"""A refresh reads the table's metadata, which may be some megabytes."""
MAX_EXAMINED = 100
"""Of so many snapshots the operation is read; later ones count as unread."""
MAX_AGE = "history.expire.max-snapshot-age-ms"
MAX_AGE_DEFAULT_MILLIS = 5 * 86_400_000
MIN_KEPT = "history.expire.min-snapshots-to-keep"
MIN_KEPT_DEFAULT = 1
MAIN = "main"


class Snapshot(msgspec.Struct, frozen=True):
    """A snapshot of the table."""

    number: int
    """Counts the snapshots that this source has seen, from 0 on: their ids have no order."""
    written_at: float | None = None
    """Unix seconds; None until it is examined."""
    adds_rows: bool = True
    """Whether the query reads rows in it: none after a compaction (``replace``)."""


class Expiry(msgspec.Struct, frozen=True):
    """What ``expire_snapshots`` removes if it is run without arguments; None: nothing."""

    seconds: float | None = None
    setting: str = ""
    min_kept: int = MIN_KEPT_DEFAULT


class Position(msgspec.Struct, frozen=True):
    """The snapshot of a query's offset, and how many of its files were read."""

    snapshot: int
    files: int
    is_partial: bool = False


def unread_poll(
    poll: SourcePoll, position: Position, read: Snapshot, newer: Sequence[Snapshot], expiry: Expiry
) -> SourcePoll:
    """Complete a poll with the ``newer`` snapshots, oldest first, after the one that was read.

    The first unread one may expire once it is old, unless it is one of the newest.
    """
    first = read.number + (not position.is_partial)
    end = (newer[-1] if newer else read).number + 1
    waiting = [snapshot for snapshot in newer if snapshot.adds_rows]
    if position.is_partial:
        waiting = [read, *waiting]
    poll = replace(
        poll,
        committed={WHOLE: first},
        earliest={WHOLE: 0},
        latest={WHOLE: end},
        first_waiting={WHOLE: waiting[0].number if waiting else end},
        within={WHOLE: position.files if position.is_partial else 0},
    )
    if not waiting or waiting[0].written_at is None:
        return poll
    poll = replace(poll, waiting_since={WHOLE: waiting[0].written_at})
    may_expire = end - waiting[0].number > expiry.min_kept
    if expiry.seconds is None or not may_expire:
        return poll
    return replace(
        poll, retention_seconds={WHOLE: expiry.seconds}, retention_setting=expiry.setting
    )


def expiry_of(properties: dict[str, str | None], age: int | None, kept: int | None) -> Expiry:
    """What expires by the table's properties and by what its main branch overrides.

    Nothing does where a property is no number, such as ``5d``: ``expire_snapshots`` reads both
    first, and fails (``RemoveSnapshots``, ``PropertyUtil``).
    """
    if properties.get("gc.enabled") == "false":
        return Expiry()
    text = properties.get(MAX_AGE)
    try:
        by_property = int(text or MAX_AGE_DEFAULT_MILLIS)
        least = int(properties.get(MIN_KEPT) or MIN_KEPT_DEFAULT)
    except ValueError:
        return Expiry()
    millis = age if age is not None else by_property
    least = kept if kept is not None else least
    by_default = "by default " if age is None and text is None else ""
    setting = f"{MAX_AGE}, {by_default}{duration(millis / 1000)}"
    return Expiry(millis / 1000, setting, least)


def files_added(summary: Mapping[str, str | None] | None) -> int:
    """How many data files a snapshot added; 0 if it does not say, as its summary is optional."""
    text = (summary or {}).get("added-data-files") or ""
    return int(text) if text.isdecimal() else 0


class IcebergSource:
    """One Iceberg source of one run; used by one thread.

    Positions number snapshots as this source has seen them; they have no meaning beyond it. A poll
    costs about 25 Py4J commands, and four for each new snapshot; once a minute it reads metadata.
    """

    def __init__(self, jvm: Any, execution: Any, stream: Any) -> None:
        self._jvm = jvm
        self._execution = execution
        self._stream = stream
        self._queried: Any = None
        # An error in the first poll concerns only this source.
        with suppress(LookupError):
            self._queried = private_field(stream, "table")
        self.address = str(stream.toString() if self._queried is None else self._queried.name())
        """The table."""
        self.location = self.address if self._queried is None else str(self._queried.location())
        """Where its data and metadata are."""
        self._table: Any = None
        self._refreshed_at = 0.0
        self._expiry = Expiry()
        self._seen: dict[int, Snapshot] = {}
        self._next = 0

    def poll(self) -> SourcePoll:
        """Poll the catalog and the table's metadata.

        Raises:
            SourceError: either refused, or the table is in no catalog.

        """
        with java_errors(SourceError):
            now = time.monotonic()
            poll = SourcePoll(self.address, {}, {}, {}, at=now, wall=time.time(), unit="snapshot")
            position = self._position()
            if position is None:
                return poll
            if self._table is None or now - self._refreshed_at >= REFRESH_EVERY_SECONDS:
                self._refresh(now)
            if self._table.snapshot(position.snapshot) is None:
                # It may be newer than what we know of the table.
                self._refresh(now)
            return self._compare(poll, position)

    def close(self) -> None:
        """Do nothing: the catalog is shared with Spark."""

    def _position(self) -> Position | None:
        """Where the query is; None before its first snapshot."""
        for name, place in committed_in(self._execution, self._stream).items():
            if name.isdecimal() and isinstance(place, tuple):
                return Position(int(name), place[0])
        return None

    def _refresh(self, now: float) -> None:
        if self._table is None:
            self._table = self._load()
        else:
            self._table.refresh()
        self._refreshed_at = now
        properties = self._table.properties()
        branch = self._table.refs().get(MAIN)
        wanted = {name: properties.get(name) for name in (MAX_AGE, MIN_KEPT, "gc.enabled")}
        age = None if branch is None else branch.maxSnapshotAgeMs()
        kept = None if branch is None else branch.minSnapshotsToKeep()
        self._expiry = expiry_of(wanted, age, kept)

    def _load(self) -> Any:
        """The table from its catalog, as an object of our own."""
        if self._queried is None:
            raise SourceError("this version of Iceberg does not show the table of a stream")
        catalog_name, _, name = self.address.partition(".")
        session = self._execution.sparkSession()
        plugin = session.sessionState().catalogManager().catalog(catalog_name)
        catalog = plugin.icebergCatalog()
        if catalog.getClass().getSimpleName() == "CachingCatalog":
            catalog = private_field(catalog, "catalog")
        identifier = getattr(self._jvm, "org.apache.iceberg.catalog.TableIdentifier").parse(name)
        table = catalog.loadTable(identifier)
        if not table.uuid().equals(self._queried.uuid()):
            raise SourceError(f"{self.address} is another table in its catalog")
        return table

    def _compare(self, poll: SourcePoll, position: Position) -> SourcePoll:
        head = self._table.currentSnapshot()
        if head is None:
            return poll
        end = int(head.snapshotId())
        read = self._table.snapshot(position.snapshot)
        if read is None:
            return self._expired(poll, position)
        if not self._lineage.isAncestorOf(self._table, end, position.snapshot):
            # The table was rolled back, or the query reads a branch.
            return poll
        ids = self._ids_after(position.snapshot, end)
        seen = {i: self._snapshot(i, count) for count, i in enumerate((position.snapshot, *ids))}
        self._seen = seen
        # A query that starts with a whole table reads more files; it began with these.
        added = files_added(read.summary())
        position = replace(position, is_partial=position.files < added)
        return unread_poll(
            poll, position, seen[position.snapshot], [seen[i] for i in ids], self._expiry
        )

    @property
    def _lineage(self) -> Any:
        return getattr(self._jvm, "org.apache.iceberg.util.SnapshotUtil")

    def _ids_after(self, read: int, end: int) -> list[int]:
        """The snapshots after one up to another, oldest first."""
        if read == end:
            # Iceberg would return all of its ancestors.
            return []
        between = self._lineage.snapshotIdsBetween(self._table, read, end)
        return [int(text) for text in re.findall(r"\d+", str(between.toString()))][::-1]

    def _expired(self, poll: SourcePoll, position: Position) -> SourcePoll:
        """The query has read up to a snapshot that is gone, unless it has advanced meanwhile."""
        now = self._position()
        if now is None or now.snapshot != position.snapshot:
            return poll
        number = self._seen[position.snapshot].number if position.snapshot in self._seen else 0
        reason = f"the snapshot {position.snapshot}, up to which it has read, has expired"
        place = {WHOLE: number + 1}
        return replace(
            poll, committed=place, earliest={WHOLE: 0}, latest=place, gone={WHOLE: reason}
        )

    def _snapshot(self, snapshot_id: int, place: int) -> Snapshot:
        seen = self._seen.get(snapshot_id)
        if seen is None:
            seen = Snapshot(self._next)
            self._next += 1
        if place > MAX_EXAMINED or seen.written_at is not None:
            return seen
        snapshot = self._table.snapshot(snapshot_id)
        written_at = float(snapshot.timestampMillis()) / 1000
        return Snapshot(seen.number, written_at, str(snapshot.operation()) == "append")
