"""P1 and P4: an unhealthy query, or one that cannot be read, is reported to a person in time."""

from __future__ import annotations

from math import inf

from querypulse.alerting.incidents.lifecycle import GROUP_SECONDS
from querypulse.alerting.kinds import (
    DRIVER_DOWN,
    MONITORING_DEGRADED,
    OFFSETS_REWOUND,
    QUERY_FLAPPING,
    QUERY_STOPPED,
)
from querypulse.alerting.policy import RESTART_WINDOW_SECONDS, Limits
from querypulse.alerting.rules.query_ends import EXPLAINS_SECONDS
from querypulse.exporter.pages import Notice
from querypulse.listener.probe_report import Context
from querypulse.listener.state.identity import UNNAMED
from querypulse.watch.tracker import TERMINATED_AFTER_SECONDS

from .clock import BEGIN
from .driver import WHOLE_DRIVER, SimDriver
from .outside import GONE_AFTER_SECONDS, POLL_SECONDS
from .promises import (
    DEATH_SECONDS,
    GONE_SECONDS,
    START_GRACE_SECONDS,
    batch_window_seconds,
    is_reported,
    promised_seconds,
)
from .queries import SimQuery
from .receivers import Notification, Open, SimReceiver
from .stage import (
    RESOLVE_SECONDS,
    SAYS,
    SEEN_SECONDS,
    TICK_SECONDS,
    Property,
    Violation,
    WorldView,
    is_of_unnamed,
    is_seen,
    is_up,
    recovery_seconds,
)
from .truth import OF_SOURCE, WARNINGS, Episode, Health

UNREAD_SECONDS = START_GRACE_SECONDS + 24.0
"""The start grace, which is longer than the stall floor."""


class Seeing(Property):
    """Counts how long a checkpoint that must be read is unreadable."""

    def __init__(self, stage: WorldView) -> None:
        super().__init__(stage)
        self._unread: dict[tuple[SimDriver, str], float] = {}

    def tick(self) -> None:
        """Check that a log that decides about a stall is read, or that an alert reports it."""
        self._unread = {
            (driver, run_id): self._unread.get((driver, run_id), 0.0) + TICK_SECONDS
            for driver in self._stage.drivers.values()
            for run_id in _unreadable(driver)
        }
        for (driver, _), waited in self._unread.items():
            if waited > UNREAD_SECONDS and not _is_reported(driver):
                raise Violation("P1", "a checkpoint cannot be read, and no alert reports it")


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
        alert.name == MONITORING_DEGRADED
        or (alert.labels["query"] == WHOLE_DRIVER and alert.labels["severity"] == "critical")
        for alert in driver.lifecycle.alerts
    )


# -- reaching ------------------------------------------------------------------------------------


BECOMES_CRITICAL = frozenset({Health.STUCK, Health.SLOW, Health.DELAYED})
"""Conditions for which a warning must become critical."""
DOWN_SECONDS = GONE_AFTER_SECONDS + 3 * POLL_SECONDS + 5.0


