"""P1, P2 and P3 of data that must come: a query that reads no rows is reported in its time."""

from __future__ import annotations

from querypulse.alerting.rules import streaming_input_missing
from querypulse.sidecar.worker import Judged

from .driver import WHOLE_DRIVER, SimDriver
from .queries import SimQuery
from .truth import Health
from .verdicts import (
    SEEN_SECONDS,
    TICK_SECONDS,
    Stage,
    Violation,
    is_seen,
    recovery_seconds,
)

NAME = streaming_input_missing.NAME
SLACK_SECONDS = 12.0


class Feeding:
    """Looks at what a driver finds and has open, under ``Setup.expected_input``."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._fed: dict[str, float] = {}
        """For how long a query has been fed whose alert is open."""

    def judged(self, driver: SimDriver, judged: Judged) -> None:
        """Whoever has just read rows is not reported."""
        for finding in judged.judgement.findings:
            query = self._stage.queries.get(driver.owners.get(finding.query, ""))
            if finding.alertname != NAME or query is None:
                continue
            hungry = self._stage.time.now - max(query.fed_at, query.started_at)
            if hungry < self._stage.plan.setup.expected_input - SLACK_SECONDS:
                raise Violation(
                    "P2", f"{query.key} has read rows {hungry:.0f} s ago, and {NAME} was found"
                )

    def tick(self) -> None:
        """Whoever has read none for too long is."""
        if not self._stage.plan.setup.expected_input:
            return
        for query in self._stage.queries.values():
            if not query.spec.is_finite and not query.spec.is_continuous and query.spec.name:
                self._check(query, self._stage.drivers[query.spec.driver])

    def _check(self, query: SimQuery, driver: SimDriver) -> None:
        if not is_seen(driver, query.key) or query.truth.health is not Health.HEALTHY:
            self._fed.pop(query.key, None)
            return
        now = self._stage.time.now
        open_ones = {
            alert.name
            for alert in driver.lifecycle.alerts
            if query.key == driver.owners.get(alert.labels["query"])
            or alert.labels["query"] == WHOLE_DRIVER
        }
        hungry = now - max(query.fed_at, query.started_at, query.truth.since, driver.attached_at)
        if (
            hungry > self._promised(query, driver)
            and not open_ones
            and self._is_told(query, driver)
        ):
            raise Violation("P1", f"{query.key} has read no rows for {hungry:.0f} s")
        if NAME not in open_ones or now - query.fed_at > query.spec.every + 2 * query.spec.takes:
            self._fed.pop(query.key, None)
            return
        fed = self._fed[query.key] = self._fed.get(query.key, 0.0) + TICK_SECONDS
        if fed > recovery_seconds(query) + self._stage.longest_delay + SLACK_SECONDS:
            raise Violation("P3", f"{query.key} has read rows for {fed:.0f} s, and {NAME} is open")

    def _promised(self, query: SimQuery, driver: SimDriver) -> float:
        windows = [
            one.window_seconds or 0.0
            for label, one in driver.worker.judged.judgement.verdicts.items()
            if driver.owners.get(label) == query.key
        ]
        least = max([self._stage.plan.setup.expected_input, *windows])
        return least + SLACK_SECONDS + SEEN_SECONDS + self._stage.longest_delay

    @staticmethod
    def _is_told(query: SimQuery, driver: SimDriver) -> bool:
        """Whether an event has told of its last rows: else nobody knows whether there were more."""
        return driver.bus.lost_until.get(query.key, float("-inf")) < query.fed_at
