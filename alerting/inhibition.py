"""Which alerts suppress others, and which alerts end others.

While X is open, Y does not begin to fire:

=======================  =====================================  ================================
X                        Y                                      while
=======================  =====================================  ================================
a critical alert of the  every warning, and every alert of a    X fires, and for
whole driver (``*``)     query but ``StreamingQueryFailed``     ``resolve_after_seconds`` after
a critical alert of a    a warning of the same query, but       X is open
query                    not ``StreamingDataLossRisk``
any alert of a query     ``StreamingInputMissing`` of the       X is open
                         same query
=======================  =====================================  ================================

As long as an alert of the whole driver suppresses the alerts of its queries, none of them that is
open as a warning becomes critical.

A failure is never suppressed. A silenced alert suppresses nothing, also if its silence has ended
but it recovers and is not sent any more; neither does an alert that only an earlier driver found,
nor one of unnamed queries, which may be about different queries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from ..listener.state.identity import UNNAMED
from .active_alert import FACTS, ActiveAlert
from .alert import Alert
from .finding import WHOLE_DRIVER, Severity
from .recovery import DriverHealth
from .restarts import ANNOTATION
from .rules import data_loss_risk, query_flapping, streaming_input_missing

INDEPENDENT_ALERTS = frozenset({query_flapping.NAME, data_loss_risk.NAME})
"""Alerts that are reported in addition to other alerts of their query, and never end another."""


class Suppressed(msgspec.Struct, frozen=True):
    """An alert that does not begin to fire, and the one that suppresses it."""

    alert: Alert
    by: Alert


def urgency(active: ActiveAlert) -> tuple[bool, bool]:
    """Sort key: alerts of the whole driver first, then critical ones."""
    return active.query != WHOLE_DRIVER, not _is_critical(active)


class Inhibition:
    """Suppresses new alerts, and warnings that become critical, because of those that are open."""

    def __init__(
        self,
        known: Mapping[str, ActiveAlert],
        health: DriverHealth,
        resolve_after_seconds: float,
        is_silenced: Callable[[ActiveAlert], bool],
    ) -> None:
        self._known = known
        self._health = health
        self._resolve_after = resolve_after_seconds
        self._is_silenced = is_silenced

    def suppressor(self, new: ActiveAlert) -> ActiveAlert | None:
        """The open alert that suppresses ``new``; None if ``new`` may fire."""
        if new.alert.name in FACTS:
            return None
        for other in self._known.values():
            if other.begun and self._holds(other, new) and not self._is_silenced(other):
                return other
        return None

    def _holds(self, other: ActiveAlert, new: ActiveAlert) -> bool:
        if other.query == WHOLE_DRIVER:
            return self._driver_holds(other, new)
        return other.query == new.query and _query_holds(other, new)

    def _driver_holds(self, driver: ActiveAlert, new: ActiveAlert) -> bool:
        """Whether the driver's alert suppresses ``new``: also for a while after recovery."""
        beneath = new.query != WHOLE_DRIVER or not _is_critical(new)
        if not beneath or not _is_critical(driver) or not driver.polls:
            return False
        if driver.found:
            return True
        recovery = driver.recovery
        return recovery is not None and self._health.lasted(recovery) < self._resolve_after


def supersedes(new: ActiveAlert, old: ActiveAlert) -> bool:
    """Whether ``old``, whose finding is absent, ends because ``new`` begins to fire.

    An alert about a batch over restarts does not end: the next process would open it again.
    """
    if not old.begun or old.found or old.query != new.query or _is_lesser(new, old):
        return False
    if new.query == UNNAMED or ANNOTATION in old.alert.annotations:
        return False
    return INDEPENDENT_ALERTS.isdisjoint({new.alert.name, old.alert.name})


def _query_holds(old: ActiveAlert, new: ActiveAlert) -> bool:
    """Whether ``old`` suppresses ``new`` of the same query.

    A data loss risk is never suppressed: it is not explained by its cause. Missing input is always
    suppressed: it follows from the other problem.
    """
    if new.query == UNNAMED or new.alert.name == data_loss_risk.NAME:
        return False
    return new.alert.name == streaming_input_missing.NAME or _is_lesser(new, old)


def _is_lesser(new: ActiveAlert, old: ActiveAlert) -> bool:
    return _is_critical(old) and not _is_critical(new)


def _is_critical(active: ActiveAlert) -> bool:
    return active.severity == Severity.CRITICAL.value
