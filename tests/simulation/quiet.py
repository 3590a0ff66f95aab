"""P2, P5 and P10: nobody is notified of a healthy query, twice, or after they acknowledged it."""

from __future__ import annotations

from collections import Counter
from math import inf

from querypulse.alerting import kinds
from querypulse.alerting.incidents.lifecycle import (
    FACTS,
    FLAP_WINDOW_SECONDS,
    LONGEST_CALM_SECONDS,
    SHORTEST_CALM_SECONDS,
)
from querypulse.alerting.policy import RESTART_WINDOW_SECONDS
from querypulse.alerting.receivers.http import GONE_WAIT_SECONDS
from querypulse.listener.probe_report import Context

from .driver import WHOLE_DRIVER, SimDriver
from .queries import SimQuery
from .receivers import Notification, SimReceiver
from .run import NOTABLE_SECONDS
from .stage import (
    SAYS,
    TICK_SECONDS,
    UNDER_WAY_SECONDS,
    Property,
    Violation,
    WorldView,
    is_end_unreported,
    is_of_all,
    is_of_unnamed,
    is_up,
    recovery_seconds,
)
from .truth import CALM, OF_BATCH, Health

BEFORE_SECONDS = 75.0
"""A problem up to this long before a notification explains it."""
BLIND_SECONDS = 50.0
ACKNOWLEDGED_SECONDS = 30.0
"""A person acknowledges a page within this time, and sleeps."""
REMINDER_SECONDS = 4 * 3600.0
SIGNALS = frozenset({kinds.EVENTS_MISSING, kinds.MONITORING_DEGRADED})
SLOW_FLAPS = 3
STALL_FLOOR_SECONDS = 60.0
SLACK_SECONDS = 15.0
OF_BATCHES = frozenset({kinds.QUERY_STALLED, kinds.BATCH_SLOW})
LATE_SECONDS = 30.0
"""For this long after its start, a process sends what an earlier one has left."""
IN_FLIGHT_SECONDS = 5.0
TROUBLED_SECONDS = 400.0
OF_OFFSETS = {
    kinds.QUERY_LAGGING: Health.LAGGING,
    kinds.OFFSETS_REWOUND: Health.REWOUND,
    kinds.OFFSETS_STALLED: Health.STALE,
}


Problem = tuple[str, float]
"""Which problem of a query: its kind, and a number or a time that distinguishes it."""


