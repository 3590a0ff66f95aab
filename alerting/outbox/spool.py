"""Keeps outboxes, failures and flapping on disk, in a thread, so that they outlive the driver."""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path

from ...core.file_loop import HangDetector
from ...core.guard import Guard
from ...core.loop import Loop
from ...listener.past_failures import FailedQuery
from ..lifecycle.flap_guard import FlapHistory
from .entry import Essence, OutboxEntry, essence
from .kept_records import KeptRecords, T
from .spool_file import Change, Entries, SpoolBusyError, SpoolFile, is_corruption

log = logging.getLogger("querypulse")

LOAD_SECONDS = 2.0
RETRY_SECONDS = 3.0
WRITE_AHEAD_SECONDS = 0.2
"""How long a message waits for the disk; a disk of a server writes within milliseconds."""


class Spool:
    """Stores the newest entries of every receiver, the failures of queries, and flapping alerts.

    It writes as soon as an important part changes. Deliveries do not depend on it: without a disk
    everything works while the process runs. The entries of an earlier process are not overwritten
    before ``load`` has returned them. A forked child does nothing.
    """

    def __init__(
        self,
        folder: Path,
        app: str,
        guard: Guard,
        *,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._problem = ""
        self._hang = HangDetector()
        self.is_taken = False
        """Whether another running process of the same app uses the file."""
        self._file = SpoolFile(folder, app)
        self._guard = guard
        self._wall = wall
        self._loop = Loop("spool", self._step, guard, last=self._file.close)
        self._found: Entries | None = None
        self._was_opened = False
        self._fails = False
        self._newest: dict[str, tuple[OutboxEntry, ...]] = {}
        self._failures = KeptRecords[FailedQuery]()
        self._flaps = KeptRecords[FlapHistory]()
        self._offered = 0
        self._written = 0
        self._was_late_after: int | None = None
        self._on_disk: dict[tuple[str, str], Essence] = {}
        # Guards what was found and offered; never held while the disk is at work.
        self._changed = threading.Condition()

    @property
    def problem(self) -> str:
        """Why what was offered may not be on the disk; empty without a problem."""
        hangs = self._hang.problem
        return f"{self._file.path}: {hangs}" if hangs else self._problem

    def start(self) -> None:
        """Start the thread."""
        if not self._loop.is_forked:
            self._loop.start()

    def load(self, timeout: float = LOAD_SECONDS) -> Entries | None:
        """Start, and return the entries of an earlier process by receiver, once.

        None if there was no spool, or if it could not be read within ``timeout`` seconds: then
        call again with 0, since the entries may come later.
        """
        if self._loop.is_forked:
            return None
        self._loop.start()
        with self._changed:
            self._changed.wait_for(lambda: self._was_opened or self._fails, timeout)
            found, self._found = self._found, None
            if found is not None:
                # Entries offered before do not include them; the next offers will.
                self._newest.clear()
                self._failures.restore()
                self._flaps.restore()
            self._changed.notify_all()
            return found

    def offer(self, receiver: str, entries: tuple[OutboxEntry, ...]) -> None:
        """Store exactly these entries of one receiver; never waits for the disk."""
        if self._loop.is_forked:
            return
        with self._changed:
            if self._newest.get(receiver) != entries:
                self._newest[receiver] = entries
                self._offered += 1
                self._changed.notify_all()

    def take_failures(self) -> tuple[FailedQuery, ...]:
        """The failures that were stored with the entries of ``load``; returned once."""
        return self._take(self._failures)

    def offer_failures(self, kept: tuple[FailedQuery, ...]) -> None:
        """Store exactly these failures; never waits for the disk."""
        self._offer(self._failures, {one.query_id: one for one in kept})

    def take_flaps(self) -> tuple[FlapHistory, ...]:
        """How often alerts have fired, as stored with the entries of ``load``; returned once."""
        return self._take(self._flaps)

    def offer_flaps(self, kept: tuple[FlapHistory, ...]) -> None:
        """Store exactly these; never waits for the disk."""
        self._offer(self._flaps, {one.key: one for one in kept})

    def flush(self, timeout: float) -> bool:
        """Wait up to ``timeout`` seconds; True when all that was offered is on the disk."""
        if self._loop.is_forked:
            return True
        with self._changed:
            due = self._offered
            return self._changed.wait_for(lambda: self._written >= due, timeout)

    def write_ahead(self) -> None:
        """Wait shortly until all that was offered is on the disk.

        Does not wait while the disk fails, nor again before a write that was too slow has ended.
        """
        if self._was_opened and not self._fails and self._was_late_after != self._written:
            in_time = self.flush(WRITE_AHEAD_SECONDS)
            self._was_late_after = None if in_time else self._written

    def close(self, timeout: float) -> None:
        """Write what is pending if there is time, and close the file."""
        if self._loop.is_forked:
            return
        began = time.monotonic()
        if not self._fails and self._found is None:
            self.flush(timeout)
        self._loop.stop()
        with self._changed:
            self._changed.notify_all()
        self._loop.join(timeout - (time.monotonic() - began))

    def _take(self, records: KeptRecords[T]) -> tuple[T, ...]:
        if self._loop.is_forked:
            return ()
        with self._changed:
            return records.take()

    def _offer(self, records: KeptRecords[T], newest: dict[str, T]) -> None:
        if self._loop.is_forked:
            return
        with self._changed:
            if records.offer(newest):
                self._offered += 1
                self._changed.notify_all()

    def _step(self) -> None:
        """Open the file, or write what is new; after a failure, wait a little."""
        try:
            if self._file.is_open:
                self._write_newest()
            else:
                self._open()
                self.is_taken = False
        except SpoolBusyError as error:
            self.is_taken = True
            self._say(str(error))
            self._wait()
        except (OSError, sqlite3.Error) as error:
            self._guard.report("spool", error)
            self._say(f"{self._file.path}: {error}")
            self._file.disconnect()
            if is_corruption(error):
                self._file.put_aside(self._wall(), error)
            self._wait()

    def _open(self) -> None:
        with self._hang:
            entries = self._file.open(self._wall())
        with self._changed:
            if not self._was_opened:
                self._found = entries if self._file.existed else None
            self._on_disk = {
                (receiver, entry.incident.key): essence(entry)
                for receiver, held in entries.items()
                for entry in held
            }
            self._failures.opened(self._file.failures)
            self._flaps.opened(self._file.flaps)
            self._was_opened = True
            self._offered += 1
            self._changed.notify_all()

    def _write_newest(self) -> None:
        with self._changed:
            if self._found is not None or self._written == self._offered:
                if not self._loop.stopping.is_set():
                    self._changed.wait()
                return
            newest, offered = dict(self._newest), self._offered
            failures, flaps = self._failures.wanted, self._flaps.wanted
            failed, flapped = self._failures.changes(failures), self._flaps.changes(flaps)
        changes, on_disk = self._differences(newest)
        if changes or failed or flapped:
            with self._hang:
                self._file.write(changes, failed, flapped)
        with self._changed:
            self._on_disk = on_disk
            self._failures.opened(failures)
            self._flaps.opened(flaps)
            self._written = offered
            self._fails = False
            self._changed.notify_all()
        self._say(self._file.mishap)

    def _differences(
        self, newest: dict[str, tuple[OutboxEntry, ...]]
    ) -> tuple[list[Change], dict[tuple[str, str], Essence]]:
        """The changes to write, and the content of the disk afterwards."""
        entries = {
            (name, entry.incident.key): entry for name, held in newest.items() for entry in held
        }
        kept = {key: one for key, one in self._on_disk.items() if key[0] not in newest}
        after = {**kept, **{key: essence(entry) for key, entry in entries.items()}}
        changes: list[Change] = [
            (*key, entry) for key, entry in entries.items() if self._on_disk.get(key) != after[key]
        ]
        changes += [(*key, None) for key in self._on_disk if key not in after]
        return changes, after

    def _wait(self) -> None:
        with self._changed:
            self._fails = True
            self._changed.notify_all()
            self._changed.wait_for(self._loop.stopping.is_set, RETRY_SECONDS)

    def _say(self, problem: str) -> None:
        """Log a problem if it is new."""
        if problem and problem != self._problem:
            log.warning("querypulse: the alerts' spool: %s", problem)
        self._problem = problem
