"""Keeps outboxes, failures and flapping on disk, in a thread, so that they outlive the driver."""

from __future__ import annotations

import errno
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from ..core.guard import Guard
from ..core.threads import HangDetector, Loop
from ..listener.past_failures import FailedQuery
from .active_alert import FlapHistory
from .outbox_entry import Essence, OutboxEntry, essence

log = logging.getLogger("querypulse")


# -- spool lock -------------------------------------------------------------------------------
# The lock of a spool: only one running process, and one spool of it, may write the file.


HELD_BY_ANOTHER = frozenset({errno.EACCES, errno.EAGAIN})
"""The errors that POSIX allows ``fcntl`` if another process has the lock."""

_held: set[Path] = set()
"""The locks of this process: the system would grant one to the same process a second time."""


class SpoolLock:
    """A POSIX record lock on a side file; it is released when its process ends in any way.

    A forked child does not inherit it, so a child that outlives its driver blocks no process.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def take(self) -> bool:
        """Take the lock if it is free.

        Raises:
            OSError: the side file cannot be made, or its file system has no locks.

        """
        # Not on Windows, where everything but the spool works.
        import fcntl

        if self._descriptor is not None:
            return True
        path = self._path.resolve()
        if path in _held:
            return False
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if error.errno in HELD_BY_ANOTHER:
                return False
            raise OSError(error.errno, f"it cannot be locked: {error.strerror}") from None
        self._descriptor = descriptor
        _held.add(path)
        return True

    def give_back(self) -> None:
        """Release the lock."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
            _held.discard(self._path.resolve())


# -- spool file -------------------------------------------------------------------------------
# The SQLite file with entries of outboxes, failures of queries and flapping; for one thread.


VERSION = 1
BUSY_SECONDS = 2.0
T = TypeVar("T")
APP_CHARACTERS = 16

CREATE = "CREATE TABLE rows (receiver TEXT, key TEXT, row BLOB, PRIMARY KEY (receiver, key))"
READ = "SELECT receiver, key, row FROM rows ORDER BY rowid"
WRITE = "INSERT OR REPLACE INTO rows VALUES (?, ?, ?)"
DELETE = "DELETE FROM rows WHERE receiver = ? AND key = ?"
CREATE_FAILURES = "CREATE TABLE IF NOT EXISTS failures (query TEXT PRIMARY KEY, kept BLOB)"
READ_FAILURES = "SELECT query, kept FROM failures ORDER BY rowid"
WRITE_FAILURES = "INSERT OR REPLACE INTO failures VALUES (?, ?)"
DELETE_FAILURES = "DELETE FROM failures WHERE query = ?"
CREATE_FLAPS = "CREATE TABLE IF NOT EXISTS flaps (key TEXT PRIMARY KEY, kept BLOB)"
READ_FLAPS = "SELECT key, kept FROM flaps ORDER BY rowid"
WRITE_FLAPS = "INSERT OR REPLACE INTO flaps VALUES (?, ?)"
DELETE_FLAPS = "DELETE FROM flaps WHERE key = ?"

Entries = dict[str, tuple[OutboxEntry, ...]]
"""All rows by receiver."""
Change = tuple[str, str, OutboxEntry | None]
"""Receiver, key, and the new row; None deletes it."""
Failures = dict[str, FailedQuery]
"""The failures of all queries by query id; times are Unix seconds."""
Flaps = dict[str, FlapHistory]
"""How often alerts have fired, by their keys; times are Unix seconds."""


class SpoolBusyError(Exception):
    """Another running process uses the spool."""


class UnreadableError(Exception):
    """The file is not a spool of querypulse, or has a newer version."""