class Quiet(Property):
    def __init__(self, stage: WorldView) -> None:
        super().__init__(stage)
        self._received: dict[tuple[str, str, str, Problem, str], Notification] = {}
        self._woken = {
            receiver.name: dict[tuple[str, Problem | str], Notification]()
            for receiver in stage.receivers
        }
        """By receiver: the last page about each problem of a query, and in each incident."""
        self._vain: dict[tuple[str, str, float], dict[str, float]] = {}
        """By process: resolves of incidents that were never open, and their times."""
        self._blind_at = self._lossy_at = 0.0
        self._away_at: dict[str, float] = {}
        """By driver: when it was last away, for any reason."""
        self._aways: Counter[str] = Counter()
        """By driver: how often it has gone away."""

    def tick(self) -> None:
        self._watch_signals()
        for receiver in self._stage.receivers:
            for note in self.new(receiver, "notifications"):
                self._check_cause(receiver, note)
                self._check_severity(receiver, note)
                self._check_silence(receiver, note)
                self._check_wakes(receiver, note)
                self._check_news(receiver, note)
            self._check_resolves(receiver)

    def _check_cause(self, receiver: SimReceiver, note: Notification) -> None:
        for key, name in note.named:
            query = self._stage.queries.get(key)
            recreated = query is not None and query.source.recreated_at is not None
            if name == kinds.INPUT_MISSING or (name == kinds.DATA_LOSS_RISK and recreated):
                # ``feeding`` checks whether rows arrived. What was lost is shown for an hour.
                continue
            # A rejected alert is sent once more when it has ended.
            rejected = any((key, name) in other.named for other in receiver.rejected)
            # What has not recovered for long enough is shown beside what has just begun.
            beside = {other for named, other in note.named if named == key}
            has_cause = (
                rejected
                or query is None
                or self._is_stretched(query, name, note.at)
                or any(self._has_cause(receiver, query, other, note.at) for other in beside)
            )
            if query is not None and not has_cause:
                raise Violation(
                    "P2",
                    f"{receiver.name} notified of {name} of {key}, which was healthy "
                    f"(now {query.truth.health.value})",
                )
            faulty_at = self._lossy_at if name == kinds.EVENTS_MISSING else self._blind_at
            if key == WHOLE_DRIVER and name in SIGNALS and self._stage.time.now > faulty_at:
                raise Violation("P2", f"{receiver.name} notified of {name}; all signals worked")

    def _is_stretched(self, query: SimQuery, name: str, at: float) -> bool:
        """Whether pauses have stretched its last batches, which Spark reports as that long."""
        paused_until = self.driver_of(query).spark.paused_until
        return name == kinds.QUERY_FALLING_BEHIND and at - paused_until <= BEFORE_SECONDS

    def _check_severity(self, receiver: SimReceiver, note: Notification) -> None:
        """Check that an ordinarily slow batch is not critical too early."""
        if (
            len(note.named) != 1
            or note.severity != "critical"
            or self._stage.time.now <= self._blind_at
        ):
            return
        ((key, name),) = note.named
        query = self._stage.queries.get(key)
        if query is None or name not in OF_BATCHES:
            return
        late = BEFORE_SECONDS + self._stage.longest_delay
        problems = query.truth.healths_between(note.at - late, note.at) - CALM
        slow = self._stage.plan.setup.slow_critical
        least = {
            frozenset({Health.DELAYED}): min(3 * STALL_FLOOR_SECONDS, slow),
            frozenset({Health.SLOW}): min(10 * STALL_FLOOR_SECONDS, slow),
        }.get(frozenset(problems), 0.0)
        # The query may have restarted while the message was under way.
        began_at = min(query.truth.batch_troubled_since(note.at - back) for back in (0.0, 1.0))
        # A batch that takes long in any case, or has waited for executors, has been in flight
        # before it was in trouble.
        run = self.driver_of(query).spark.living.get(key)
        flight_at = run.busy_since if run is not None and run.busy else inf
        lasted = note.at - min(began_at, flight_at, self._planned_before(query))
        if problems == {query.truth.health} and lasted < least - SLACK_SECONDS:
            raise Violation(
                "P2",
                f"{receiver.name} was notified that {name} of {key} is critical, "
                f"which has been {query.truth.health.value} for {lasted:.0f} s only",
            )

    def _planned_before(self, query: SimQuery) -> float:
        """When an earlier process planned the present batch; now if this process did."""
        now, planned_at = self._stage.time.now, query.checkpoint.planned_at
        born_at = self.driver_of(query).born_at
        return planned_at if float("-inf") < planned_at < born_at else now

    def _check_silence(self, receiver: SimReceiver, note: Notification) -> None:
        """Check that a silenced alert notifies nobody; a group only if all of it is silenced."""
        if note.driver == "watch":
            return
        if receiver.gone_until > note.at - GONE_WAIT_SECONDS:
            # A message that has waited for its receiver is about a problem before the silence.
            return
        named = [(self._stage.queries.get(key), name) for key, name in note.named]
        silences = self._stage.silences
        if all(
            silences.covers(
                query.spec, name, since=UNDER_WAY_SECONDS, before=_ended_at(query, name)
            )
            if query
            else silences.covers(None, name, since=UNDER_WAY_SECONDS)
            for query, name in named
        ):
            raise Violation("P2", f"{receiver.name} notified of {note.key}, which was silenced")

    def _has_cause(self, receiver: SimReceiver, query: SimQuery, name: str, at: float) -> bool:
        held_up = self._stage.silences.covered(query.spec, name, 0.0, at)
        late = self._late_seconds(receiver, query, name, at, held_up=held_up)
        problems = query.truth.healths_between(at - late, at) - CALM
        if query.is_lost and (name == kinds.QUERY_STOPPED or held_up):
            # Its run with another id has ended, and nothing shows that this is the same query.
            return True
        if name == kinds.QUERY_STOPPED and is_end_unreported(self._stage, query):
            # Nothing shows that a run which ends by itself has completed.
            return True
        if name in OF_OFFSETS:
            # While a batch is in trouble, nothing shows other offsets.
            since = min(at - late, query.truth.batch_troubled_since(at))
            # Offsets that do not move at all stay where they went back to.
            back = name == kinds.OFFSETS_REWOUND and query.source.is_back
            return back or OF_OFFSETS[name] in query.truth.healths_between(since, at)
        if problems == {Health.DEAD} and name == kinds.QUERY_STOPPED:
            # Another end than the real one: correct only if the real end could not be reported.
            return self._is_unreported(query) or self._was_unseen(query, name, at, late)
        if problems == {Health.SLOW} and name == kinds.QUERY_STALLED:
            # Its tasks finish: only a monitor that cannot see that may report a stall.
            return at <= self._blind_at
        return bool(problems) or self._was_unseen(query, name, at, late)

    def _late_seconds(
        self, receiver: SimReceiver, query: SimQuery, name: str, at: float, *, held_up: bool
    ) -> float:
        """How long before a notification its problem may have been; a silence may hold it up."""
        if at - self.driver_of(query).born_at < LATE_SECONDS:
            # An earlier process may have found it, and its spool is sent now.
            return at
        late = BEFORE_SECONDS + self._stage.longest_delay + _waited_seconds(receiver, at)
        if held_up:
            # What has not resolved when the silence ends is sent.
            late += recovery_seconds(query)
        if held_up and name == kinds.QUERY_FLAPPING:
            # Its failures count for the restart window, and it may be healthy by then.
            late += RESTART_WINDOW_SECONDS
        return late

    def _was_unseen(self, query: SimQuery, name: str, at: float, late: float) -> bool:
        driver = self.driver_of(query)
        if name == kinds.QUERY_MISSING:
            seen = any(driver.attached_at <= run.started_at < at for run in query.runs)
            unseen = not seen or is_end_unreported(self._stage, query)
            unseen |= at - driver.born_at < LATE_SECONDS
            # A message that an outage delayed is about the time before its first start.
            unseen |= Health.ABSENT in query.truth.healths_between(at - late, at)
            return query.spec.expected and unseen
        if name == kinds.QUERY_STOPPED and self._stopped_unpolled(query):
            return True
        if name == kinds.QUERY_STOPPED and driver.closed_at is not None:
            # The last poll of a process that crashed lacked it.
            return not _is_in_last_poll(driver, query)
        if name == kinds.DRIVER_DOWN:
            return at - late <= max(self._away_at.values(), default=float("-inf"))
        return name == kinds.QUERY_STALLED and at <= self._blind_at

    def _stopped_unpolled(self, query: SimQuery) -> bool:
        """Whether the last poll before its planned stop lacked it, but not its namesake.

        The announcement then means the namesake alone.
        """
        names = [query.spec.name for query in self._stage.queries.values()]
        missed_at = self.driver_of(query).probe.missed.get(query.key, -inf)
        recent = 2 * self._stage.plan.setup.polls + 2 * TICK_SECONDS
        lacked = query.truth.since - missed_at <= recent
        return lacked and query.truth.health is Health.STOPPED and names.count(query.spec.name) > 1

    def _was_nameless(self, query: SimQuery) -> bool:
        driver = self.driver_of(query)
        early = any(driver.born_at <= run.started_at < driver.attached_at for run in query.runs)
        return self._is_unreported(query) or early

    def _is_unreported(self, query: SimQuery) -> bool:
        driver = self.driver_of(query)
        unreported = query.key in driver.bus.lost_until or self._stage.longest_delay > 0
        # A failure that could not be reported to one process may be reported by its successor.
        unreported |= any(episode.began_at < driver.born_at for episode in query.truth.episodes)
        return unreported or driver.spark.context is not Context.RUNNING

    def _check_wakes(self, receiver: SimReceiver, note: Notification) -> None:
        """Check that a person who acknowledged a page, and sleeps, is woken only by news.

        News is another incident of another problem, a failure, or what has become critical; another
        alert is none. Alertmanager decides by itself what belongs together.
        """
        if note.severity != "critical" or receiver.kind == "alertmanager":
            return
        asleep_since = max(receiver.acknowledged_at, note.at - ACKNOWLEDGED_SECONDS)
        woken, pages = False, self._woken[receiver.name]
        read: dict[tuple[str, Problem | str], Notification] = {}
        for query, name in self._queries_of(note):
            problem, incident = (query.key, self._which(query, name, note)), (query.key, note.key)
            before = pages.get(problem)
            if before is None and name != kinds.DRIVER_DOWN:
                before = self._in_open_incident(receiver, query, pages.get(incident))
            read |= {problem: note, incident: note}
            woken |= (
                before is None
                or before.at > asleep_since
                or self._may_repeat(receiver, query, name, before, note)
            )
        pages |= read
        if not woken and self._queries_of(note):
            raise Violation(
                "P10", f"{receiver.name} woke somebody who knew of it: {sorted(note.named)}"
            )

    @staticmethod
    def _in_open_incident(
        receiver: SimReceiver, query: SimQuery, before: Notification | None
    ) -> Notification | None:
        """The last page if its incident is still open, and the query has not failed since."""
        if before is None or any(failed.at > before.at for failed in query.failures):
            return None
        held = receiver.open.get(before.key)
        return before if held is not None and held.opened_at <= before.at else None

    def _check_news(self, receiver: SimReceiver, note: Notification) -> None:
        """Check that a lasting problem notifies once, unless there is a reason to notify again."""
        fresh, again = False, []
        for query, name in self._queries_of(note):
            which = self._which(query, name, note)
            # A warning that becomes critical is news.
            mark = (receiver.name, query.key, name, which, note.severity)
            before = self._received.get(mark)
            self._received[mark] = note
            if before is None or self._may_repeat(receiver, query, name, before, note):
                fresh = True
            else:
                again.append((query.key, name))
        if again and not fresh:
            raise Violation(
                "P5", f"{receiver.name} notified again of the same problem: {sorted(again)}"
            )
        self._check_slow_flapping(receiver, note)

    def _queries_of(self, note: Notification) -> list[tuple[SimQuery, str]]:
        """The queries that it names, each with the name of its alert."""
        queries = self._stage.queries
        return [(queries[key], name) for key, name in note.named if key in queries]

    def _which(self, query: SimQuery, name: str, note: Notification) -> Problem:
        began = [n for n, e in enumerate(query.truth.episodes) if e.began_at <= note.at]
        if name == kinds.DRIVER_DOWN:
            return "away", self._aways[query.spec.driver]
        if name == kinds.DATA_LOSS_RISK:
            return "lost", query.source.recreated_at or 0.0
        if name == kinds.INPUT_MISSING:
            # Another problem suppresses it, and a new process counts from its own start: both end it.
            ends = [query.truth.episodes[n].ended_at or 0.0 for n in began]
            return "fed", max(query.fed_at, self.driver_of(query).born_at, *ends)
        is_end = query.truth.episode is None and self.driver_of(query).closed_at is not None
        if name == kinds.QUERY_STOPPED and (query.spec.name is None or is_end):
            # Nothing shows which run follows a run without a name: each stop is a new problem. An
            # idle run does not notice that its SparkContext has stopped.
            return "stop", len(began) + sum(run.ended_at <= note.at for run in query.runs)
        return "episode", began[-1] if began else -1

    def _may_repeat(
        self,
        receiver: SimReceiver,
        query: SimQuery,
        name: str,
        before: Notification,
        note: Notification,
    ) -> bool:
        """Whether there is a reason to notify of the same problem again."""
        # A message that an outage delayed is about the problem before this one.
        late = self._which(query, name, note)[1] > 0 and before.at < receiver.is_up_from
        begins = [other.began_at for other in query.truth.episodes if other.began_at <= note.at]
        late |= any(not is_up(receiver, began_at) for began_at in begins[-2:-1])
        # A run whose start was lost, or came before the attach, has no name until a poll shows it.
        nameless = query.spec.name is not None and (
            (is_of_unnamed(note.key) and self._was_nameless(query)) or is_of_unnamed(before.key)
        )
        # A rejected alert is sent again when it has ended, and by then another problem lasts.
        rejected = before.starts_at < note.starts_at and any(
            other.at < before.at and other.named & {(query.key, name), *before.named}
            for other in receiver.rejected
        )
        return (
            late
            or nameless
            or rejected
            or any(
                # What is silenced meanwhile is no part of the incident that people know.
                key == query.key
                and self._stage.silences.covered(query.spec, said, before.at, note.at)
                for key, said in (*before.named, (query.key, name))
            )
            or self._has_moved(receiver, before, note)
            or self._outlasts_driver(receiver, query, name, before, note)
            or self._failed_again(receiver, query, name, before, note)
            or (name in OF_BATCHES and self._was_replaced(receiver, query.key, before, note))
            or self._is_excused(receiver, before, note)
        )

    @staticmethod
    def _has_moved(receiver: SimReceiver, before: Notification, note: Notification) -> bool:
        joined = _facts(note) and not _facts(before)
        # That everything has stopped is news to those who know of failures.
        stopped = (WHOLE_DRIVER, kinds.QUERY_STOPPED) in note.named - before.named
        return (
            bool(joined)
            or stopped
            or any(
                before.at <= closed.at + UNDER_WAY_SECONDS
                and closed.incident.severity != note.severity
                for closed in receiver.closed
                if {key for key, _ in closed.incident.shown} & {key for key, _ in note.named}
            )
        )

    def _outlasts_driver(
        self,
        receiver: SimReceiver,
        query: SimQuery,
        name: str,
        before: Notification,
        note: Notification,
    ) -> bool:
        """Whether the whole driver was stuck and has resumed, but this query has not.

        That is another problem: the incident of the driver ends, and must not hide the query's own.
        """
        whole = (WHOLE_DRIVER, name)
        driver = self.driver_of(query)
        if whole in note.named and whole not in before.named:
            # That the whole driver is stuck is news, if it is.
            living = [query for query in driver.queries if query.key in driver.spark.living]
            return all(
                query.truth.healths_between(before.at, note.at) & OF_BATCH for query in living
            )
        awake_since = driver.spark.paused_until
        # An outage may have delayed both messages.
        down_at = receiver.trouble_ended_at - receiver.trouble_seconds
        waited = down_at <= before.at < receiver.is_up_from
        since = min(down_at if waited else before.at, awake_since)
        goes_on = note.at - since >= NOTABLE_SECONDS / 2
        troubled = query.truth.health in OF_BATCH or note.at <= self._blind_at
        return whole in before.named and whole not in note.named and goes_on and troubled

    def _failed_again(
        self,
        receiver: SimReceiver,
        query: SimQuery,
        name: str,
        before: Notification,
        note: Notification,
    ) -> bool:
        """Whether a run failed after the incident was resolved, as far as its driver can know.

        For the truth it is the same problem if no batch of the run was committed. Nothing dates the
        failures that late events report, so that the query is known to flap only then.
        """
        ends = [
            end.at
            for end in receiver.closed
            if end.incident.key == note.key
            or any(key == query.key for key, _ in end.incident.shown)
        ]
        ended = [at for at in ends if before.at <= at <= note.at]
        # Once the last run has ended, nothing shows that a late event is of a run before it.
        lives = query.key in self.driver_of(query).spark.living
        is_late = bool(ended) and (not lives or name == kinds.QUERY_FLAPPING)
        late = self._stage.longest_delay if is_late else 0.0
        since = max(ended, default=note.at)
        if name == kinds.QUERY_FLAPPING and is_of_all(before.key) and not is_of_all(note.key):
            # The end of what all queries share does not say that this one keeps failing afterwards.
            since = before.at
        return any(failed.at + (0.0 if failed.known else late) > since for failed in query.failures)

    def _was_replaced(
        self, receiver: SimReceiver, key: str, before: Notification, note: Notification
    ) -> bool:
        """Whether a monitor that could not see the batch reported or resolved it in between.

        Or whether it was a warning in a page that other queries made critical.
        """
        grouped = len(before.named) > 1 and WHOLE_DRIVER not in dict(before.named)
        if grouped and not is_of_all(note.key) and note.severity == "critical":
            return True
        between = (n for n in receiver.notifications if before.at < n.at < note.at)
        said = {name for n in between for named, name in n.named if named == key}
        ended = any(
            before.at < end.at < note.at for end in receiver.closed if end.incident.key == note.key
        )
        return note.at <= self._blind_at and (ended or bool(said & OF_BATCHES))

    def _is_excused(self, receiver: SimReceiver, before: Notification, note: Notification) -> bool:
        if before.doubted or note.doubted or note.at - before.at >= REMINDER_SECONDS:
            return True
        if before.driver != note.driver and "watch" in (before.driver, note.driver):
            # Two processes that do not know each other report the same under the same key.
            return True
        if _is_ended_by_others(receiver, before, note) or _has_lapsed(receiver, before, note):
            return True
        boots = [at for at, name in self._stage.boots if before.at - 5.0 < at <= note.at]
        named = (query for query, _ in self._queries_of(note))
        if boots and note.key != before.key and any(map(self.has_namesake, named)):
            # A new process may give the label to the other query of the name.
            return True
        return any(at - before.at < 10.0 for at in boots) or (
            bool(boots) and not self._stage.plan.setup.spool
        )

    def _check_slow_flapping(self, receiver: SimReceiver, note: Notification) -> None:
        """Check that a problem that comes and goes is one incident from the third time on."""
        if is_of_all(note.key) and len(self._stage.drivers) > 1:
            # Drivers of one app name share it, and each resolves and notifies for itself.
            return
        if any(name == kinds.DRIVER_DOWN for _, name in note.named):
            # Each end of a driver is another incident.
            return
        since = note.at - FLAP_WINDOW_SECONDS
        if not self._stage.plan.setup.spool:
            # Without a spool, each process counts for itself.
            boots = [at for at, name in self._stage.boots if name == note.driver and at <= note.at]
            since = max([since, *boots[-1:]])
        same = [
            other
            for other in receiver.notifications
            # The watcher and a driver do not know how often the other has notified.
            if (other.key, other.driver, other.named) == (note.key, note.driver, note.named)
            and since <= other.at <= note.at
        ]
        if len(same) <= SLOW_FLAPS:
            return
        first, *_, last, now = same[-SLOW_FLAPS - 1 :]
        if note.severity == "warning" and self._has_moved(receiver, last, now):
            # It was a part of a critical incident, which has ended: only warnings are left.
            return
        calm = max(SHORTEST_CALM_SECONDS, last.at - first.at - UNDER_WAY_SECONDS)
        if now.at - last.at < min(LONGEST_CALM_SECONDS, calm):
            raise Violation("P5", f"{note.key} was notified {len(same)} times within a day")

    def _check_resolves(self, receiver: SimReceiver) -> None:
        """Check resolves of incidents that were never open.

        Only PagerDuty gets them: of each query at each severity, once it was seen healthy, and once
        in a process without a spool, which knows what is open. That of the driver comes with a
        spool, too: a driver that reports its own end does not wait for the disk.
        """
        for at, key, driver in self.new(receiver, "vain_resolves"):
            if receiver.trouble_ended_at > at - TROUBLED_SECONDS:
                # A message that may have arrived is followed by its resolve.
                continue
            boots = [when for when, name in self._stage.boots if name == driver and when <= at]
            if (
                boots
                and self._stage.plan.setup.spool
                and any(
                    before[1:] == (key, driver) and before[0] < boots[-1]
                    for before in receiver.vain_resolves
                )
            ):
                # The process before was killed while it sent this resolve.
                continue
            if len(boots) > 1 and at - boots[-1] < IN_FLIGHT_SECONDS:
                # The process before was killed while this was under way.
                continue
            mark = (receiver.name, driver, boots[-1] if boots else 0.0)
            resolved = self._vain.setdefault(mark, {})
            is_late = not boots or at - boots[-1] >= LATE_SECONDS
            is_restored = self._was_restored(driver, at) and not is_of_all(key)
            if receiver.kind != "pagerduty" or key in resolved or not is_late or is_restored:
                raise Violation(
                    "P5", f"{receiver.name} got a resolve of {key}, which was never open"
                )
            resolved[key] = at

    def _was_restored(self, name: str, at: float) -> bool:
        """Whether the process that sent a message at that time knew what the one before had left."""
        driver = self._stage.drivers.get(name)
        return driver is not None and driver.born_at <= at and bool(driver.restored)

    def _watch_signals(self) -> None:
        """Remember until when the monitor has a reason to report that its signals are degraded."""
        for name, driver in self._stage.drivers.items():
            if not driver.attached or not driver.awake or not driver.spark.alive:
                before, now = self._away_at.get(name, float("-inf")), self._stage.time.now
                # It may have been up for less than a tick.
                was_up = now - before > 2 * TICK_SECONDS or before < driver.awake_since <= now
                self._aways[name] += was_up
                self._away_at[name] = now
            late = self._stage.longest_delay >= BLIND_SECONDS
            late |= driver.probe.log is not None and bool(driver.probe.log.unreadable)
            late |= bool(self._stage.plan.setup.broken_rule)
            lasts = 2 * BEFORE_SECONDS + self._stage.longest_delay
            if driver.bus.lost or late:
                self._lossy_at = self._stage.time.now + lasts
            if driver.bus.lost or late or not driver.probe.answers or not driver.attached:
                self._blind_at = self._stage.time.now + lasts


