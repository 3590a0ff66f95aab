"""Warns once per query whose checkpoint does not survive a restart."""

from __future__ import annotations

import logging

from ..listener.checkpoint_place import checkpoint_problem
from ..listener.snapshot import Snapshot

log = logging.getLogger("querypulse")

MAX_REMEMBERED = 10_000
"""The most queries remembered; beyond that, the oldest may be warned about again."""


class CheckpointWarnings:
    """Remembers, by label, the queries already warned about; used by one thread."""

    def __init__(self) -> None:
        self._named: dict[str, None] = {}

    def poll(self, snapshot: Snapshot) -> None:
        """Log a warning for each new query that needs one."""
        for query in snapshot.queries:
            if query.facts is None or query.label in self._named:
                continue
            problem = checkpoint_problem(query.facts.checkpoint)
            if problem:
                self._remember(query.label)
                log.warning("querypulse: the checkpoint of %s is %s", query.label, problem)

    def _remember(self, label: str) -> None:
        self._named[label] = None
        if len(self._named) > MAX_REMEMBERED:
            del self._named[next(iter(self._named))]
