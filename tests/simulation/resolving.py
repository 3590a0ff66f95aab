"""P3: an incident resolves in time once its queries are healthy, and not before."""

from __future__ import annotations

from math import inf

from querypulse.alerting.alert import is_generic
from querypulse.alerting.delivery.outbox import MISCONFIGURED_WAIT_SECONDS
from querypulse.alerting.incidents.lifecycle import FLAPS
from querypulse.alerting.kinds import (
    DATA_LOSS_RISK,
    DRIVER_DOWN,
    EVENTS_MISSING,
    INPUT_MISSING,
    QUERY_FLAPPING,
    QUERY_MISSING,
)
from querypulse.alerting.policy import Limits
from querypulse.alerting.receivers.alertmanager import ABANDONED_SECONDS
from querypulse.alerting.receivers.http import GONE_WAIT_SECONDS
from querypulse.listener.probe_report import Context

from .driver import WHOLE_DRIVER, SimDriver
from .promises import is_reported
from .queries import SimQuery
from .receivers import Closed, Named, Open, SimReceiver
from .stage import (
    RESOLVE_SECONDS,
    TICK_SECONDS,
    Property,
    Violation,
    WorldView,
    forgets,
    is_end_unreported,
    is_of_all,
    is_of_unnamed,
    is_seen,
    is_up,
    recovery_seconds,
)
from .truth import OF_SOURCE, WARNINGS, Episode, Health, Truth

FLAPPING_SECONDS = 600.0 + 15 * 60.0
"""The restart window, and the recovery time of a flapping query."""
SLACK_SECONDS = 12.0
"""By how much the monitor may detect something later than it happened."""
WINDOW_SECONDS = 150.0
GONE_GRACE_SECONDS = 60.0
LAPSE_SECONDS = 250.0
SLOW_SECONDS = 20.0
"""Two messages to a slow receiver."""
PROVEN_SECONDS = RESOLVE_SECONDS - 8.0
SLOWLY_KNOWN = OF_SOURCE | {Health.STUCK, Health.DELAYED, Health.SLOW}
SEVERE = frozenset({Health.DEAD, Health.GONE})
"""Conditions that are known at once; a stuck query is known after its stall window."""


