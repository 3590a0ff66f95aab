"""P1, P2 and P3 of data that must arrive, and P1 of data that was lost with its topic."""

from __future__ import annotations

from collections import Counter
from math import inf

from querypulse.alerting.incidents.lifecycle import Evaluated
from querypulse.alerting.kinds import DATA_LOSS_RISK, INPUT_MISSING, QUERY_FLAPPING

from .driver import WHOLE_DRIVER, SimDriver
from .queries import SimQuery
from .receivers import Notification, SimReceiver
from .stage import (
    SEEN_SECONDS,
    TICK_SECONDS,
    Property,
    Violation,
    WorldView,
    is_seen,
    is_up,
    recovery_seconds,
)
from .truth import Health

NAME = INPUT_MISSING
SLACK_SECONDS = 12.0
UNDER_WAY_SECONDS = 0.1
"""The event of a commit arrives within this time; an alert needs two evaluations."""
NOTIFIED_SECONDS = 14.0
"""The same as after any failure."""


class Feeding(Property):
    """Checks findings of drivers and incidents of receivers, under ``QuerySpec.expected_input``."""

    def __init__(self, stage: WorldView) -> None:
        super().__init__(stage)
        self._fed: dict[str, float] = {}
        """How long a query with an open alert has read rows."""
        self._unknown: dict[tuple[str, str], float] = {}
        """How long a working receiver has not been notified of a query that reads no rows."""
        self._open_since: dict[str, float] = {}
        self._found_at: dict[str, float] = {}

    def evaluated(self, driver: SimDriver, evaluated: Evaluated) -> None:
        """Check that no query that has just read rows is reported."""
        for finding in evaluated.evaluation.findings:
            query = self._stage.queries.get(driver.owners.get(finding.query, ""))
            if finding.alertname != NAME or query is None:
                continue
            self._found_at[query.key] = self._stage.time.now
            if query.spec.is_finite and not self._is_reported(query, driver):
                # A run may have come, read rows and ended with the events that were lost.
                continue
            if self._stage.time.now - query.fed_at < self._under_way_seconds():
                continue
            now, late = self._stage.time.now, SLACK_SECONDS + self._stage.longest_delay
            # Nothing is known of the first commit of a run while its event is late.
            is_late = now - query.fed_at <= self._stage.longest_delay
            is_late |= self._is_unknown(query, driver)
            fed_at = query.known_fed_at if is_late else query.fed_at
            # A restart does not reset the time.
            hungry = now - max(fed_at, query.runs[0].started_at)
            if hungry < query.spec.expected_input - late or not query.spec.expected_input:
                raise Violation(
                    "P2", f"{query.key} has read rows {hungry:.0f} s ago, and {NAME} was found"
                )

    def _under_way_seconds(self) -> float:
        """How long nothing shows that a batch read rows: while events are late, a poll must end."""
        polls = 2 * self._stage.plan.setup.polls + TICK_SECONDS
        return polls if self._stage.longest_delay else UNDER_WAY_SECONDS

    def tick(self) -> None:
        """Check that exactly the queries that have read no rows for too long are reported."""
        for query in self._stage.queries.values():
            spec = query.spec
            if spec.expected_input and not spec.is_finite and not spec.is_continuous:
                self._check(query, self._stage.drivers[spec.driver])
        for receiver in self._stage.receivers:
            for note in self.new(receiver, "notifications"):
                self._check_cause(receiver, note)

    def _check_cause(self, receiver: SimReceiver, note: Notification) -> None:
        """Check that no receiver is notified of a query that reads rows or may read none."""
        late = NOTIFIED_SECONDS + self._stage.longest_delay
        if receiver.trouble_ended_at > note.at - 400.0:
            late += receiver.trouble_seconds + 400.0
        shown = Counter(key for key, _ in note.named)
        for key, name in note.named:
            # What has not recovered for long enough is shown beside what has just begun.
            is_alone = shown[key] == 1
            if name == NAME and is_alone and note.at - self._found_at.get(key, -inf) > late:
                raise Violation("P2", f"{receiver.name} notified of {NAME} of {key}, which is fed")

    def _check_known(self, query: SimQuery, open_ones: set[str]) -> None:
        if NAME in open_ones:
            self._open_since.setdefault(query.key, self._stage.time.now)
        else:
            self._open_since.pop(query.key, None)
        for receiver in self._stage.receivers:
            place = (query.key, receiver.name)
            spoken = {message for rejected in receiver.rejected for message in rejected.named}
            is_known = bool(self.holds(receiver, query, frozenset({NAME})))
            # One that is left of a critical incident and recovers already notifies nobody.
            is_known |= any(incident.muted for incident in self.driver_of(query).handing.open)
            excused = not is_up(
                receiver, self._open_since.get(query.key, inf)
            ) or self._stage.silences.covers(query.spec, NAME)
            if open_ones != {NAME} or excused or is_known or (query.key, NAME) in spoken:
                self._unknown.pop(place, None)
                continue
            waited = self._unknown[place] = self._unknown.get(place, 0.0) + TICK_SECONDS
            if waited > NOTIFIED_SECONDS:
                raise Violation(
                    "P1", f"{query.key} reads no rows, and {receiver.name} has notified nobody"
                )

    def _check(self, query: SimQuery, driver: SimDriver) -> None:
        if not is_seen(driver, query.key) or query.truth.health is not Health.HEALTHY:
            self._fed.pop(query.key, None)
            return
        now = self._stage.time.now
        mine = [
            alert
            for alert in driver.lifecycle.alerts
            if query.key == driver.owners.get(alert.query) or alert.query == WHOLE_DRIVER
        ]
        open_ones = {alert.name for alert in mine}
        is_held = any(alert.name == NAME and alert.calm_seconds for alert in mine)
        # Time without monitoring does not count.
        watched_since = max(driver.attached_at, driver.awake_since, driver.spark.paused_until)
        hungry = now - max(query.fed_at, query.started_at, query.truth.since, watched_since)
        self._check_known(query, open_ones)
        if (
            hungry > self._promised(query, driver)
            and not open_ones
            and self._is_reported(query, driver)
            and not self._reads(query, driver)
        ):
            raise Violation("P1", f"{query.key} has read no rows for {hungry:.0f} s")
        if QUERY_FLAPPING in open_ones or is_held:
            # A query that keeps failing is not healthy before its restart window has passed, and an
            # alert that is held open ends later than any of these histories.
            self._fed.pop(query.key, None)
            return
        if NAME not in open_ones or now - query.fed_at > query.spec.every + 2 * query.spec.takes:
            self._fed.pop(query.key, None)
            return
        fed = self._fed[query.key] = self._fed.get(query.key, 0.0) + TICK_SECONDS
        if fed > recovery_seconds(query) + self._stage.longest_delay + SLACK_SECONDS:
            raise Violation("P3", f"{query.key} has read rows for {fed:.0f} s, and {NAME} is open")

    def _promised(self, query: SimQuery, driver: SimDriver) -> float:
        windows = [
            health.window_seconds or 0.0
            for label, health in driver.worker.evaluated.evaluation.health.items()
            if driver.owners.get(label) == query.key
        ]
        least = max([query.spec.expected_input, *windows])
        return least + SLACK_SECONDS + SEEN_SECONDS + self._stage.longest_delay

    @staticmethod
    def _reads(query: SimQuery, driver: SimDriver) -> bool:
        """Whether a batch is in flight, which reads rows and reports them at its end."""
        run = driver.spark.living.get(query.key)
        return run is not None and run.busy and run.data

    @staticmethod
    def _is_unknown(query: SimQuery, driver: SimDriver) -> bool:
        """Whether the start of its run was lost: events before the first poll are ignored."""
        return driver.bus.start_unknown_until.get(query.key, -inf) >= query.started_at

    @staticmethod
    def _is_reported(query: SimQuery, driver: SimDriver) -> bool:
        """Whether an event reported its last rows: otherwise there may have been more."""
        return driver.bus.lost_until.get(query.key, -inf) < query.fed_at


