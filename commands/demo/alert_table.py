"""A small table with optimistic concurrency, for the demo without Delta Lake.

Each commit is a file ``<version>.json`` that only one writer can create, as in Delta's log.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path

Rows = dict[str, str]


class ConcurrentAppendException(Exception):  # noqa: N818 - Delta's name for it
    """Another writer committed the version that this one wanted to write."""


class AlertTable:
    """Alert id -> ``open`` or ``resolved``, in numbered versions."""

    def __init__(self, folder: Path) -> None:
        self.rival: Callable[[], None] = lambda: None
        """Called between reading and committing, so that another writer can commit."""
        self._folder = folder

    def merge(self, rows: Rows) -> None:
        """Read the newest version, merge ``rows`` into it, commit the next.

        Raises:
            ConcurrentAppendException: another writer was faster.

        """
        version, table = self.read()
        self.rival()
        self.commit(version + 1, {**table, **rows})

    def read(self) -> tuple[int, Rows]:
        """The newest version and its rows; version -1 of an empty table."""
        versions = sorted(self._folder.glob("[0-9]*.json"))
        if not versions:
            return -1, {}
        rows: Rows = json.loads(versions[-1].read_text())
        return int(versions[-1].stem), rows

    def commit(self, version: int, rows: Rows) -> None:
        """Write one version atomically: a reader sees all of it or nothing.

        Raises:
            ConcurrentAppendException: it exists already.

        """
        draft = self._folder / f".{uuid.uuid4().hex}"
        draft.write_text(json.dumps(rows))
        try:
            (self._folder / f"{version:08}.json").hardlink_to(draft)
        except FileExistsError:
            raise ConcurrentAppendException(
                f"Files were added to table alert_resolution by a concurrent update: "
                f"version {version} was committed by another writer. Please try again."
            ) from None
        finally:
            draft.unlink()

    def compact(self) -> None:
        """Write the newest version again, as the next one."""
        version, rows = self.read()
        self.commit(version + 1, rows)