class Resolving(Property):
    def __init__(self, stage: WorldView) -> None:
        super().__init__(stage)
        self._calm: dict[tuple[str, str, float], float] = {}
        self._early: list[tuple[SimReceiver, Closed, Violation]] = []
        """Resolves that were too early, unless the incident opens again at once."""
        self._forgetful: set[SimDriver] = set()
        """Drivers in which more queries have ended than are remembered."""

    def tick(self) -> None:
        self._forgetful |= {
            driver for driver in self._stage.drivers.values() if forgets(self._stage, driver)
        }
        for receiver in self._stage.receivers:
            self._check_reopened(receiver)
            for closed in self.new(receiver, "closed"):
                self._check_end(receiver, closed)
                self._check_end_by_watch(receiver, closed)
            for held in receiver.open.values():
                self._check_open(receiver, held)

    def _check_open(self, receiver: SimReceiver, held: Open) -> None:
        shown = self._content(held)
        keys = {key for key, _ in shown if key != WHOLE_DRIVER}
        keys |= self._of_earlier(held, keys)
        # Each process counts the recovery from its own start.
        born_at = max(driver.born_at for driver in self._stage.drivers.values())
        # A problem may be shorter than a tick.
        failed_at = max(map(self._unhealthy_at, keys), default=-inf)
        place = (receiver.name, held.key, max(born_at, held.opened_at, failed_at))
        names = {name for _, name in shown}
        if names & {INPUT_MISSING, DATA_LOSS_RISK}:
            # A query that reads nothing is healthy; ``feeding`` checks when the incident ends. What
            # is lost is shown for an hour.
            return
        absent = QUERY_MISSING in names
        down = DRIVER_DOWN in names and not all(
            driver.attached and driver.spark.alive for driver in self._stage.drivers.values()
        )
        if any(self._cannot_be_known(key) for key in keys):
            return
        down |= EVENTS_MISSING in names and self._drops_events()
        down |= self._is_of_others(held)
        healthy = all(self._is_healthy(key, expected=absent) for key in keys)
        if down or not keys or not healthy or any(map(self._was_missed, keys)):
            self._calm.pop(place, None)
            return
        active = self._must_be_active(held, keys)
        if not is_up(receiver, held.opened_at) or not all(self._is_seen(q.key) for q in active):
            return
        if self._is_forgiven(receiver, held):
            return
        calm = self._calm[place] = self._calm.get(place, 0.0) + TICK_SECONDS
        bound = max(map(recovery_seconds, active))
        bound += self._stage.longest_delay + self._closing_seconds(receiver, held)
        # Polls show the begin of the recovery late, and its end.
        bound += 4 * self._stage.plan.setup.polls
        bound += _rejected_seconds(receiver, held)
        bound += max(self._unreported_seconds(query) for query in active)
        bound += max(self._restarted_seconds(query, calm) for query in active)
        if held.held or self._flaps(receiver, keys):
            bound += max(FLAPPING_SECONDS, *(self._cycles_seconds(key) for key in keys))
        if calm > bound:
            raise Violation(
                "P3",
                f"{held.key} is open at {receiver.name}, though {', '.join(sorted(keys))} "
                f"has been healthy for {calm:.0f} s (promised: {bound:.0f} s)",
            )

    def _content(self, held: Open) -> Named:
        """What it shows, and what has joined it since: that is no reason to send it again."""
        joined = (
            driver.about(alert)
            for driver in self._stage.drivers.values()
            for incident in driver.handing.open
            if incident.key == held.key
            for alert in incident.firing
        )
        return held.shown.union(*joined)

    def _unhealthy_at(self, key: str) -> float:
        query = self._stage.queries.get(key)
        episodes = query.truth.episodes if query is not None else []
        return episodes[-1].began_at if episodes else -inf

    def _unreported_seconds(self, query: SimQuery) -> float:
        """How long after its restart no event shows that it is healthy: a commit was lost."""
        lost_until = self.lost_until(query)
        return query.spec.every if lost_until >= query.truth.since else 0.0

    def _restarted_seconds(self, query: SimQuery, calm: float) -> float:
        """How much later a recovery is proven because of runs that ended in their first epoch."""
        if not query.spec.is_continuous:
            return 0.0
        began_at = self._stage.time.now - calm
        return query.spec.every * sum(run.started_at > began_at for run in query.runs)

    def _must_be_active(self, held: Open, keys: set[str]) -> list[SimQuery]:
        """The queries that must show life: of the unnamed ones, which share an alert, all."""
        shared = is_of_unnamed(held.key)
        return [
            query
            for query in self._stage.queries.values()
            if query.key in keys or (shared and query.spec.name is None)
        ]

    def _drops_events(self) -> bool:
        """Whether a driver's alert about dropped events is still right."""
        newest = max(driver.bus.lost_at for driver in self._stage.drivers.values())
        return self._stage.time.now - newest <= Limits().stall_floor_seconds

    def _cycles_seconds(self, key: str) -> float:
        """The duration of the query's newest cycles of failures: recovery takes as long."""
        begins = [episode.began_at for episode in self._stage.queries[key].truth.episodes]
        return begins[-1] - begins[-FLAPS:][0] if begins else 0.0

    def _is_of_others(self, held: Open) -> bool:
        """Whether it is the shared alert of unnamed queries, and one of them needs it."""
        unnamed = [query for query in self._stage.queries.values() if query.spec.name is None]
        needed = any(query.truth.health.is_bad or query.is_lost for query in unnamed)
        return is_of_unnamed(held.key) and needed

    def _cannot_be_known(self, key: str) -> bool:
        """Whether no signal can show that it is healthy: its last event was lost."""
        query = self._stage.queries.get(key)
        if query is None:
            return False
        return query.is_lost or is_end_unreported(self._stage, query)

    def _was_missed(self, key: str) -> bool:
        """Whether a poll has just lacked its run: its recovery begins again."""
        query = self._stage.queries.get(key)
        if query is None:
            return False
        missed_at = self.driver_of(query).probe.missed.get(key, -inf)
        return self._stage.time.now - missed_at <= TICK_SECONDS + 2 * self._stage.plan.setup.polls

    def _flaps(self, receiver: SimReceiver, keys: set[str]) -> bool:
        """Whether a query flaps: it is not healthy before its restart window has passed."""
        open_ones = [self._content(held) for held in receiver.open.values()]
        open_ones += [
            driver.about(alert)
            for driver in self._stage.drivers.values()
            for incident in driver.handing.newest
            for alert in incident.alerts
        ]
        return any(
            name == QUERY_FLAPPING and key in keys
            # Also if this receiver rejected the message about it.
            for named in (*open_ones, *(message.named for message in receiver.rejected))
            for key, name in named
        )

    def _check_end_by_watch(self, receiver: SimReceiver, closed: Closed) -> None:
        """Check that the watcher ends nothing that a driver holds open under the same key."""
        key = closed.incident.key
        if closed.by == "watch" and any(
            incident.is_critical and incident.key == key
            for driver in self._stage.drivers.values()
            if driver.attached
            for incident in driver.handing.open
        ):
            text = f"watch ended {key} at {receiver.name}, which its driver holds open"
            self._early.append((receiver, closed, Violation("P3", text)))

    def _check_end(self, receiver: SimReceiver, closed: Closed) -> None:
        ended = closed.incident
        for key, name in ended.shown:
            query = self._stage.queries.get(key)
            if query is None:
                continue
            driver = self.driver_of(query)
            is_down = not driver.alive and driver.closed_at is None
            # The watcher may send a late resolve for the process before, just as this one ends;
            # so may anybody after an outage. What a driver sent as it was killed arrives.
            slack = self._lateness(receiver) + receiver.latency
            slack += SLACK_SECONDS * (closed.by == "watch")
            down = [q.truth.since for q in driver.queries if q.truth.health is Health.DOWN]
            later = max(down, default=query.truth.since) >= closed.at - slack
            # Drivers of one app name share the key of this alert.
            by_other = closed.by not in {"watch", driver.name}
            if name == DRIVER_DOWN and is_down and not later and not by_other:
                text = f"{ended.key} ended, and driver {driver.name} is down"
                self._early.append((receiver, closed, Violation("P3", text)))
            # The process before has ended what it could as it ended itself.
            is_before = not driver.attached or closed.at < driver.born_at
            if name == DRIVER_DOWN or is_before or driver in self._forgetful:
                continue
            if self._stage.silences.covered(query.spec, name, closed.at - LAPSE_SECONDS, closed.at):
                # A silenced alert is not repeated, and expires at Alertmanager.
                continue
            if any(
                other.over and other.at >= ended.opened_at and (key, name) in other.named
                for other in receiver.rejected
            ):
                # Its earlier resolve was rejected: the present problem is another one.
                continue
            is_meant = _ends_with_critical(receiver, closed, key) or _has_lapsed(receiver, closed)
            why = "" if is_meant else self._too_early(receiver, query, closed)
            if why and not self._is_named_elsewhere(receiver, key, ended, name):
                text = f"{ended.key} ended at {receiver.name}, and {key} {why} ({name})"
                self._early.append((receiver, closed, Violation(self._which(key), text)))

    def _check_reopened(self, receiver: SimReceiver) -> None:
        """Check early resolves: an alert that fires again is sent right after the old resolve."""
        early = [early for early in self._early if early[0] is receiver]
        self._early = [early for early in self._early if early[0] is not receiver]
        for _, closed, violation in early:
            again = receiver.open.get(closed.incident.key)
            if again is not None and again.opened_at >= closed.at:
                continue
            if is_up(receiver) or self._stage.time.now - closed.at > SLOW_SECONDS:
                raise violation
            self._early.append((receiver, closed, violation))

    def _too_early(self, receiver: SimReceiver, query: SimQuery, closed: Closed) -> str:
        """Why the incident of a query ended too early; empty if it did not."""
        truth, at = query.truth, closed.at
        of_driver = any(key == WHOLE_DRIVER for key, _ in closed.incident.shown)
        if of_driver or (query.spec.name is None and not truth.health.is_bad):
            # An alert of the whole driver, or of unnamed queries, resolves by time.
            return ""
        if self._is_of_namesake(query, closed):
            return ""
        if truth.health.is_bad:
            late = SLACK_SECONDS + self._stage.longest_delay + self._lateness(receiver)
            late += WINDOW_SECONDS if truth.health in SLOWLY_KNOWN else 0.0
            late += GONE_GRACE_SECONDS if truth.health is Health.GONE else 0.0
            shown = truth.since < at - late and not self._is_hidden(query, closed)
            return f"is {truth.health.value} since {at - truth.since:.0f} s" if shown else ""
        known_ends = [
            episode.ended_at
            for episode in truth.episodes
            if episode.ended_at is not None
            and (self._could_be_known(query, episode) or self._is_answered(query, episode))
            # A warning does not keep a critical alert open.
            and (episode.health not in WARNINGS or closed.incident.severity != "critical")
            and not self._was_short(truth, episode)
            # A resolve that an outage delayed is about the problem before this one.
            and episode.began_at < at - self._lateness(receiver)
        ]
        if not known_ends:
            return ""
        finite = query.spec.is_finite
        calm = at - truth.shows_life_after(max(known_ends), ends_by_itself=finite)
        return f"has recovered {calm:.0f} s ago only" if calm < PROVEN_SECONDS else ""

    def _is_of_namesake(self, query: SimQuery, closed: Closed) -> bool:
        """Whether a new process may have given the label to the other query of the name."""
        born_at = self.driver_of(query).born_at
        mine = (query.spec.name, query.spec.driver)
        same = [q for q in self._stage.queries.values() if (q.spec.name, q.spec.driver) == mine]
        return bool(query.spec.name) and len(same) > 1 and closed.incident.opened_at < born_at

    def _is_hidden(self, query: SimQuery, closed: Closed) -> bool:
        """Whether the process that resolved the incident could not know the present problem."""
        truth, born_at = query.truth, self.driver_of(query).born_at
        lost_until = self.lost_until(query)
        lost = query.spec.is_finite and lost_until >= truth.since
        # No signal shows how a run has ended that ends by itself.
        lost |= is_end_unreported(self._stage, query) or self._failed_unseen_after_stop(query)
        if truth.health is Health.DEAD and lost:
            return True
        context = self.driver_of(query).spark.context
        if truth.health is Health.GONE and context is Context.STOPPED_BY_APPLICATION:
            # The application's own ``spark.stop()`` is a planned stop, also of what stopped before.
            return True
        if truth.health in WARNINGS and closed.incident.severity == "critical":
            return True
        driver = self.driver_of(query)
        unknown = closed.incident.opened_at < born_at and not driver.inherits
        if truth.health is Health.SLOW and unknown:
            # The first batch of a process may be catching up, which is not reported for long.
            return True
        if query.spec.name is None and max(truth.since, query.started_at) < born_at:
            # A new process cannot know which of the unnamed queries was meant.
            return True
        # An incident of an earlier process is resolved late; by then there may be another problem.
        return closed.incident.opened_at < born_at <= truth.since - PROVEN_SECONDS

    def _failed_unseen_after_stop(self, query: SimQuery) -> bool:
        """Whether the last run that any signal has shown was stopped as planned.

        The events of the next one, which failed, were lost, and it failed before a poll saw it.
        """
        truth, driver = query.truth, self.driver_of(query)
        before = [health for _, health in truth.timeline[-3:-1]]
        shown = truth.episode is not None and is_reported(driver, query, truth.episode)
        polled = driver.probe.answered.get(query.key, -inf) >= query.started_at
        return before == [Health.STOPPED, Health.STARTING] and not shown and not polled

    @staticmethod
    def _was_short(truth: Truth, episode: Episode) -> bool:
        """Whether its driver saw it for less than its window, or than the grace of a stop."""
        lasted = truth.seen_between(episode.began_at, episode.ended_at or episode.began_at)
        if episode.health is Health.GONE:
            return lasted < GONE_GRACE_SECONDS
        # A long batch before it may have taught the monitor a longer window.
        window = max(WINDOW_SECONDS, episode.batch_window)
        return episode.health in SLOWLY_KNOWN and lasted < window

    def _could_be_known(self, query: SimQuery, episode: Episode) -> bool:
        """Whether it is known at once, and its event was not lost."""
        driver = self.driver_of(query)
        received = driver.bus.lost_until.get(query.key, 0.0) < episode.began_at
        return episode.health in SEVERE and received and driver.attached_at <= episode.began_at

    def _is_answered(self, query: SimQuery, episode: Episode) -> bool:
        """Whether it was reported; an open incident may answer a failure that nothing has shown."""
        driver = self.driver_of(query)
        shown = episode.health is not Health.DEAD or is_reported(driver, query, episode)
        shown |= episode.notified
        return bool(episode.answered) and shown and not query.spec.is_finite

    def _is_named_elsewhere(self, receiver: SimReceiver, key: str, ended: Open, name: str) -> bool:
        """Whether another incident is about it: then one alert has replaced another.

        A message that the receiver rejected is counted as lost, and has replaced it all the same.
        """
        for other in receiver.open.values():
            if other.key != ended.key and any(named == key for named, _ in other.shown):
                return True
        for refused in receiver.rejected:
            news = refused.key != ended.key and not refused.over and refused.at >= ended.opened_at
            if news and any(named == key for named, _ in refused.named):
                return True
        return any(
            named == key
            for driver in self._stage.drivers.values()
            if driver.attached
            for incident in driver.handing.open
            for alert in incident.firing
            for named, other in driver.about(alert)
            if (name != other if receiver.capabilities.groups_itself else incident.key != ended.key)
        )

    def _which(self, key: str) -> str:
        """P4 if a namesake exists, which hid this query's problem; otherwise P3."""
        return "P4" if self.has_namesake(self._stage.queries[key]) else "P3"

    def _is_healthy(self, key: str, *, expected: bool) -> bool:
        query = self._stage.queries.get(key)
        if query is None or query.truth.health in (Health.STARTING, Health.MOVING):
            return False
        if self._stage.time.now < query.starve_until:
            # A batch that waits for executors shows no health, even while that is no problem.
            return False
        driver = self.driver_of(query)
        unseen = query.truth.health is Health.STOPPED and query.started_at < driver.born_at
        if unseen or (expected and query.started_at < driver.attached_at):
            # Nothing shows that it is healthy: an incident of an earlier driver waits for a day.
            return False
        return query.truth.healthy_since is not None

    def _is_seen(self, key: str) -> bool:
        query = self._stage.queries[key]
        driver = self.driver_of(query)
        if query.truth.health is Health.STOPPED:
            return driver.attached and driver.awake
        return is_seen(driver, key)

    def _is_forgiven(self, receiver: SimReceiver, held: Open) -> bool:
        """Whether an earlier process without a spool has left it open, and it cannot be resolved."""
        driver = self._stage.drivers.get(held.driver)
        if driver is None or held.opened_at >= driver.born_at or driver.inherits:
            return False
        if held.starts_at > self._stage.time.wall():
            # The clock was set back: it seems to have begun after this process.
            return True
        # One that keeps no state takes no ends of what an earlier process left; under a generic
        # name, the incident may belong to another driver.
        return receiver.capabilities.orphan_after_seconds is None or is_generic(driver.app)

    def _of_earlier(self, held: Open, keys: set[str]) -> set[str]:
        """Who else must be healthy before an incident ends that an earlier process has left open.

        All queries of the driver, for a group; for a query, all of its name: the label may be
        that of another one now.
        """
        driver = self._stage.drivers.get(held.driver)
        if driver is None or held.opened_at >= driver.born_at:
            return set()
        names = {query.spec.name for query in driver.queries if query.key in keys} - {None}
        is_group = is_of_all(held.key)
        return {query.key for query in driver.queries if is_group or query.spec.name in names}

    def _closing_seconds(self, receiver: SimReceiver, held: Open) -> float:
        """How much later an incident of an earlier process without a spool resolves."""
        driver = self._stage.drivers.get(held.driver)
        if driver is None or held.opened_at >= driver.born_at or driver.inherits:
            return 0.0
        return 0.0 if receiver.kind == "pagerduty" else ABANDONED_SECONDS + 10.0

    @staticmethod
    def _lateness(receiver: SimReceiver) -> float:
        return 0.0 if is_up(receiver) else 330.0 + receiver.trouble_seconds