class SpoolFile:
    """The file of one application in ``folder``; only its owner can ever read it.

    ``existed``: the file existed before. ``failures`` and ``flaps`` are what it held when it was
    opened. ``mishap`` says what could not be read and where it was moved. Errors are those of the
    file system (``OSError``) and of SQLite (``sqlite3.Error``).
    """

    def __init__(self, folder: Path, app: str) -> None:
        name = f"outbox-{sha256(app.encode()).hexdigest()[:APP_CHARACTERS]}"
        self.path = folder / f"{name}.sqlite"
        self.existed = False
        self.failures: Failures = {}
        self.flaps: Flaps = {}
        self.mishap = ""
        self._lock = SpoolLock(folder / f"{name}.lock")
        self._connection: sqlite3.Connection | None = None

    @property
    def is_open(self) -> bool:
        """Whether it can be written."""
        return self._connection is not None

    def open(self, wall: float) -> Entries:
        """Take the file and read it; a corrupt one is renamed at Unix time ``wall``.

        Raises:
            SpoolBusyError: another process has it.

        """
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not self._lock.take():
            raise SpoolBusyError(f"{self.path}: in use by another process")
        try:
            return self._connect()
        except (sqlite3.DatabaseError, UnreadableError) as error:
            if not is_corruption(error):
                raise
            self.put_aside(wall, error)
            return self._connect()

    def put_aside(self, wall: float, error: Exception) -> None:
        """Rename an unreadable file so that a person can examine it."""
        self.disconnect()
        target = f"{self.path}.corrupt-{wall:.0f}"
        for suffix in ("", "-wal", "-shm", "-journal"):
            if os.path.lexists(f"{self.path}{suffix}"):
                Path(f"{self.path}{suffix}").replace(f"{target}{suffix}")
        self.mishap = f"{error}; put aside as {target}"

    def write(
        self,
        changes: Iterable[Change],
        failed: Mapping[str, FailedQuery | None] | None = None,
        flapped: Mapping[str, FlapHistory | None] | None = None,
    ) -> None:
        """Write all changes or none; they are on the disk when this returns.

        ``failed`` by query id, ``flapped`` by the key of the alert; None deletes a record.
        """
        connection = self._connection
        if connection is None:
            raise sqlite3.ProgrammingError("the spool is not open")
        with connection:
            connection.execute("BEGIN IMMEDIATE")
            for receiver, key, entry in changes:
                if entry is None:
                    connection.execute(DELETE, (receiver, key))
                else:
                    connection.execute(WRITE, (receiver, key, msgspec.json.encode(entry)))
            _write_kept(connection, failed or {}, WRITE_FAILURES, DELETE_FAILURES)
            _write_kept(connection, flapped or {}, WRITE_FLAPS, DELETE_FLAPS)

    def disconnect(self) -> None:
        """Close the file, but keep its lock."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def close(self) -> None:
        """Close the file and release its lock."""
        self.disconnect()
        self._lock.give_back()

    def _connect(self) -> Entries:
        """Connect with a write-ahead log, or without one if the file system does not support it."""
        try:
            return self._connect_with("WAL")
        except sqlite3.OperationalError:
            return self._connect_with("DELETE")

    def _connect_with(self, journal_mode: str) -> Entries:
        # SQLite gives its side files the mode of the file itself.
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600))
        self.path.chmod(0o600)
        connection = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None)
        try:
            connection.execute(f"PRAGMA journal_mode={journal_mode}")
            connection.execute("PRAGMA synchronous=FULL")
            entries = self._read(connection)
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return entries

    def _read(self, connection: sqlite3.Connection) -> Entries:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        self.existed = version > 0
        if version == 0 and tables == 0:
            with connection:
                connection.execute("BEGIN IMMEDIATE")
                connection.execute(CREATE)
                connection.execute(f"PRAGMA user_version={VERSION}")
        elif version != VERSION:
            raise UnreadableError(f"{self.path}: version {version}, this is for {VERSION}")
        connection.execute(CREATE_FAILURES)
        connection.execute(CREATE_FLAPS)
        failures = connection.execute(READ_FAILURES).fetchall()
        self.failures = self._kept(failures, FailedQuery, "what is kept of query")
        flaps = connection.execute(READ_FLAPS).fetchall()
        self.flaps = self._kept(flaps, FlapHistory, "the flapping of")
        self._drop_unread(connection, failures, flaps)
        return self._decode(connection)

    def _decode(self, connection: sqlite3.Connection) -> Entries:
        """All entries; a damaged one must not affect the others."""
        entries: Entries = {}
        for receiver, key, text in connection.execute(READ).fetchall():
            entry = self._decoded(text, OutboxEntry, f"{key} of {receiver}")
            if entry is None:
                connection.execute(DELETE, (receiver, key))
            else:
                entries[receiver] = (*entries.get(receiver, ()), entry)
        return entries

    def _kept(self, found: list[tuple[str, bytes]], kind: type[T], what: str) -> dict[str, T]:
        """All records of one table by key; damaged ones do not affect the others."""
        read = ((key, self._decoded(text, kind, f"{what} {key}")) for key, text in found)
        return {key: one for key, one in read if one is not None}

    def _drop_unread(
        self,
        connection: sqlite3.Connection,
        failures: list[tuple[str, bytes]],
        flaps: list[tuple[str, bytes]],
    ) -> None:
        for sql, found, known in (
            (DELETE_FAILURES, failures, self.failures),
            (DELETE_FLAPS, flaps, self.flaps),
        ):
            connection.executemany(sql, [(key,) for key, _ in found if key not in known])

    def _decoded(self, text: bytes, kind: type[T], what: str) -> T | None:
        try:
            return msgspec.json.decode(text, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError, TypeError, RecursionError) as error:
            self.mishap = f"{self.path}: {what} was unreadable: {error}"
            return None


def _write_kept(
    connection: sqlite3.Connection,
    changes: Mapping[str, msgspec.Struct | None],
    write: str,
    delete: str,
) -> None:
    for key, kept in changes.items():
        if kept is None:
            connection.execute(delete, (key,))
        else:
            connection.execute(write, (key, msgspec.json.encode(kept)))


def is_corruption(error: Exception) -> bool:
    """Whether the content is damaged, rather than the disk, its permissions, or a lock at fault."""
    return type(error) is sqlite3.DatabaseError or isinstance(error, UnreadableError)


# -- spool trial ------------------------------------------------------------------------------
# Tries whether a folder can hold a spool, and removes everything that the trial made.


def try_folder(folder: Path) -> None:
    """Do in ``folder`` what a spool does: make it, lock a file there, write and sync.

    Raises:
        OSError: one of these failed.

    """
    with _present(folder):
        path = folder / f"check-{os.getpid()}.lock"
        lock = SpoolLock(path)
        try:
            lock.take()
            _write(path)
        finally:
            lock.give_back()
            path.unlink(missing_ok=True)


@contextmanager
def _present(folder: Path) -> Iterator[None]:
    """The folder; directories that the trial made are removed: the driver may be another user."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    made: list[Path] = []
    try:
        for path in reversed(missing):
            path.mkdir(mode=0o700)
            made.insert(0, path)
        if not folder.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, "it is a file, not a folder", str(folder))
        yield
    finally:
        for path in made:
            path.rmdir()


