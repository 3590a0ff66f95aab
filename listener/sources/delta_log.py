"""Finds the newest version in a Delta table's log with as few storage calls as possible.

Each commit is one file ``<version, 20 digits>.json`` in ``_delta_log``; versions have no gaps, and
only old ones are removed (``logRetentionDuration``). Delta protocol, "Delta Log Entries".
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Protocol

from ..offsets import Position

END_INDEX = 2**62
"""A file's index beyond any real one: the version is read (``DeltaSourceOffset.END_INDEX``)."""
_COMMIT = re.compile(r"/(\d{20})(?:\.[0-9a-f-]{36})?\.json(?=, |\)$)", re.ASCII)


class DeltaLog(Protocol):
    """The log of a table on some storage; both methods may block."""

    def has(self, version: int) -> bool:
        """Whether a version's commit exists."""
        ...

    def versions(self) -> Iterable[int]:
        """All versions, in any order; costly if there are many."""
        ...


def end_of(log: DeltaLog, known: int) -> int:
    """The version of the next commit, searched from ``known`` on.

    Costs two calls if nothing has changed, about ``2 log n`` calls after ``n`` new versions. A
    log that ends before ``known`` is listed, because its table has been replaced.
    """
    if log.has(known):
        return _first_missing(log, known)
    if known and log.has(known - 1):
        return known
    return max(log.versions(), default=-1) + 1


def first_unread(position: Position | None) -> int | None:
    """The first version not fully read at a Delta offset, which is a version and a file index."""
    if not isinstance(position, tuple):
        return None
    version, index = position
    return version + 1 if index >= END_INDEX else version


def commit_name(version: int) -> str:
    """``00000000000000000007.json``."""
    return f"{version:020d}.json"


def versions_in(listing: str) -> list[int]:
    """Read versions from a listing, ``Array(file:/t/_delta_log/00000000000000000007.json)``.

    Unpublished commits in ``_staged_commits`` count; checksums and checkpoints do not.
    """
    return [int(version) for version in _COMMIT.findall(listing)]


def _first_missing(log: DeltaLog, there: int) -> int:
    step = 1
    while log.has(there + step):
        there += step
        step *= 2
    missing = there + step
    while missing - there > 1:
        middle = (there + missing) // 2
        there, missing = (middle, missing) if log.has(middle) else (there, middle)
    return missing