def _ends_with_critical(receiver: SimReceiver, closed: Closed, key: str) -> bool:
    """Whether a warning ends with the critical incident that it was a part of.

    Of what only recovers, nothing is left to say when that incident ends.
    """
    return closed.incident.severity == "warning" and any(
        other.incident.severity == "critical"
        and abs(other.at - closed.at) <= TICK_SECONDS
        and any(named == key for named, _ in other.incident.shown)
        for other in receiver.closed
    )


def _has_lapsed(receiver: SimReceiver, closed: Closed) -> bool:
    """Whether an Alertmanager ended it that said it was gone for good: it is asked in an hour."""
    was_gone = receiver.gone_until > closed.at - GONE_WAIT_SECONDS
    return was_gone and (closed.at, closed.incident.key) in receiver.lapsed


def _rejected_seconds(receiver: SimReceiver, held: Open) -> float:
    """How much later it resolves if the receiver rejected its resolve, which is sent again."""
    rejected = any(
        # A receiver that cuts connections may show the incident only after that.
        rejected.over
        and rejected.at >= held.opened_at - SLOW_SECONDS
        and (rejected.key == held.key or rejected.named & held.shown)
        for rejected in receiver.rejected
    )
    return MISCONFIGURED_WAIT_SECONDS + 10.0 if rejected else 0.0
