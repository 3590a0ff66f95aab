"""Polls the log of a Delta table that a query reads: its newest version, and what is deleted next.

Delta reports no latest offset (``reportLatestOffset``), and no backlog outside Databricks (seen on
Delta 4.4.0). So we read the storage, with the table's own file system and settings, and take none
of Delta's locks. ``DeltaSource.deltaLog`` is private to Delta, but exists in Delta 3 and 4.

A query needs the commit file of its next version. Delta deletes commit files that are older than
``delta.logRetentionDuration`` when it writes a checkpoint, but never the newest one. It also needs
the files of that version, which ``VACUUM`` may delete earlier (``delta_files.py``).
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
from msgspec.structs import replace

from ...core.text import duration
from ..offsets import WHOLE, committed_in, first_unread
from ..source_polls import SourceError, SourcePoll
from ..spark.jvm import THROWN, java_errors, reason_of
from ..spark.storage import HadoopFolder
from .delta_begins import (
    Begin,
    LogSeen,
    begin_of,
    behind_rows,
    offset_text,
    passed_over,
    starting_version,
    table_id,
    version_in,
)
from .delta_files import MAX_BYTES, Removals, read_on

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
    present = start
    step = 1
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


def commit_name(version: int) -> str:
    """``00000000000000000007.json``."""
    return f"{version:020d}.json"


def versions_in(listing: str) -> list[int]:
    """Read versions from a listing, ``Array(file:/t/_delta_log/00000000000000000007.json)``.

    Unpublished commits in ``_staged_commits`` count; checksums and checkpoints do not.
    """
    return [int(version) for version in _COMMIT.findall(listing)]


RETENTION_EVERY_SECONDS = 300.0
LAST_CHECKPOINT = "_last_checkpoint"
LOG_RETENTION = "delta.logRetentionDuration"


FILE_RETENTION = "delta.deletedFileRetentionDuration"
READ_COMMITS_FROM = 0.5
"""The share of the files' retention from which on commits are read: younger data is at no risk."""


class TableRetention(msgspec.Struct, frozen=True):
    """How long a table keeps the commits in its log, as of ``at``; None: for ever, or unknown.

    ``file_seconds`` is how long it keeps data files after a version removed them.
    """

    at: float
    seconds: float | None = None
    setting: str = ""
    file_seconds: float | None = None
    file_setting: str = ""
    refusal: str = ""


