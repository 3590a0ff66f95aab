"""The folder of recordings: what is written of each, and what is deleted to keep it small."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType

import msgspec

from ..core.files import HangDetector
from ..core.folders import FileEntry, Folder
from ..core.guard import Problem
from .lines import SUFFIX

MOST_BYTES = 100_000_000
"""Of all recordings in the folder."""
KEEP_SECONDS = 30 * 86_400.0
"""So long after its last line, a recording is kept."""
WRITE_SECONDS = 10.0
"""Where nothing can be appended, a file is written at most so often, unless it is urgent."""
RETRY_SECONDS = 10.0
TIDY_SECONDS = 600.0
FULL_SECONDS = 60.0
"""The same where the folder is known to hold too much."""
DRAFT_SECONDS = 3600.0
"""A draft that is so old was left by a process that was killed while it wrote."""
MOST_WAITING = 8
"""Recordings that have ended and could not be written; each may have 1 MB."""

_ID = re.compile(r"\d{8}T\d{6}Z-[A-Za-z0-9_.-]{1,200}")
_OURS = re.compile(rf"{_ID.pattern}{re.escape(SUFFIX)}")
_DRAFT = re.compile(rf"\.{_OURS.pattern}\..+")


def surplus(
    files: Mapping[str, FileEntry], now: float, written: Collection[str] = ()
) -> tuple[str, ...]:
    """Return the names of the files to delete at Unix time ``now``: the old, then the oldest.

    A recording that is being written stays, and so does a file that is not ours. Where the clock
    was set back, no recording is old.
    """
    ours = {name: entry for name, entry in files.items() if _OURS.fullmatch(name)}
    drafts = [
        name
        for name, entry in files.items()
        if _DRAFT.fullmatch(name) and now - entry.changed_at > DRAFT_SECONDS
    ]
    oldest = sorted(ours.keys() - written, key=lambda name: (ours[name].changed_at, name))
    size = sum(entry.size for entry in ours.values())
    deleted = []
    for name in oldest:
        if size > MOST_BYTES or now - ours[name].changed_at > KEEP_SECONDS:
            deleted.append(name)
            size -= ours[name].size
    return (*drafts, *deleted)


class _Open(msgspec.Struct):
    """A recording that is being written."""

    whole: bytes = b""
    """What the file should hold."""
    size: int = 0
    """How much of it the file holds; 0 where it must be written as a whole."""
    written_at: float = float("-inf")
    """In monotonic seconds."""
    is_urgent: bool = False
    is_finished: bool = False

    @property
    def is_behind(self) -> bool:
        return self.size != len(self.whole)


class RecordingStore:
    """Writes recordings into a folder that may be full, slow or gone, and keeps within its bounds.

    Only the thread "recording" calls it, and may hang in it. Other threads read ``index``,
    ``problem`` and ``failures``, and ``read``. What could not be written is written as a whole as
    soon as the store works again.
    """

    def __init__(
        self,
        folder: Folder,
        wall: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder = folder
        self._wall = wall
        self._clock = clock
        self._problem = Problem("querypulse: recordings of incidents: %s")
        self._hang = HangDetector(clock)
        self._open: dict[str, _Open] = {}
        """By id, the oldest first."""
        self._is_made = False
        self._tidied_at = float("-inf")
        self._failed_at = float("-inf")
        self.failures = 0
        """How often the store has refused, and how many recordings were given up."""
        self.index: Mapping[str, FileEntry] = MappingProxyType({})
        """By id: the recordings in the folder, as far as is known."""

    @property
    def problem(self) -> str:
        """Why recordings may not be written; empty without a problem."""
        hangs = self._hang.problem
        return f"{self._folder.place}: {hangs}" if hangs else self._problem.text

    def sizes(self) -> dict[str, int]:
        """Bytes by id, also of what could not be written yet; any thread may call it."""
        held = {recording: len(entry.whole) for recording, entry in tuple(self._open.items())}
        return {recording: entry.size for recording, entry in self.index.items()} | held

    def put(self, recording: str, whole: bytes, added: bytes, *, urgent: bool = False) -> None:
        """Write a recording, of which ``added`` is new at the end; nothing if it was thinned out.

        An id that is none is refused: it was in a spool that somebody else has written.
        """
        if _ID.fullmatch(recording) is None:
            self._refuse(f"{recording!r} is not the name of a recording")
            return
        entry = self._open.setdefault(recording, _Open())
        if not added:
            entry.size = 0
        entry.whole = whole
        entry.is_urgent |= urgent
        self._save(recording, entry)

    def finish(self, recording: str) -> None:
        """Write what is left of a recording, to which nothing will be added."""
        entry = self._open.get(recording)
        if entry is None:
            return
        entry.is_finished = entry.is_urgent = True
        self._save(recording, entry)
        waiting = [name for name, other in self._open.items() if other.is_finished]
        for name in waiting[:-MOST_WAITING]:
            del self._open[name]
            self.failures += 1

    def tidy(self, now: float) -> None:
        """Write what has waited; delete what is too old or too much, every ten minutes.

        ``now`` is in Unix seconds. Call it every few seconds.
        """
        for recording, entry in tuple(self._open.items()):
            self._save(recording, entry)
        size = sum(entry.size for entry in self.index.values())
        pause = FULL_SECONDS if size > MOST_BYTES else TIDY_SECONDS
        if self._clock() - self._tidied_at >= pause and self._may_try():
            self._try(lambda: self._delete_surplus(now))

    def close(self) -> None:
        """Write what has waited, even if the store has just refused: there is no later."""
        self._failed_at = float("-inf")
        for recording, entry in tuple(self._open.items()):
            entry.is_urgent = True
            self._save(recording, entry)

    def read(self, recording: str) -> bytes:
        """Return a recording; any thread may call it.

        Raises:
            FileNotFoundError: there is none with that id.
            OSError: the store refuses.

        """
        entry = self._open.get(recording)
        if entry is not None:
            return entry.whole
        if _ID.fullmatch(recording) is None:
            raise FileNotFoundError(f"no recording {recording!r}")
        return self._folder.read(recording + SUFFIX)

    def _save(self, recording: str, entry: _Open) -> None:
        waited = self._clock() - entry.written_at
        is_due = self._folder.appends or entry.is_urgent or waited >= WRITE_SECONDS
        if entry.is_behind and is_due and self._may_try():
            self._try(lambda: self._write(recording, entry))
        if entry.is_finished and not entry.is_behind:
            del self._open[recording]

    def _write(self, recording: str, entry: _Open) -> None:
        name = recording + SUFFIX
        tail = entry.whole[entry.size :]
        is_appended = self._folder.appends and entry.size > 0
        # Until it is certain what the file holds, it is to be written as a whole.
        entry.size = 0
        entry.written_at = self._clock()
        if not (is_appended and self._append(name, tail)):
            if not self._is_made:
                self._folder.make()
                self._is_made = True
            self._folder.write(name, entry.whole)
        entry.size = len(entry.whole)
        entry.is_urgent = False
        newest = {recording: FileEntry(entry.size, self._wall())}
        self.index = MappingProxyType({**self.index, **newest})

    def _append(self, name: str, tail: bytes) -> bool:
        """Append; False if somebody has deleted the file."""
        try:
            self._folder.append(name, tail)
        except FileNotFoundError:
            self._is_made = False
            return False
        return True

    def _delete_surplus(self, now: float) -> None:
        files = self._folder.entries()
        written = {recording + SUFFIX for recording in self._open}
        deleted = surplus(files, now, written)
        for name in deleted:
            self._folder.delete(name)
        kept = filter(_OURS.fullmatch, files.keys() - set(deleted))
        self.index = MappingProxyType({name.removesuffix(SUFFIX): files[name] for name in kept})
        self._tidied_at = self._clock()

    def _may_try(self) -> bool:
        return self._clock() - self._failed_at >= RETRY_SECONDS

    def _try(self, action: Callable[[], None]) -> None:
        """Call the store; count and remember that it refuses."""
        try:
            with self._hang:
                action()
        except OSError as error:
            self._refuse(error.strerror or str(error))
            self._failed_at = self._clock()
            # The folder may be gone.
            self._is_made = False
        else:
            self._problem.note("")

    def _refuse(self, reason: str) -> None:
        self.failures += 1
        self._problem.note(f"{self._folder.place}: {reason}")
