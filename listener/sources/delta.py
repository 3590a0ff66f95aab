"""Polls the log of a Delta table that a query reads: its newest version, and what is deleted next.

Delta reports no latest offset (``reportLatestOffset``), and no backlog outside Databricks (seen on
Delta 4.4.0). So we read the storage, with the table's own file system and settings, and take none
of Delta's locks. ``DeltaSource.deltaLog`` is private to Delta, but exists in Delta 3 and 4.

A query needs the commit file of its next version. Delta deletes commit files that are older than
``delta.logRetentionDuration`` when it writes a checkpoint, but never the newest one.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from ...core.text import duration
from ..offsets import WHOLE, Position, committed_in
from ..source_polls import SourceError, SourcePoll
from ..spark.jvm import THROWN, java_errors, reason_of
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


def oldest_of(has: Callable[[int], bool], missing: int, end: int) -> int:
    """The oldest version of a log that ends before ``end``, where ``missing`` is deleted.

    Only old versions are deleted, so all versions after it are there. Costs ``log n`` calls.
    """
    present = end
    while present - missing > 1:
        middle = (missing + present) // 2
        missing, present = (missing, middle) if has(middle) else (middle, present)
    return present


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


RETENTION_EVERY_SECONDS = 300.0
LOG_RETENTION = "delta.logRetentionDuration"


class LogRetention(msgspec.Struct, frozen=True):
    """How long a table keeps the commits in its log, as of ``at``; None: for ever, or unknown."""

    at: float
    seconds: float | None = None
    setting: str = ""
    refusal: str = ""


class DeltaSource:
    """One Delta source of one run; used by one thread.

    Positions are versions: ``committed`` is the first version not fully read, ``latest`` the
    version of the next commit, ``earliest`` the one from which the query can read on. A poll costs
    about ten Py4J commands, and ten more every five minutes while versions are unread.
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
        self._retention: LogRetention | None = None

    def poll(self) -> SourcePoll:
        """Poll the storage.

        Raises:
            SourceError: the storage refused.

        """
        with java_errors(SourceError):
            poll = SourcePoll(
                self.address, {}, {}, {}, at=time.monotonic(), wall=time.time(), unit="version"
            )
            committed, within = self._committed()
            if committed is None:
                return poll
            self._end = end_of(self._has, self._versions, max(committed, self._end))
            poll = replace(poll, committed={WHOLE: committed}, latest={WHOLE: self._end})
            if committed >= self._end:
                return replace(poll, earliest={WHOLE: committed})
            if not self._has(committed):
                return self._overtaken(poll)
            # The newest version is never deleted.
            kept = self._kept(poll.at) if committed < self._end - 1 else LogRetention(poll.at)
            return replace(
                poll,
                earliest={WHOLE: committed},
                waiting_since={WHOLE: self._waiting_since(committed)},
                within={WHOLE: within},
                retention_seconds={} if kept.seconds is None else {WHOLE: kept.seconds},
                retention_setting=kept.setting,
                missing_reason=kept.refusal,
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

    def _committed(self) -> tuple[int | None, int]:
        """The first version not fully read, and how far it is read."""
        positions = committed_in(self._execution, self._stream)
        position = next(iter(positions.values()), None)
        version = first_unread(position)
        is_within = isinstance(position, tuple) and version == position[0]
        return version, position[1] if is_within and isinstance(position, tuple) else 0

    def _overtaken(self, poll: SourcePoll) -> SourcePoll:
        """The next version is deleted, unless the query has read it and advanced meanwhile."""
        committed, _ = self._committed()
        if committed is None or {WHOLE: committed} != poll.committed:
            return replace(poll, committed={}, latest={})
        return replace(poll, earliest={WHOLE: oldest_of(self._has, committed, self._end)})

    def _kept(self, now: float) -> LogRetention:
        """How long commits are kept, by the metadata that the query knows, read now and then."""
        if self._retention is None or now - self._retention.at >= RETENTION_EVERY_SECONDS:
            try:
                self._retention = self._read_retention(now)
            except THROWN as error:
                self._retention = LogRetention(now, refusal=reason_of(error))
        return self._retention

    def _read_retention(self, now: float) -> LogRetention:
        log = self._stream.deltaLog()
        metadata = log.unsafeVolatileSnapshot().metadata()
        if not log.enableExpiredLogCleanup(metadata):
            return LogRetention(now)
        seconds = float(log.deltaRetentionMillis(metadata)) / 1000
        is_set = metadata.configuration().contains(LOG_RETENTION)
        setting = f"{LOG_RETENTION}, {'' if is_set else 'by default '}{duration(seconds)}"
        return LogRetention(now, seconds, setting)

    def _waiting_since(self, committed: int) -> float:
        """When the first unread version was written."""
        if self._waiting is None or self._waiting[0] != committed:
            self._waiting = committed, self._log.written_at(commit_name(committed))
        return self._waiting[1]
