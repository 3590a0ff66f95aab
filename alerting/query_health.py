"""The evaluated health of one query, as it is published."""

from __future__ import annotations

import msgspec

from ..core.states import QueryState
from .finding import Severity


class QueryHealth(msgspec.Struct, frozen=True, gc=False):
    """The state of one query, the reason, its stall window in seconds, and its other limits.

    An ``ignored`` query has a state, but it raises no alert here and does not affect the process:
    the settings ignore it, or another process that monitors the same JVM reports it.
    """

    state: QueryState
    reason: str = ""
    window_seconds: float | None = None
    ignored: bool = False
    reported_elsewhere: bool = False
    lag_allowed_offsets: float | None = None
    restart_budget: int | None = None
    expected_input_seconds: float | None = None
    severity: Severity | None = None
    """The severity of its most severe finding; None without one."""
    restarted: bool = False
    """Whether ``supervise`` restarts it, so that its failure is not final."""
