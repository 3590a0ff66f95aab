"""What a rule finds."""

from __future__ import annotations

from enum import Enum

import msgspec

from ..core.states import QueryState


class Severity(str, Enum):
    """How urgent an alert is."""

    CRITICAL = "critical"
    WARNING = "warning"


WHOLE_DRIVER = "*"
"""Replaces the query's name in an alert about all queries of the driver."""


class Finding(msgspec.Struct, frozen=True):
    """A problem that one rule found in one query.

    ``reason`` is one readable line; ``evidence`` becomes annotations. Findings of one name that
    share a ``cause`` become one incident of the whole driver. ``members`` are the labels of the
    unnamed queries that the finding lists.
    """

    alertname: str
    query: str
    severity: Severity
    state: QueryState
    reason: str
    summary: str
    evidence: dict[str, str]
    cause: str = ""
    members: tuple[str, ...] = ()
