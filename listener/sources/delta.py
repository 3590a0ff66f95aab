"""Polls the newest version in the log of a Delta table that a query reads.

Delta reports no latest offset (``reportLatestOffset``), and no backlog outside Databricks (seen on
Delta 4.4.0). So we read the storage, with the table's own file system and settings, and take none
of Delta's locks. ``DeltaSource.deltaLog`` is private to Delta, but exists in Delta 3 and 4.
"""

from __future__ import annotations

import re
import time
from typing import Any

from ..offsets import WHOLE, Position, committed_in
from ..source_polls import SourceError, SourcePoll
from ..spark.jvm import java_errors
from ..spark.storage import HadoopFolder

END_INDEX = 2**62
"""A file's index beyond any real one: the version is read (``DeltaSourceOffset.END_INDEX``)."""
_COMMIT = re.compile(r"/(\d{20})(?:\.[0-9a-f-]{36})?\.json(?=, |\)$)", re.ASCII)


def end_of(log: StoredLog, start: int) -> int:
    """The version of the next commit, searched from ``start`` on.

    Each commit is one file; versions have no gaps, and only old ones are removed
    (``logRetentionDuration``; Delta protocol, "Delta Log Entries"). Costs two calls if nothing has
    changed, about ``2 log n`` calls after ``n`` new versions. A log that ends before ``start`` is
    listed, because its table has been replaced.
    """
    if log.has(start):
        return _first_missing(log, start)
    if start and log.has(start - 1):
        return start
    return max(log.versions(), default=-1) + 1


def first_unread(position: Position | None) -> int | None:
    """The first version not fully read at a Delta offset, which is a version and a file index."""
    if not isinstance(position, tuple):
        return None
    version, index = position
    return version + 1 if index >= END_INDEX else version


def commit_name(version: int) -> str:
    """``00000000000000000007.json``."""
    return f"{version:020d}.json"


def versions_in(listing: str) -> list[int]:
    """Read versions from a listing, ``Array(file:/t/_delta_log/00000000000000000007.json)``.

    Unpublished commits in ``_staged_commits`` count; checksums and checkpoints do not.
    """
    return [int(version) for version in _COMMIT.findall(listing)]


def _first_missing(log: StoredLog, present: int) -> int:
    step = 1
    while log.has(present + step):
        present += step
        step *= 2
    missing = present + step
    while missing - present > 1:
        middle = (present + missing) // 2
        present, missing = (middle, missing) if log.has(middle) else (present, middle)
    return missing


STAGED = "_staged_commits"


class DeltaSource:
    """One Delta source of one run; used by one thread.

    Positions are versions: ``committed`` is the first version not fully read, ``latest`` the
    version of the next commit. A poll costs about ten Py4J commands.
    """

    def __init__(self, jvm: Any, execution: Any, stream: Any) -> None:
        self._jvm = jvm
        self._execution = execution
        self._stream = stream
        self._description = str(stream.toString())
        self._opened: StoredLog | None = None
        self._end: int | None = None
        self._waiting: tuple[int, float] | None = None

    @property
    def address(self) -> str:
        """The table; each one is polled even when another does not answer."""
        return self._description

    def poll(self) -> SourcePoll:
        """Poll the storage.

        Raises:
            SourceError: the storage refused.

        """
        with java_errors(SourceError):
            committed = self._committed()
            at, wall = time.monotonic(), time.time()
            if committed is None:
                return SourcePoll(self._description, {}, {}, {}, at=at, wall=wall)
            log = self._log()
            self._end = end_of(log, committed if self._end is None else max(committed, self._end))
            return SourcePoll(
                self._description,
                {WHOLE: committed},
                {},
                {WHOLE: self._end},
                waiting_since=self._waiting_since(log, committed, self._end),
                at=at,
                wall=wall,
            )

    def close(self) -> None:
        """Do nothing: file systems are shared with Spark."""

    def _committed(self) -> int | None:
        positions = committed_in(self._execution, self._stream)
        return first_unread(next(iter(positions.values()), None))

    def _log(self) -> StoredLog:
        """The log, opened by the first poll, so that an error concerns only this source."""
        if self._opened is None:
            self._opened = StoredLog(self._jvm, self._stream.deltaLog())
        return self._opened

    def _waiting_since(self, log: StoredLog, committed: int, end: int) -> dict[str, float]:
        """When the first unread version was written; an old version may have been removed."""
        if committed >= end or not log.has(committed):
            return {}
        if self._waiting is None or self._waiting[0] != committed:
            self._waiting = committed, log.written_at(committed)
        return {WHOLE: self._waiting[1]}


class StoredLog:
    """``_delta_log`` of one table, on its storage."""

    def __init__(self, jvm: Any, delta_log: Any) -> None:
        conf = delta_log.newDeltaHadoopConf()
        self._folder = HadoopFolder(jvm, delta_log.logPath(), conf)

    def has(self, version: int) -> bool:
        """Whether a version's commit exists."""
        return self._folder.has(commit_name(version))

    def versions(self) -> list[int]:
        """All versions, unpublished ones included."""
        listings = (self._folder.listing(), self._folder.listing(STAGED))
        return [version for listing in listings for version in versions_in(listing or "")]

    def written_at(self, version: int) -> float:
        """When a version was written, in Unix seconds by the storage's clock."""
        return self._folder.written_at(commit_name(version))