class Reaching(Property):
    """Counts, per episode and receiver, the time in which a notification was possible."""

    def __init__(self, stage: WorldView) -> None:
        super().__init__(stage)
        self._down: dict[str, float] = {}
        self._terminated: set[str] = set()
        """The names of drivers whose last but one process, or last, was ended by a signal."""

    def tick(self) -> None:
        """Check that each query that is unhealthy for longer than promised is reported."""
        for query in self._stage.queries.values():
            episode = query.truth.episode
            if episode is not None:
                # The episode remembers the longest window, also when nothing asks for it now.
                batch_window_seconds(self.driver_of(query), query, episode)
                for receiver in self._stage.receivers:
                    self._check(query, episode, receiver)
                    if episode.health in BECOMES_CRITICAL:
                        self._check(query, episode, receiver, critical=True)
        self._check_drivers()
        self._check_exits()

    def _check(
        self, query: SimQuery, episode: Episode, receiver: SimReceiver, *, critical: bool = False
    ) -> None:
        answered = f"{receiver.name}, critical" if critical else receiver.name
        if answered in episode.answered:
            return
        if self._is_known(query, episode, receiver, critical=critical):
            episode.answered.add(answered)
            episode.notified |= self._is_notified(query, episode, receiver, critical=critical)
            return
        driver = self.driver_of(query)
        if not self._can_see(driver, query, episode):
            return
        rejected = self._is_rejected(query, episode, receiver)
        rejected = rejected or self._is_refused_for_good(driver, query, receiver)
        takes = is_up(receiver, self._incident_began_at(query, episode)) and not rejected
        which = answered if takes else f"{answered} is out"
        waited = episode.waited[which] = episode.waited.get(which, 0.0) + TICK_SECONDS
        promised = promised_seconds(self._stage, driver, query, episode, critical=critical)
        promised += self._held_seconds(driver)
        if any(self._stage.silences.covers(query.spec, name) for name in SAYS[episode.health]):
            # An alert that still holds when the silence ends is sent then.
            waited = episode.waited[which] = min(waited, max(0.0, promised - DEATH_SECONDS))
        if waited <= promised:
            return
        if not takes:
            self._check_counted(driver, receiver, query)
            return
        raise Violation(
            self._which(driver, query),
            f"{query.key} is {episode.health.value} since {episode.began_at - BEGIN:.1f} s, "
            f"promised within {promised:.0f} s, and {answered}, notified nobody",
        )

    def _held_seconds(self, driver: SimDriver) -> float:
        """How much later it is reported because of other alerts."""
        # An alert of the whole driver suppresses others until it has resolved.
        whole = RESOLVE_SECONDS if self._is_whole(driver) else 0.0
        # The second query that fails for one cause waits for a third one.
        return whole + (GROUP_SECONDS if len(driver.queries) > 1 else 0.0)

    def _can_see(self, driver: SimDriver, query: SimQuery, episode: Episode) -> bool:
        awake = driver.awake and driver.time.now - driver.awake_since >= DEATH_SECONDS
        # A query that stops shortly before all others belongs to the end of the application.
        ends = driver.spark.context is Context.STOPPED_BY_APPLICATION
        if not awake or not driver.attached or driver.attached_at > episode.began_at:
            return False
        if episode.health is Health.GONE and (ends or self._is_forgotten(driver, episode)):
            return False
        if episode.health in OF_SOURCE:
            # Only events report offsets.
            lost = driver.bus.lost_until.get(query.key, 0.0) >= episode.began_at
            if episode.health is Health.REWOUND:
                # A process must have seen the offsets before.
                seen = query.truth.healths_between(driver.attached_at, episode.began_at)
                lost |= Health.HEALTHY not in seen
            return not lost and is_seen(driver, query.key)
        if episode.health is not Health.DEAD:
            # An event shows the end of a run as well as a poll does.
            ended = driver.probe.ends.get(query.key, 0.0) >= episode.began_at
            ended |= driver.bus.lost_until.get(query.key, 0.0) < episode.began_at
            shown = is_seen(driver, query.key) or (episode.health is Health.GONE and ended)
            return shown and self._was_introduced(driver, query)
        if is_reported(driver, query, episode):
            return True
        # A finite run that has vanished may have completed, and each start has a grace.
        waits = driver.time.now - query.started_at < GONE_SECONDS
        unknown = query.spec.is_finite or waits
        return not unknown and self._is_expected(driver, query, episode)

    def _is_forgotten(self, driver: SimDriver, episode: Episode) -> bool:
        """Whether so many queries have failed or stopped since that this one is not remembered."""
        later = [
            query for query in driver.queries
            if any(
                other.health in (Health.DEAD, Health.GONE) and other.began_at > episode.began_at
                for other in query.truth.episodes
            )
        ]  # fmt: skip
        return len(later) >= self._stage.plan.setup.memory

    @staticmethod
    def _was_introduced(driver: SimDriver, query: SimQuery) -> bool:
        """Whether a start event or a poll has shown the run, and so whether it ends by itself."""
        polled = driver.probe.answered.get(query.key, -inf) >= query.started_at
        return polled or query.started_at >= driver.attached_at

    @staticmethod
    def _is_expected(driver: SimDriver, query: SimQuery, episode: Episode) -> bool:
        """Whether the run was known, and polls no longer show it."""
        report = driver.probe.latest
        fresh = report is not None and driver.time.now - report.at <= SEEN_SECONDS
        shown = driver.worker.evaluated.snapshot.queries
        mine = [other for other in shown if driver.owners.get(other.label) == query.key]
        began = any(other.run.started_at >= query.started_at - TICK_SECONDS for other in mine)
        return fresh and began and driver.probe.answers and query.key not in driver.spark.living

    def _is_known(
        self, query: SimQuery, episode: Episode, receiver: SimReceiver, *, critical: bool = False
    ) -> bool:
        # Of a query that flaps, nothing else is reported.
        names = SAYS[episode.health] | {QUERY_FLAPPING}
        if episode.health is Health.SLOW:
            # Of two warnings the one about data is reported; a batch that stays slow is critical.
            names |= {OFFSETS_REWOUND}
        return self._is_notified(query, episode, receiver, critical=critical) or any(
            held.severity == "critical" or not critical
            for held in (
                *self.holds(receiver, query, names), *self._not_listed(receiver, query, names)
            )
        )  # fmt: skip

    def _not_listed(
        self, receiver: SimReceiver, query: SimQuery, names: frozenset[str]
    ) -> list[Open]:
        """The open incidents about more unnamed queries than they list: it may be one of those."""
        is_cut = any(
            alert.query == UNNAMED and alert.name in names
            and "\nand " in alert.annotations.get("queries", "")
            for alert in self.driver_of(query).lifecycle.alerts
        )  # fmt: skip
        if query.spec.name is not None or not is_cut:
            return []
        return [held for held in receiver.open.values() if is_of_unnamed(held.key)]

    def _is_notified(
        self, query: SimQuery, episode: Episode, receiver: SimReceiver, *, critical: bool
    ) -> bool:
        says = SAYS[episode.health]
        for note in reversed(receiver.notifications):
            if note.at < episode.began_at - 1.0:
                return False
            if episode.health is Health.GONE and self._is_about_context(note, query):
                return True
            loud = note.severity == "critical" or not critical
            if loud and any(key == query.key and name in says for key, name in note.named):
                return True
        return False

    def _is_about_context(self, note: Notification, query: SimQuery) -> bool:
        """Whether it reports that the SparkContext of the query, or the program, has ended by itself.

        A person who reads that knows that every query is gone, also those that it does not list yet.
        """
        driver = self.driver_of(query)
        ended = driver.spark.context is Context.STOPPED or driver.program is not None
        stopped = ended and note.driver == driver.name
        return stopped and (WHOLE_DRIVER, QUERY_STOPPED) in note.named

    def _incident_began_at(self, query: SimQuery, episode: Episode) -> float:
        """When the incident began: a problem within the resolve time joins it, if it is as severe."""
        if query.spec.name is None:
            # Unnamed queries share one, and one that never returns keeps it open.
            unnamed = (query for query in self._stage.queries.values() if query.spec.name is None)
            return min(episode.began_at for query in unnamed for episode in query.truth.episodes)
        first = episode
        episodes = query.truth.episodes
        for before in reversed(episodes[: episodes.index(episode)]):
            goes_on = (before.health in WARNINGS) == (episode.health in WARNINGS)
            if not goes_on or first.previous >= recovery_seconds(query):
                break
            first = before
        # So does one of a query that flaps.
        window, budget = RESTART_WINDOW_SECONDS, Limits().restart_budget
        lately = [
            failure.at
            for failure in query.failures
            if 0.0 <= episode.began_at - failure.at <= window
        ]
        return min([first.began_at, *lately]) if len(lately) >= budget else first.began_at

    @staticmethod
    def _is_rejected(query: SimQuery, episode: Episode, receiver: SimReceiver) -> bool:
        return any(
            message.at >= episode.began_at - 1.0
            and any(key == query.key for key, _ in message.named)
            for message in receiver.rejected
        )

    @staticmethod
    def _is_refused_for_good(driver: SimDriver, query: SimQuery, receiver: SimReceiver) -> bool:
        """Whether the receiver has rejected the open incident about it.

        Another alert that joins it does not make a new message: the rejected incident is not sent
        again, is counted, and goes to a fallback.
        """
        courier = next(courier for courier in driver.couriers if courier.receiver is receiver)
        return any(
            key == query.key
            for row in courier.rows
            if row.dead and not row.is_over
            for alert in row.incident.firing
            for key, _ in driver.about(alert)
        )

    def _which(self, driver: SimDriver, query: SimQuery) -> str:
        """P4 if an alert of the whole driver is open or a namesake exists, otherwise P1."""
        return "P4" if self._is_whole(driver) or self.has_namesake(query) else "P1"

    @staticmethod
    def _is_whole(driver: SimDriver) -> bool:
        """Whether a critical alert of the whole driver is open, which suppresses others."""
        return any(
            alert.labels["query"] == WHOLE_DRIVER and alert.labels["severity"] == "critical"
            for alert in driver.lifecycle.alerts
        )

    def _check_counted(self, driver: SimDriver, receiver: SimReceiver, query: SimQuery) -> None:
        """Check that an outage of a receiver is counted; only then it excuses a missing page."""
        courier = next(courier for courier in driver.couriers if courier.receiver is receiver)
        failed = sum(courier.outcomes.values()) - courier.outcomes["delivered"]
        # An alert that an earlier process counted as rejected is shown as not delivered.
        refused = any(row.dead for row in courier.rows)
        if not failed and not refused and not courier.losses.total() and courier.pending == 0:
            raise Violation(
                "P8", f"{receiver.name} is down, {query.key} is unhealthy, and nothing counts it"
            )

    def _check_drivers(self) -> None:
        now, watched = self._stage.time.now, self._stage.plan.setup.watched
        for name, driver in self._stage.drivers.items():
            down = [query for query in driver.queries if query.truth.health is Health.DOWN]
            inside = driver.attached and driver.awake and not driver.spark.alive
            # Long enough for a poll of the watcher.
            seen = bool(down) and driver.attached_at + POLL_SECONDS <= down[0].truth.since
            visible = inside or (watched and seen and not driver.attached)
            silent = self._stage.silences.covers(None, DRIVER_DOWN)
            received = down and all(
                is_up(receiver, _reported_since(driver, down[0]))
                for receiver in self._stage.receivers
            )
            # Drivers of one app name share the key of this alert; the watcher keeps them apart.
            others = (other for other in self._stage.drivers.values() if other is not driver)
            apart = watched or all(driver.alive and driver.spark.alive for driver in others)
            received = received and apart
            if not received or not visible or silent:
                self._down.pop(name, None)
                continue
            since = self._down.setdefault(name, now)
            if now - since > self._down_seconds(driver, since) and not self._knows_down(
                down[0], since
            ):
                raise Violation("P1", f"driver {name} is down, and nobody was notified")

    def _check_exits(self) -> None:
        """Check that problems at the end of a driver are reported: there is no later chance."""
        for driver in self._stage.drivers.values():
            closed_at = driver.closed_at
            is_bad = driver.spark.context is Context.STOPPED or driver.program is not None
            if closed_at is None or not is_bad:
                continue
            if self._stage.time.now - closed_at < DOWN_SECONDS:
                continue
            for query in driver.queries:
                episode = query.truth.episode
                if episode is not None and self._must_know_gone(driver, query, episode):
                    self._check_exit(query, episode, closed_at)

    def _must_know_gone(self, driver: SimDriver, query: SimQuery, episode: Episode) -> bool:
        """Whether the query stopped while its driver could report it."""
        in_time = driver.attached_at <= episode.began_at <= (driver.closed_at or 0.0)
        if episode.health is not Health.GONE or not in_time:
            return False
        if not self._is_end_shown(driver, episode) or self._is_whole(driver):
            return False
        closed_at = driver.closed_at or 0.0
        if driver.program is not None and _fails_fast(driver, closed_at):
            return False
        return not any(
            self._stage.silences.covered(query.spec, name, closed_at - TICK_SECONDS, closed_at)
            for name in SAYS[Health.GONE]
        )

    def _check_exit(self, query: SimQuery, episode: Episode, closed_at: float) -> None:
        # With a spool, undelivered messages wait for the next process.
        up = [
            receiver
            for receiver in self._stage.receivers
            if is_up(receiver, episode.began_at)
            and receiver.is_up_from < closed_at
            and not self._is_rejected(query, episode, receiver)
        ]
        if up and not any(self._is_known(query, episode, receiver) for receiver in up):
            raise Violation("P1", f"{query.key} was gone when its driver closed")

    @staticmethod
    def _is_end_shown(driver: SimDriver, episode: Episode) -> bool:
        """Whether a poll showed it: an event does not say why the SparkContext has stopped.

        The end of the main program is known without.
        """
        if driver.program is not None and driver.spark.context is not Context.STOPPED:
            return True
        report = driver.probe.latest
        return report is not None and report.began_at > episode.began_at

    def _knows_down(self, query: SimQuery, since: float) -> bool:
        born_at = self.driver_of(query).born_at
        # A driver killed again before its last alert has resolved opens no other incident.
        lasts = since - born_at < RESOLVE_SECONDS + DOWN_SECONDS
        # So does one that crashes as it wakes up from a pause.
        down_at = min(since, query.truth.since)
        lasts |= any(end >= down_at - DOWN_SECONDS for _, end in query.truth.unseen)
        # A message may have been rejected before the receiver counts as working again.
        refused_from = down_at - 1.0
        return all(
            any(note.at >= refused_from and (query.key, name) in note.named
                for note in receiver.notifications for name in SAYS[Health.DEAD])
            or any((lasts or message.at >= refused_from) and (query.key, name) in message.named
                   for message in receiver.rejected for name in SAYS[Health.DEAD])
            or bool(self.holds(receiver, query, SAYS[Health.DEAD]))
            for receiver in self._stage.receivers
        )  # fmt: skip

    def _down_seconds(self, driver: SimDriver, since: float) -> float:
        """The promised time until a driver is reported down; longer if it may restart.

        The watcher may not have seen a process that lived only for a moment after that.
        """
        may_restart = any(incident.is_critical for incident in driver.handing.open)
        if driver.end is Notice.TERMINATED or may_restart:
            self._terminated.add(driver.name)
        elif since - driver.attached_at > 2 * POLL_SECONDS:
            self._terminated.discard(driver.name)
        late = TERMINATED_AFTER_SECONDS if driver.name in self._terminated else 0.0
        return DOWN_SECONDS + late


def _fails_fast(driver: SimDriver, closed_at: float) -> bool:
    """Whether a failure of the last minute, without pauses, explains the end of the main program."""
    for failed_at in (failure.at for query in driver.queries for failure in query.failures):
        asleep = max(0.0, driver.awake_since - max(failed_at, driver.asleep_since))
        if 0.0 <= closed_at - failed_at - asleep <= EXPLAINS_SECONDS:
            return True
    return False


def _reported_since(driver: SimDriver, query: SimQuery) -> float:
    """When the watcher's alert about a driver began: one about a pause may still be open."""
    down_since, awake_since = query.truth.since, driver.awake_since
    opened = awake_since - driver.asleep_since >= GONE_AFTER_SECONDS
    still_open = opened and down_since - awake_since <= RESOLVE_SECONDS + 2 * POLL_SECONDS
    return driver.asleep_since if still_open else down_since
