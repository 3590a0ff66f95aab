"""Which data files of unread Delta versions ``VACUUM`` may delete, and from when on.

A version that was rewritten (``OPTIMIZE``, ``MERGE``, ``DELETE``, an overwrite) before a query
read it is still read from its old files. ``VACUUM`` deletes these once they have been removed for
``delta.deletedFileRetentionDuration`` (Delta protocol, "Add File and Remove File").
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice

import msgspec
from msgspec.structs import replace

MAX_VERSIONS = 100
"""How many unread versions are read in all: a removal in a later one is not seen."""
MAX_FILES = 100_000
"""How many of their files are remembered: about 10 MB. Then reading stops."""
MAX_AT_ONCE = 10
MAX_BYTES = 4_000_000
"""A longer commit file is skipped."""


class _File(msgspec.Struct, rename="camel"):
    path: str
    data_change: bool = True
    deletion_timestamp: int | None = None


class _Action(msgspec.Struct):
    add: _File | None = None
    remove: _File | None = None


class Removals(msgspec.Struct, frozen=True):
    """The first removal of a file that an unread version had added, as far as the log was read."""

    first: int
    """The first unread version."""
    following: int
    """The next version to read."""
    added: frozenset[int] = frozenset()
    """Hashes (8 bytes) of the paths that were added."""
    removed_at: float | None = None
    """Unix seconds."""


def adds_rows(commit: str | None) -> bool:
    """Whether a commit may add rows, as ``OPTIMIZE``, ``DELETE`` and settings do not.

    One that is too long to be read may.
    """
    if commit is None:
        return True
    return any(action.add is not None and action.add.data_change for action in _actions(commit))


def read_on(
    before: Removals | None, first: int, end: int, text: Callable[[int], str | None]
) -> Removals:
    """Read the next unread versions; ``text`` returns the commit of one, None for one too long."""
    removals = before if before is not None and before.first == first else Removals(first, first)
    last = min(end, first + MAX_VERSIONS, removals.following + MAX_AT_ONCE)
    while removals.following < last and removals.removed_at is None:
        if len(removals.added) >= MAX_FILES:
            break
        commit = text(removals.following)
        removals = replace(removals, following=removals.following + 1)
        removals = _after(removals, list(_actions(commit or "")))
    return removals


def _actions(commit: str) -> Iterator[_Action]:
    for line in commit.splitlines():
        with suppress(msgspec.MsgspecError):
            yield msgspec.json.decode(line, type=_Action)


def _after(removals: Removals, actions: list[_Action]) -> Removals:
    """Apply a commit; one that marks rows of a file as deleted removes it and adds it again."""
    added = {hash(action.add.path) for action in actions if action.add is not None}
    times = [
        action.remove.deletion_timestamp / 1000
        for action in actions
        if action.remove is not None
        and action.remove.deletion_timestamp is not None
        and (path := hash(action.remove.path)) in removals.added
        and path not in added
    ]
    kept = removals.added.union(islice(added, MAX_FILES - len(removals.added)))
    return replace(removals, added=kept, removed_at=min(times, default=None))
