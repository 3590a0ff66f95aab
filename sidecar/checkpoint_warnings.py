"""Says once of each query that its checkpoint does not survive."""

from __future__ import annotations

import logging

from ..listener.checkpoint_place import checkpoint_problem
from ..listener.snapshot import Snapshot

log = logging.getLogger("querypulse")

MAX_REMEMBERED = 10_000
"""Of so many queries it was said; one more and the oldest may be named anew."""


class CheckpointWarnings:
    """Remembers by label of what queries it was said; used by one thread."""

    def __init__(self) -> None:
        self._named: dict[str, None] = {}

    def poll(self, snapshot: Snapshot) -> None:
        """Log a warning for each query that is news."""
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