def _write(path: Path) -> None:
    with path.open("wb") as file:
        file.write(b"querypulse")
        file.flush()
        os.fsync(file.fileno())


# -- kept records -----------------------------------------------------------------------------
# Records that outlive the process, by key: one kind of them, with what the disk holds.


class KeptRecords(Generic[T]):
    """What was found, what was offered last, and what the disk holds.

    Records that an earlier process left are not replaced before ``restore`` has released them, and
    what was offered until then is dropped: the next offer includes them.
    """

    def __init__(self) -> None:
        self._on_disk: dict[str, T] = {}
        self._left: dict[str, T] = {}
        self._newest: dict[str, T] | None = None

    def opened(self, found: Mapping[str, T]) -> None:
        """The disk holds exactly these."""
        self._on_disk = dict(found)

    def restore(self) -> None:
        """Release what the disk holds to ``take``."""
        self._left = dict(self._on_disk)
        self._newest = None if self._left else self._newest

    def take(self) -> tuple[T, ...]:
        """What an earlier process left; returned once."""
        left, self._left = self._left, {}
        return tuple(left.values())

    def offer(self, newest: Mapping[str, T]) -> bool:
        """Replace what the disk should hold; return whether it differs from the last offer."""
        if self._newest == newest:
            return False
        self._newest = dict(newest)
        return True

    @property
    def wanted(self) -> dict[str, T]:
        """What the disk should hold."""
        return self._on_disk if self._newest is None else self._newest

    def changes(self, wanted: Mapping[str, T]) -> dict[str, T | None]:
        """What to write until the disk holds ``wanted``; None deletes a record."""
        return {
            key: wanted.get(key)
            for key in {**self._on_disk, **wanted}
            if wanted.get(key) != self._on_disk.get(key)
        }


# -- spool ------------------------------------------------------------------------------------


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
        # Without a running thread, nothing will be written.
        if not self._fails and self._found is None and not self._loop.join(0.0):
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
