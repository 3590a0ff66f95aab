"""The SQLite file with entries of outboxes, failures of queries and flapping; for one thread."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

import msgspec

from ...listener.past_failures import FailedQuery
from ..lifecycle.flap_guard import FlapHistory
from .entry import OutboxEntry
from .spool_lock import SpoolLock

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
