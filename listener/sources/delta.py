"""Polls the newest version in the log of a Delta table that a query reads.

Delta reports no latest offset (``reportLatestOffset``), and no backlog outside Databricks (seen on
Delta 4.4.0). So we read the storage, with the table's own file system and settings, and take none
of Delta's locks. ``DeltaSource.deltaLog`` is private to Delta, but exists in Delta 3 and 4.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from ..offsets import WHOLE, Position, committed_in
from ..source_polls import SourceError, SourcePoll
from ..spark.jvm import java_errors
from ..spark.storage import HadoopFolder

END_INDEX = 2**62
"""A file's index beyond any real one: the version is read (``DeltaSourceOffset.END_INDEX``)."""
_COMMIT = re.compile(r"/(\d{20})(?:\.[0-9a-f-]{36})?\.json(?=, |\)$)", re.ASCII)


def end_of(has: Callable[[int], bool], versions: Callable[[], list[int]], start: int) -> int:
    """The version of the next commit, searched from ``start`` on.

    Each commit is one file; versions have no gaps, and only old ones are removed
    (``logRetentionDuration``; Delta protocol, "Delta Log Entries"). Costs two calls if nothing has
    changed, about ``2 log n`` calls after ``n`` new versions. A log that ends before ``start`` is
    listed, because its table has been replaced.
    """
    if not has(start):
        return start if start and has(start - 1) else max(versions(), default=-1) + 1
    present, step = start, 1
    while has(present + step):
        present += step
        step *= 2
    missing = present + step
    while missing - present > 1:
        middle = (present + missing) // 2
        present, missing = (middle, missing) if has(middle) else (present, middle)
    return missing


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


class DeltaSource:
    """One Delta source of one run; used by one thread.

    Positions are versions: ``committed`` is the first version not fully read, ``latest`` the
    version of the next commit. A poll costs about ten Py4J commands.
    """

    def __init__(self, jvm: Any, execution: Any, stream: Any) -> None:
        self.address = str(stream.toString())
        """The table; each one is polled even when another does not answer."""
        self._jvm = jvm
        self._execution = execution
        self._stream = stream
        self._opened: HadoopFolder | None = None
        self._end = 0
        self._waiting: tuple[int, float] | None = None

    def poll(self, _written_since: float | None = None) -> SourcePoll:
        """Poll the storage.

        Raises:
            SourceError: the storage refused.

        """
        with java_errors(SourceError):
            positions = committed_in(self._execution, self._stream)
            committed = first_unread(next(iter(positions.values()), None))
            poll = SourcePoll(self.address, {}, {}, {}, at=time.monotonic(), wall=time.time())
            if committed is None:
                return poll
            self._end = end_of(self._has, self._versions, max(committed, self._end))
            return replace(
                poll,
                committed={WHOLE: committed},
                latest={WHOLE: self._end},
                waiting_since=self._waiting_since(committed),
            )

    def close(self) -> None:
        """Do nothing: file systems are shared with Spark."""

    @property
    def _log(self) -> HadoopFolder:
        """``_delta_log``, opened by the first poll, so that an error concerns only this source."""
        if self._opened is None:
            log = self._stream.deltaLog()
            self._opened = HadoopFolder(self._jvm, log.logPath(), log.newDeltaHadoopConf())
        return self._opened

    def _has(self, version: int) -> bool:
        return self._log.has(commit_name(version))

    def _versions(self) -> list[int]:
        listings = (self._log.listing(), self._log.listing("_staged_commits"))
        return [version for listing in listings for version in versions_in(listing or "")]

    def _waiting_since(self, committed: int) -> dict[str, float]:
        """When the first unread version was written; an old version may have been removed."""
        if committed >= self._end or not self._has(committed):
            return {}
        if self._waiting is None or self._waiting[0] != committed:
            self._waiting = committed, self._log.written_at(commit_name(committed))
        return {WHOLE: self._waiting[1]}
