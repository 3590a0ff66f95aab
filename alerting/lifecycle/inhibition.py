"""Which alert suppresses which, and which ends which. Pure.

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

A failure is never suppressed. What is silenced suppresses nothing, nor does what only an earlier
driver found. Alerts of queries without a name may be about different queries: they suppress none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from ...listener.identity import UNNAMED
from ..alert import Alert
from ..finding import WHOLE_DRIVER, Severity
from ..over_restarts import ANNOTATION
from ..rules import data_loss_risk, query_flapping, streaming_input_missing
from .active_alert import FACTS, ActiveAlert
from .health import DriverHealth

INDEPENDENT_ALERTS = frozenset({query_flapping.NAME, data_loss_risk.NAME})
"""What stands beside whatever else is told of its query, and ends nothing."""


class Suppressed(msgspec.Struct, frozen=True):
    """An alert that does not begin to fire, and the one that suppresses it."""

    alert: Alert
    by: Alert


def urgency(course: ActiveAlert) -> tuple[bool, bool]:
    """Sorts the whole driver's alerts first, then the critical ones."""
    return course.query != WHOLE_DRIVER, not _is_critical(course)


def suppressor(
    new: ActiveAlert,
    others: Iterable[ActiveAlert],
    health: DriverHealth,
    resolve_after_seconds: float,
    is_silenced: Callable[[Alert], bool],
) -> ActiveAlert | None:
    """The one of ``others`` because of which ``new`` is not to begin; None where it may."""
    if new.alert.name in FACTS:
        return None
    for other in others:
        if not other.begun:
            continue
        holds = (
            _driver_holds(other, new, health, resolve_after_seconds)
            if other.query == WHOLE_DRIVER
            else other.query == new.query and _speaks_for(other, new)
        )
        if holds and not is_silenced(other.alert):
            return other
    return None


def supersedes(new: ActiveAlert, old: ActiveAlert) -> bool:
    """Whether ``old``, found no more, is over because ``new`` begins to fire.

    Not what is said of a batch over restarts: the next process would open it once more.
    """
    if not old.begun or old.found or old.query != new.query or _is_lesser(new, old):
        return False
    if new.query == UNNAMED or ANNOTATION in old.alert.annotations:
        return False
    return INDEPENDENT_ALERTS.isdisjoint({new.alert.name, old.alert.name})


def _driver_holds(
    driver: ActiveAlert, new: ActiveAlert, health: DriverHealth, resolve_after_seconds: float
) -> bool:
    """A while after it has recovered, its queries may still have to."""
    beneath = new.query != WHOLE_DRIVER or not _is_critical(new)
    if not beneath or not _is_critical(driver) or not driver.polls:
        return False
    if driver.found:
        return True
    return driver.recovery is not None and health.lasted(driver.recovery) < resolve_after_seconds


def _speaks_for(old: ActiveAlert, new: ActiveAlert) -> bool:
    """That data is in danger is another matter than why, and no lesser one for being a warning.

    That no rows come follows from whatever else is wrong.
    """
    if new.query == UNNAMED or new.alert.name == data_loss_risk.NAME:
        return False
    return new.alert.name == streaming_input_missing.NAME or _is_lesser(new, old)


def _is_lesser(new: ActiveAlert, old: ActiveAlert) -> bool:
    return _is_critical(old) and not _is_critical(new)


def _is_critical(course: ActiveAlert) -> bool:
    return course.severity == Severity.CRITICAL.value
