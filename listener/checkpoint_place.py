"""Whether the next start of a query can find its checkpoint again, and a warning if not."""

from __future__ import annotations

import logging
import re

from ..core.listing import listed
from .snapshot import Snapshot

log = logging.getLogger("querypulse")

MAX_REMEMBERED = 10_000
"""The most queries remembered; beyond that, the oldest may be warned about again."""
_TEMPORARY = re.compile(r"/temporary-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}/?$")
"""``Utils.createTempDir(namePrefix = "temporary")``, where no ``checkpointLocation`` is set."""
_OF_THE_MACHINE = re.compile(r"file:/+(tmp|var/tmp|dev/shm)(?:/|$)")
TEMPORARY = "temporary: no checkpointLocation is set, so each start of the query loses its progress"


def checkpoint_problem(checkpoint: str) -> str:
    """Why a checkpoint (``resolvedCheckpointRoot``) may be lost; empty when nothing is wrong."""
    if _TEMPORARY.search(checkpoint):
        return TEMPORARY
    found = _OF_THE_MACHINE.match(checkpoint)
    if found is None:
        return ""
    return f"under /{found.group(1)} on the driver's machine: another machine cannot read it"


class CheckpointWarnings:
    """Remembers, by label, the queries already warned about; used by one thread."""

    def __init__(self) -> None:
        self._named: dict[str, None] = {}

    def poll(self, snapshot: Snapshot) -> None:
        """Log one warning for each problem, with the new queries that have it."""
        found: dict[str, list[str]] = {}
        for query in snapshot.queries:
            if query.facts is None or query.label in self._named:
                continue
            problem = checkpoint_problem(query.facts.checkpoint)
            if problem:
                self._remember(query.label)
                found.setdefault(problem, []).append(query.label)
        for problem, labels in found.items():
            log.warning("querypulse: the checkpoint of %s is %s", listed(labels), problem)

    def _remember(self, label: str) -> None:
        self._named[label] = None
        if len(self._named) > MAX_REMEMBERED:
            del self._named[next(iter(self._named))]
