"""The product's spool, on a file in memory; the steps of its thread take simulated time."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event

from querypulse.alerting.lifecycle import Opened
from querypulse.alerting.outbox import OutboxRow
from querypulse.alerting.spool import Kept, Spool
from querypulse.core.guard import Guard
from querypulse.listener.past_failures import FailedQuery

from .clock import Time

WRITE_SECONDS = 0.05
"""The delay of a write to disk: what was offered since then is lost with the process."""
IN_MEMORY = Path("/dev/shm")


class Disk:
    """The disk of one driver, which outlives its processes."""

    def __init__(self) -> None:
        memory = str(IN_MEMORY) if IN_MEMORY.is_dir() else None
        self._folder = TemporaryDirectory(prefix="querypulse-", dir=memory)

    def spool(self, app: str, guard: Guard, time: Time) -> SimSpool:
        """The spool of a new process."""
        return SimSpool(Path(self._folder.name), app, guard, time)

    def remove(self) -> None:
        """Remove it at the end of the history."""
        self._folder.cleanup()


class NoThread:
    """Takes the place of the spool's ``Loop``."""

    is_forked = False

    def __init__(self) -> None:
        self.stopping = Event()

    def start(self) -> None:
        """Start nothing."""


class SimSpool(Spool):
    """The spool of one process. It writes ``WRITE_SECONDS`` after an offer, and at a flush."""

    def __init__(self, folder: Path, app: str, guard: Guard, time: Time) -> None:
        super().__init__(folder, app, guard, wall=time.wall)
        self._loop = NoThread()  # type: ignore[assignment]
        self._time = time
        self._is_planned = False
        self._is_dead = False

    def load(self, timeout: float = 0.0) -> Kept | None:
        """What an earlier process left; None where there was no spool."""
        if not self._is_open:
            self._step()
        return super().load(timeout)

    def offer_rows(self, receiver: str, rows: tuple[OutboxRow, ...]) -> None:
        """Store these rows soon."""
        super().offer_rows(receiver, rows)
        self._plan()

    def offer_history(self, failures: tuple[FailedQuery, ...], opened: tuple[Opened, ...]) -> None:
        """Store these soon."""
        super().offer_history(failures, opened)
        self._plan()

    def flush(self, timeout: float = 0.0) -> bool:
        """Write everything now."""
        del timeout
        self._write()
        return True

    def kill(self) -> None:
        """End the process: nothing more is written."""
        self._is_dead = True
        self._file.close()

    def _plan(self) -> None:
        if self._written != self._offered and not self._is_planned:
            self._is_planned = True
            self._time.after(WRITE_SECONDS, self._write)

    def _write(self) -> None:
        self._is_planned = False
        if self._written != self._offered and not self._is_dead:
            self._step()
