"""P1 of the monitor itself: it reports what it cannot read."""

from __future__ import annotations

from querypulse.alerting.rules import monitoring_degraded

from .driver import WHOLE_DRIVER, SimDriver
from .promises import START_GRACE_SECONDS
from .stage import TICK_SECONDS, Property, Violation, WorldView

UNREAD_SECONDS = START_GRACE_SECONDS + 24.0
"""The start grace, which is longer than the stall floor."""


class Seeing(Property):
    """Counts how long a checkpoint that must be read is unreadable."""

    def __init__(self, stage: WorldView) -> None:
        super().__init__(stage)
        self._unread: dict[tuple[SimDriver, str], float] = {}

    def tick(self) -> None:
        """Check that a log that decides about a stall is read, or that an alert reports it."""
        for driver in self._stage.drivers.values():
            unreadable = _unreadable(driver)
            for run_id in unreadable:
                place = (driver, run_id)
                waited = self._unread[place] = self._unread.get(place, 0.0) + TICK_SECONDS
                if waited > UNREAD_SECONDS and not _is_reported(driver):
                    raise Violation("P1", "a checkpoint cannot be read, and no alert reports it")
            kept = {(driver, run_id) for run_id in unreadable}
            self._unread = {
                place: waited for place, waited in self._unread.items()
                if place[0] is not driver or place in kept
            }  # fmt: skip


def _unreadable(driver: SimDriver) -> set[str]:
    """The runs whose needed log cannot be read; none while the driver does not poll."""
    log = driver.probe.log
    if log is None or not driver.awake or not driver.attached or not driver.probe.answers:
        return set()
    return {
        run.run_id
        for run in driver.spark.living.values()
        if run.run_id in log.unreadable and run.spec.needs_log
    }


def _is_reported(driver: SimDriver) -> bool:
    """Whether it is reported, or the whole driver has a critical alert."""
    return any(
        alert.name == monitoring_degraded.NAME
        or (alert.labels["query"] == WHOLE_DRIVER and alert.labels["severity"] == "critical")
        for alert in driver.lifecycle.alerts
    )