def _facts(note: Notification) -> set[str]:
    return {name for _, name in note.named} & FACTS


def _is_in_last_poll(driver: SimDriver, query: SimQuery) -> bool:
    report = driver.probe.latest
    runs = () if report is None else report.runs
    keys = driver.spark.keys
    return any(run.active and keys.get(run.facts.run_id) == query.key for run in runs)


def _waited_seconds(receiver: SimReceiver, at: float) -> float:
    waited = 0.0
    if receiver.trouble_ended_at > at - 400.0:
        waited += receiver.trouble_seconds + 400.0
    if receiver.gone_until > at - GONE_WAIT_SECONDS:
        waited += GONE_WAIT_SECONDS
    return waited


def _ended_at(query: SimQuery, name: str) -> float | None:
    """When the problem that an alert reports has ended; None while it lasts."""
    reported = [episode for episode in query.truth.episodes if name in SAYS[episode.health]]
    ended_at = reported[-1].ended_at if reported else None
    return query.truth.healthy_since if ended_at is None else ended_at


def _has_lapsed(receiver: SimReceiver, before: Notification, note: Notification) -> bool:
    """Whether an Alertmanager that could not be reached ended the alert by itself in between."""
    ended = any(before.at < at <= note.at for at, key in receiver.lapsed if key == note.key)
    return ended and receiver.is_up_from > before.at


def _is_ended_by_others(receiver: SimReceiver, before: Notification, note: Notification) -> bool:
    """Whether another process resolved it in between.

    A process posts resolves to Alertmanager for 5 minutes; the watcher and a driver share a key.
    """
    return any(
        closed.incident.key == note.key
        and before.at <= closed.at <= note.at
        and closed.by not in ("", note.driver)
        for closed in receiver.closed
    )
