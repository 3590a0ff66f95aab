"""Looks how far the log of a Delta table reaches that a query reads from.

Delta itself tells no latest offset (``reportLatestOffset``), and no backlog outside Databricks
(seen on Delta 4.4.0). Asked is the storage, with the table's own file system and settings, and
none of Delta's locks is touched. ``DeltaSource.deltaLog`` is private to Delta, but is there in
Delta 3 and 4.
"""

from __future__ import annotations

import time
from typing import Any

from ..hadoop_folder import HadoopFolder
from ..java_errors import java_errors
from ..offsets import WHOLE
from .committed import committed_in
from .delta_log import commit_name, end_of, first_unread, versions_in
from .report import SourcePoll
from .source import SourceError

STAGED = "_staged_commits"


class DeltaSource:
    """One Delta source of one run; used by one thread.

    Positions are versions: ``committed`` is the first that is not wholly read, ``latest`` the one
    that the next commit will have. A look costs about ten Py4J commands.
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
        """The table: none shares another's silence."""
        return self._description

    def poll(self) -> SourcePoll:
        """Ask the storage.

        Raises:
            SourceError: it refused.

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
        """Nothing is held: file systems are shared with Spark."""

    def _committed(self) -> int | None:
        positions = committed_in(self._execution, self._stream)
        return first_unread(next(iter(positions.values()), None))

    def _log(self) -> StoredLog:
        """Opened by the first look, so that a refusal is told of this source alone."""
        if self._opened is None:
            self._opened = StoredLog(self._jvm, self._stream.deltaLog())
        return self._opened

    def _waiting_since(self, log: StoredLog, committed: int, end: int) -> dict[str, float]:
        """When the first version that waits was written; what is old may have been removed."""
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
        """Whether a version's commit is there."""
        return self._folder.has(commit_name(version))

    def versions(self) -> list[int]:
        """All versions there are, those that wait to be published included."""
        listings = (self._folder.listing(), self._folder.listing(STAGED))
        return [version for listing in listings for version in versions_in(listing or "")]

    def written_at(self, version: int) -> float:
        """Unix seconds, as the storage has them."""
        return self._folder.written_at(commit_name(version))
