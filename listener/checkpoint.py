"""How far the two logs of a checkpoint reach, found out with as few questions as possible.

Each log holds one file per batch, named by its id. Spark removes all but about the newest
hundred (``HDFSMetadataLog``, ``spark.sql.streaming.minBatchesToRetain``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Protocol

from .commit_log import LoggedBatches
from .redaction import redact

OFFSETS = "offsets"
COMMITS = "commits"
MAX_STEPS = 8
LIST_EVERY_SECONDS = 2.0
REASON_CHARACTERS = 200


class StorageError(Exception):
    """The storage did not answer; the message is short and holds no secret."""


class Checkpoint(Protocol):
    """A checkpoint on some storage; both questions may take long and raise StorageError."""

    def ids(self, log: str) -> Iterable[int]:
        """All batch ids in a log, in any order; none when the log does not exist yet."""
        ...

    def has(self, log: str, batch_id: int) -> bool:
        """Whether a log holds that batch."""
        ...


class CheckpointLogs:
    """Follows both logs of one run.

    A log without gaps is listed once and then followed by asking for the next id. Async
    progress tracking leaves gaps, so there it is listed, every ``LIST_EVERY_SECONDS``.
    """

    def __init__(self, checkpoint: Checkpoint, *, gaps: bool) -> None:
        self._checkpoint = checkpoint
        self._gaps = gaps
        self._seen = LoggedBatches()
        self._listed_at: float | None = None

    def read(self, now: float) -> LoggedBatches:
        """The newest id in each log.

        ``offsets`` is read first, so that a batch planned and done in between makes
        ``planned`` too small for a moment, never a batch look unfinished that is not.

        Raises:
            StorageError: the storage did not answer; what was seen before is kept.

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
        """Step from the newest id known; list when that is far behind, or gone."""
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

    Checksums, temporary and foreign files are left out: only a name of digits is a batch,
    and one that can be seen is whole (``CheckpointFileManager.createAtomic``).
    """
    return [int(name) for name in re.findall(rf"/{log}/(\d+)(?=, |\)$)", listing, re.ASCII)]


def short_reason(text: str) -> str:
    """The Java exception's own line out of what Py4J or PySpark make of it, redacted."""
    java = re.search(r"^: (.*)", text, re.MULTILINE)
    line = java.group(1) if java else text.partition("\n")[0]
    return redact(line)[:REASON_CHARACTERS]
