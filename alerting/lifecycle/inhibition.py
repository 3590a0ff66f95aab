"""One query's misery is told by one alert: which waits for which, and which ends which. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from ...listener.identity import UNNAMED
from ..finding import WHOLE_DRIVER, Severity
from ..rules import data_loss_risk, query_flapping
from .course import FACTS, Course
from .health import Health

BESIDES = frozenset({query_flapping.NAME, data_loss_risk.NAME})
"""What stands beside whatever else is told of its query, and ends nothing."""


def urgency(course: Course) -> tuple[bool, bool]:
    """Sorts the whole driver's alerts first, then the critical ones."""
    return course.query != WHOLE_DRIVER, not _is_critical(course)


def is_held_back(
    new: Course, others: Iterable[Course], health: Health, resolve_after_seconds: float
) -> bool:
    """Whether ``new`` is not to begin while one of ``others`` is open."""
    return any(
        _driver_holds(other, new, health, resolve_after_seconds)
        if other.query == WHOLE_DRIVER
        else other.query == new.query and _speaks_for(other, new)
        for other in others
        if other.begun
    )


def supersedes(new: Course, old: Course) -> bool:
    """Whether ``old``, found no more, is over because ``new`` begins to fire."""
    if not old.begun or old.found or old.query != new.query or _is_lesser(new, old):
        return False
    if new.query == UNNAMED:
        return False
    return BESIDES.isdisjoint({new.alert.name, old.alert.name})


def _driver_holds(
    driver: Course, new: Course, health: Health, resolve_after_seconds: float
) -> bool:
    """A driver that is ill speaks for its queries, and a while after: they have to come round.

    What is a fact needs no such while, and what only an earlier driver found holds nothing.
    """
    beneath = new.query != WHOLE_DRIVER or not _is_critical(new)
    if not beneath or not _is_critical(driver) or not driver.looks:
        return False
    if driver.found:
        return True
    calm = driver.calm
    return (
        new.alert.name not in FACTS
        and calm is not None
        and health.lasted(calm) < resolve_after_seconds
    )


def _speaks_for(old: Course, new: Course) -> bool:
    """That data is in danger is another matter than why, and no lesser one for being a warning.

    Alerts of queries without a name may be about different queries.
    """
    if new.query == UNNAMED or new.alert.name == data_loss_risk.NAME:
        return False
    return _is_lesser(new, old)


def _is_lesser(new: Course, old: Course) -> bool:
    return _is_critical(old) and not _is_critical(new)


def _is_critical(course: Course) -> bool:
    return course.severity == Severity.CRITICAL.value
