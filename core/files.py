"""Files: read in threads of their own, because a read on a hanging mount may never return, and
written completely or not at all.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from .guard import Guard
from .threads import Loop

END_SECONDS = 0.2
"""How long the end of a thread that reads files is waited for."""
HANGS_SECONDS = 10.0
Signature = tuple[int, int, int]


class HangDetector:
    """``with detector:`` surrounds work that may never return; any thread may read ``problem``."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began_at: float | None = None

    def __enter__(self) -> None:
        self._began_at = self._clock()

    def __exit__(self, *_: object) -> None:
        self._began_at = None

    @property
    def problem(self) -> str:
        """How long the work has not returned; empty unless that is long."""
        began_at = self._began_at
        waited = 0.0 if began_at is None else self._clock() - began_at
        return f"no answer for {waited:.0f} s" if waited > HANGS_SECONDS else ""


class FileLoop(Loop):
    """An unstarted thread that calls ``read`` every ``seconds``."""

    def __init__(self, name: str, read: Callable[[], object], seconds: float, guard: Guard) -> None:
        super().__init__(name, self._read_and_wait, guard)
        self._read = read
        self._seconds = seconds
        self._hang = HangDetector()

    @property
    def problem(self) -> str:
        """That a read does not return; empty without a problem."""
        return self._hang.problem

    def end(self) -> None:
        """Stop the thread and wait briefly: a hanging read must not delay a close."""
        self.stop()
        self.join(END_SECONDS)

    def _read_and_wait(self) -> None:
        with self._hang:
            self._guard.attempt(self.name, self._read)
        self.stopping.wait(self._seconds)


def signature_of(path: str | Path) -> Signature:
    """What changes with a file; Kubernetes swaps a link, which changes only the inode.

    Raises:
        OSError: there is no such file, or it cannot be reached.

    """
    stat = os.stat(path)  # noqa: PTH116 - a Path costs more
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


def write_whole(path: Path, content: bytes, mode: int) -> None:
    """Replace the file at ``path`` atomically; readers see the old or the new content.

    Raises:
        OSError: it could not be written; the old file is unchanged.

    """
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(draft).chmod(mode)
        Path(draft).replace(path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise
    if hasattr(os, "O_DIRECTORY"):
        # Otherwise the new name may not survive a crash of the machine.
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