class DeltaSource:
    """One Delta source of one run; used by one thread.

    Positions are versions: ``committed`` is the first version not fully read, ``latest`` the
    version of the next commit, ``earliest`` the one from which the query can read on. A poll costs
    about ten Py4J commands, and fifteen more every five minutes while versions are unread; the
    first ones of a run about forty more, to find where it began.
    Of a table that is far behind, ten commits are read in a poll, each once.
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
        self._retention: TableRetention | None = None
        self._removals: Removals | None = None
        self._table_id: str | None = None
        self._begin: Begin | None = None
        self._seen: LogSeen | None = None
        self._start: int | None = None
        self._is_start_known = False

    def poll(self) -> SourcePoll:
        """Poll the storage.

        Raises:
            SourceError: the storage refused.

        """
        with java_errors(SourceError):
            if self._table_id is None:
                self._table_id = table_id(self._stream)
            poll = SourcePoll(
                self.address,
                {},
                {},
                {},
                at=time.monotonic(),
                wall=time.time(),
                unit="version",
                system=self._table_id,
            )
            committed, within = self._committed()
            if committed is not None:
                poll = self._unread(poll, committed, within)
            return self._with_begin(poll, is_new=committed is None)

    def close(self) -> None:
        """Do nothing: file systems are shared with Spark."""

    def _unread(self, poll: SourcePoll, committed: int, within: int) -> SourcePoll:
        """Add what the query has not read, from ``committed`` on."""
        self._end = end_of(self._has, self._versions, max(committed, self._end))
        poll = replace(poll, committed={WHOLE: committed}, latest={WHOLE: self._end})
        if committed >= self._end:
            return replace(poll, earliest={WHOLE: committed})
        if not self._has(committed):
            return self._overtaken(poll)
        poll = replace(
            poll,
            earliest={WHOLE: committed},
            waiting_since={WHOLE: self._waiting_since(committed)},
            within={WHOLE: within},
        )
        # The newest version is never deleted.
        return self._with_retention(poll, committed) if committed < self._end - 1 else poll

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
        planned = offset_text(self._execution.availableOffsets(), self._stream)
        committed, _ = self._committed()
        if committed is None or {WHOLE: committed} != poll.committed:
            return replace(poll, committed={}, latest={})
        oldest = {WHOLE: oldest_of(self._has, committed, self._end)}
        at_rest = version_in(planned) == committed and self._is_same_table()
        return replace(poll, earliest=oldest, oldest=oldest, at_rest=at_rest)

    def _is_same_table(self) -> bool:
        """Whether the log is still that of the table which the query reads."""
        metadata = self._stream.deltaLog().unsafeVolatileSnapshot().metadata()
        return str(metadata.id()) == self._table_id

    def _with_begin(self, poll: SourcePoll, *, is_new: bool) -> SourcePoll:
        """Add where the run began, once it shows that; ``is_new``: nothing is committed so far."""
        if not poll.system:
            return poll
        if self._begin is None:
            self._begin = begin_of(self._execution, self._stream)
        begin = self._begin
        if is_new or (begin is not None and begin.is_new):
            return self._with_start(poll)
        if self._seen is None and poll.latest and self._is_same_table():
            self._seen = self._see(poll.wall)
        passed = passed_over(begin, self._seen) if begin and self._seen else None
        if passed is None:
            return poll
        return replace(poll, passed={WHOLE: passed}, oldest={WHOLE: passed[1]})

    def _with_start(self, poll: SourcePoll) -> SourcePoll:
        """Add the first version that is read under a new checkpoint."""
        version = None if self._is_start_known else starting_version(self._stream)
        if version is not None:
            self._start = behind_rows(version, self._has, self._commit)
            self._end = max(self._end, version)
            self._is_start_known = True
        if self._start is None:
            return poll
        if not poll.latest:
            self._end = end_of(self._has, self._versions, self._end)
            poll = replace(poll, latest={WHOLE: self._end})
        if self._start and self._seen is None:
            self._seen = self._see(poll.wall)
        oldest = {WHOLE: self._seen.oldest} if self._start and self._seen else poll.oldest
        return replace(poll, begins={WHOLE: self._start}, oldest=oldest)

    def _see(self, wall: float) -> LogSeen:
        """The log as it is now, up to ``_end``."""
        oldest = 0 if not self._end or self._has(0) else oldest_of(self._has, 0, self._end)
        is_cleaned = bool(oldest) and self._log.has(LAST_CHECKPOINT)
        return LogSeen(wall, oldest, self._log.written_at(LAST_CHECKPOINT) if is_cleaned else None)

    def _with_retention(self, poll: SourcePoll, committed: int) -> SourcePoll:
        """Add for how long the next version can be read: its commit file, and its data files."""
        kept = self._kept(poll.at)
        written = poll.waiting_since[WHOLE]
        seconds = kept.seconds
        setting = kept.setting
        removed_at = self._removed_at(kept, committed, poll.wall - written)
        if removed_at is not None and kept.file_seconds is not None:
            of_files = max(0.0, removed_at - written) + kept.file_seconds
            if seconds is None or of_files < seconds:
                seconds = of_files
                setting = kept.file_setting
        return replace(
            poll,
            retention_seconds={} if seconds is None else {WHOLE: seconds},
            retention_setting=setting,
            missing_reason=kept.refusal,
        )

    def _kept(self, now: float) -> TableRetention:
        """How long commits are kept, by the metadata that the query knows, read now and then."""
        if self._retention is None or now - self._retention.at >= RETENTION_EVERY_SECONDS:
            try:
                self._retention = self._read_retention(now)
            except THROWN as error:
                self._retention = TableRetention(now, refusal=reason_of(error))
        return self._retention

    def _read_retention(self, now: float) -> TableRetention:
        log = self._stream.deltaLog()
        metadata = log.unsafeVolatileSnapshot().metadata()
        of_log = float(log.deltaRetentionMillis(metadata)) / 1000
        deltas = getattr(self._jvm, "org.apache.spark.sql.delta.DeltaLog")
        of_files = float(deltas.tombstoneRetentionMillis(metadata)) / 1000
        texts = {
            name: f"{name}, {'' if metadata.configuration().contains(name) else 'by default '}"
            f"{duration(seconds)}"
            for name, seconds in ((LOG_RETENTION, of_log), (FILE_RETENTION, of_files))
        }
        is_cleaned = bool(log.enableExpiredLogCleanup(metadata))
        return TableRetention(
            now,
            of_log if is_cleaned else None,
            texts[LOG_RETENTION] if is_cleaned else "",
            of_files,
            f"{texts[FILE_RETENTION]}, because its files were rewritten",
        )

    def _removed_at(self, kept: TableRetention, committed: int, age: float) -> float | None:
        """When a file of an unread version was removed from the table; None if none was."""
        if kept.file_seconds is None or age < READ_COMMITS_FROM * kept.file_seconds:
            return None
        # A commit may be deleted while we read.
        with suppress(*THROWN):
            self._removals = read_on(self._removals, committed, self._end, self._commit)
        return None if self._removals is None else self._removals.removed_at

    def _commit(self, version: int) -> str | None:
        return self._log.text(commit_name(version), most_bytes=MAX_BYTES)

    def _waiting_since(self, committed: int) -> float:
        """When the first unread version was written."""
        if self._waiting is None or self._waiting[0] != committed:
            self._waiting = committed, self._log.written_at(commit_name(committed))
        return self._waiting[1]
