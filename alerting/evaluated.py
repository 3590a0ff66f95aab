"""The result of one evaluation of all queries, as it is published."""

from __future__ import annotations

import msgspec

from ..listener.snapshot import Snapshot
from .alert import Alert
from .evaluate import Evaluation
from .lifecycle.inhibition import Suppressed


class Evaluated(msgspec.Struct, frozen=True):
    """What was evaluated, what was found, and the alerts that fire."""

    snapshot: Snapshot
    evaluation: Evaluation
    alerts: tuple[Alert, ...]
    suppressed: tuple[Suppressed, ...] = ()
    passed: dict[str, float] = {}
    """By label: see ``end_to_end.py``; monotonic seconds."""