class Losing(Property):
    """Checks that a topic which was created again under its query is reported in time."""

    def __init__(self, stage: WorldView) -> None:
        super().__init__(stage)
        self._unknown: dict[tuple[str, str], float] = {}
        """How long a working receiver has not been notified of it."""

    def tick(self) -> None:
        for query in self._stage.queries.values():
            for receiver in self._stage.receivers:
                place = (query.key, receiver.name)
                if not self._must_be_known(query, receiver):
                    self._unknown.pop(place, None)
                    continue
                unknown = self._unknown[place] = self._unknown.get(place, 0.0) + TICK_SECONDS
                if unknown > NOTIFIED_SECONDS + SEEN_SECONDS:
                    raise Violation(
                        "P1",
                        f"the topic of {query.key} was created again, and {receiver.name} has "
                        "notified nobody",
                    )

    def _must_be_known(self, query: SimQuery, receiver: SimReceiver) -> bool:
        """Whether polls of this process show it, and nobody was notified of it yet."""
        driver, source = self.driver_of(query), query.source
        if source.recreated_at is None or query.spec.name is None or self.has_namesake(query):
            return False
        first, now = driver.probe.topics.get(query.key), self._stage.time.now
        awake_since = max(driver.awake_since, driver.spark.paused_until)
        run, report = driver.spark.living.get(query.key), driver.probe.sources
        is_polled = run is not None and report is not None and run.run_id in report.polls
        is_polled &= driver.attached and driver.awake and is_seen(driver, query.key)
        shown = is_polled and now - awake_since >= NOTIFIED_SECONDS
        if not shown or first in (None, source.topic_id):
            return False
        silenced = self._stage.silences.covered(query.spec, DATA_LOSS_RISK, now - 30.0, now)
        # An alert of the whole driver suppresses it.
        whole = any(incident.query == WHOLE_DRIVER for incident in driver.handing.open)
        rejected = any((query.key, DATA_LOSS_RISK) in sent.named for sent in receiver.rejected)
        if silenced or whole or rejected or not is_up(receiver, source.recreated_at):
            return False
        said = any((query.key, DATA_LOSS_RISK) in note.named for note in receiver.notifications)
        return not said and not self.holds(receiver, query, frozenset({DATA_LOSS_RISK}))
