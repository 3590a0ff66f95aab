"""Finds the newest batch in a checkpoint's two logs with as few storage calls as possible.

Each log holds one file per batch, named by its id. Spark removes all but about the newest
hundred (``HDFSMetadataLog``, ``spark.sql.streaming.minBatchesToRetain``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Protocol

from ..core.redaction import redact
from .commit_log import LoggedBatches

OFFSETS = "offsets"
COMMITS = "commits"
MAX_STEPS = 8
LIST_EVERY_SECONDS = 2.0
REASON_CHARACTERS = 200


class StorageError(Exception):
    """The storage did not answer; the message is short and holds no secret."""


class Checkpoint(Protocol):
    """A checkpoint on some storage; both methods may block and raise StorageError."""

    def ids(self, log: str) -> Iterable[int]:
        """All batch ids in a log, in any order; none when the log does not exist yet."""
        ...

    def has(self, log: str, batch_id: int) -> bool:
        """Whether a log holds that batch."""
        ...


class CheckpointLogs:
    """Follows both logs of one run.

    A log without gaps is listed once; then only the next id is checked. Async progress
    tracking leaves gaps, so such a log is listed every ``LIST_EVERY_SECONDS``.
    """

    def __init__(self, checkpoint: Checkpoint, *, gaps: bool) -> None:
        self._checkpoint = checkpoint
        self._gaps = gaps
        self._seen = LoggedBatches()
        self._listed_at: float | None = None

    def read(self, now: float) -> LoggedBatches:
        """The newest id in each log.

        ``offsets`` is read first: a batch planned and committed between the two reads makes
        ``planned`` briefly too small, but never makes a finished batch seem unfinished.

        Raises:
            StorageError: the storage did not answer; the last result is kept.

        """
        if not self._gaps:
            planned = self._follow(OFFSETS, self._seen.planned)
            committed = self._follow(COMMITS, self._seen.committed)
            self._seen = LoggedBatches(planned, committed)
        elif self._listed_at is None or now - self._listed_at >= LIST_EVERY_SECONDS:
            self._seen = LoggedBatches(self._list(OFFSETS), self._list(COMMITS))
            self._listed_at = now
        return self._seen

    def _follow(self, log: str, known: int | None) -> int | None:
        """Step on from the newest known id; list the log when that id is far behind or gone."""
        if known is None:
            return self._list(log)
        newest = known
        while newest - known < MAX_STEPS and self._checkpoint.has(log, newest + 1):
            newest += 1
        if known < newest < known + MAX_STEPS:
            return newest
        if newest == known and self._checkpoint.has(log, known):
            return known
        return self._list(log)

    def _list(self, log: str) -> int | None:
        return max(self._checkpoint.ids(log), default=None)


def ids_in(listing: str, log: str) -> list[int]:
    """Read batch ids out of a listing, ``Array(file:/cp/offsets/9, file:/cp/offsets/.9.crc)``.

    Skips checksums, temporary and foreign files: only a name of digits is a batch. A listed
    batch file is complete (``CheckpointFileManager.createAtomic``).
    """
    return [int(name) for name in re.findall(rf"/{log}/(\d+)(?=, |\)$)", listing, re.ASCII)]


def short_reason(text: str) -> str:
    """The Java exception's own line from the text of Py4J or PySpark, redacted."""
    java = re.search(r"^: (.*)", text, re.MULTILINE)
    line = java.group(1) if java else text.partition("\n")[0]
    return redact(line)[:REASON_CHARACTERS]
