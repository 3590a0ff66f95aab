"""P9 and P11: which failures are one incident, and what it says."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Set as AbstractSet
from itertools import takewhile
from math import inf

from querypulse.alerting.incidents.lifecycle import (
    GROUP_SECONDS,
    GROUP_SIZE,
    NEWS_SECONDS,
    Evaluated,
)
from querypulse.alerting.kinds import DRIVER_DOWN, QUERY_FAILED, QUERY_FLAPPING
from querypulse.alerting.policy import RESTART_WINDOW_SECONDS, WINDOW_FACTOR, Limits
from querypulse.alerting.words.headlines import summary_of

from .driver import WHOLE_DRIVER, SimDriver
from .promises import START_GRACE_SECONDS
from .queries import SimQuery
from .receivers import SimReceiver
from .stage import TICK_SECONDS, Property, Violation, WorldView, is_up
from .truth import Health

OLD_SECONDS = START_GRACE_SECONDS + 10.0
"""Older than the window of a run that has not committed yet."""
SLACK_SECONDS = 10.0
KNOWN_SECONDS = 14.0
"""The same as after any failure."""
WORDS = "never committed, over restarts"
MOST = {QUERY_FAILED: 1}
POISON = "poison_batch"
EARLIER = "in earlier processes"
MOST_OF_OTHERS = 2
"""A stall in the process that planned the batch ends separately from one over restarts."""


class Grouping(Property):
    """Checks the alerts of failures that only their cause and their time can make one incident."""

    def __init__(self, stage: WorldView) -> None:
        super().__init__(stage)
        self._whole_since: dict[SimDriver, float] = {}
        """Since when a critical incident of a whole driver is open."""

    def evaluated(self, driver: SimDriver, evaluated: Evaluated) -> None:
        if any(held.query == WHOLE_DRIVER and held.is_critical for held in driver.handing.open):
            self._whole_since.setdefault(driver, driver.time.now)
        else:
            self._whole_since.pop(driver, None)

    def tick(self) -> None:
        for driver in self._stage.drivers.values():
            failed = [query for query in driver.queries if self._is_plain(query, driver)]
            # Not those that are forgotten because many others have failed.
            is_grouped = {
                driver.owners.get(alert.query, ""): bool(alert.incident)
                for alert in driver.lifecycle.alerts
                if alert.name == QUERY_FAILED
            }
            grouped = {key for key, is_member in is_grouped.items() if is_member}
            alone = is_grouped.keys() - grouped
            causes = {query.failures[-1].cause for query in failed if query.key in grouped}
            if len(causes) > 1:
                raise Violation("P11", f"failures for {sorted(causes)} are one incident")
            for query in failed:
                # The driver has one incident: who fails for another cause meanwhile is alone.
                if causes <= {query.failures[-1].cause}:
                    self._check_together(query, failed, alone)

    def _check_together(self, first: SimQuery, failed: list[SimQuery], alone: set[str]) -> None:
        """Check that of those that fail with ``first`` at most one has an incident of its own."""
        began, now = first.failures[-1], self._stage.time.now
        last_at = began.at + GROUP_SECONDS - TICK_SECONDS
        alike = [
            query.key
            for query in failed
            if query.failures[-1].cause == began.cause
            and began.at <= query.failures[-1].at <= last_at
        ]
        is_free = self._whole_since.get(self.driver_of(first), inf) >= began.at
        if len(alike) < GROUP_SIZE or not is_free or now < last_at + KNOWN_SECONDS:
            return
        if len(alone & {*alike}) > 1:
            raise Violation("P11", f"{alike} failed for one cause, and several are alone")

    def _is_plain(self, query: SimQuery, driver: SimDriver) -> bool:
        """Whether it is dead of its only failure, which its driver knew of at once."""
        if query.truth.health is not Health.DEAD or len(query.truth.episodes) != 1:
            return False
        if len(query.failures) != 1 or not query.failures[0].known:
            return False
        seen_from = max(driver.attached_at, driver.awake_since, driver.spark.paused_until)
        is_seen = query.failures[0].at - seen_from >= KNOWN_SECONDS
        return is_seen and query.spec.name is not None and not self.has_namesake(query)


def _is_of_others(news: AbstractSet[tuple[str, str]], key: str) -> bool:
    """Whether a message brings news of other queries of a group only."""
    return bool(news) and all(other != key for other, _ in news)


class Failing(Property):
    """Checks that a failure in a later batch is news of an open incident, at most once in a while.

    Only a webhook shows that: PagerDuty updates its incident, and Alertmanager its alert.
    """

    def tick(self) -> None:
        for query in self._stage.queries.values():
            if not self._has_failed_later(query) or self._is_expected_to_fail(query):
                continue
            for receiver in self._stage.receivers:
                refused = any(
                    key == query.key for sent in receiver.rejected for key, _ in sent.named
                )
                # An incident that begins again before its end was accepted is still open there.
                is_notified = receiver.trouble_ended_at < query.failures[-2].at
                works = is_up(receiver) and is_notified and not refused
                if receiver.kind == "webhook" and works:
                    self._check(receiver, query)

    def _check(self, receiver: SimReceiver, query: SimQuery) -> None:
        names = {(query.key, QUERY_FAILED), (query.key, QUERY_FLAPPING)}
        times = [note.at for note in receiver.notifications if note.named & names]
        failed_at, now = query.failures[-1].at, self._stage.time.now
        last_at = max(times, default=-inf)
        due_at = max(failed_at, last_at + NEWS_SECONDS) + KNOWN_SECONDS
        if last_at < failed_at and now > due_at:
            raise Violation(
                "P5",
                f"{query.key} has failed in a later batch {now - failed_at:.0f} s ago, and "
                f"{receiver.name} was last notified {now - last_at:.0f} s ago",
            )

    def _has_failed_later(self, query: SimQuery) -> bool:
        """Whether it is dead of a failure in a later batch, which this process knew at once."""
        if query.truth.health is not Health.DEAD or len(query.failures) < 2:
            return False
        before, last = query.failures[-2:]
        driver = self.driver_of(query)
        seen_from = max(driver.attached_at, driver.awake_since, driver.spark.paused_until)
        is_seen = before.known and last.known and seen_from + KNOWN_SECONDS < before.at
        is_later = None not in (before.batch, last.batch) and before.batch != last.batch
        is_plain = query.spec.name is not None and not query.spec.needs_log
        return is_seen and is_later and is_plain and not self.has_namesake(query)

    def _is_expected_to_fail(self, query: SimQuery) -> bool:
        """Whether people know that it fails again and again, or want to know nothing."""
        driver, now = self.driver_of(query), self._stage.time.now
        mine = [
            alert
            for alert in driver.lifecycle.alerts
            if any(key == query.key for key, _ in driver.about(alert))
        ]
        flaps = any(alert.name == QUERY_FLAPPING or alert.calm_seconds for alert in mine)
        silenced = self._stage.silences.covered(
            query.spec, QUERY_FAILED, query.failures[-2].at, now
        )
        return flaps or silenced or not driver.attached or not driver.awake


class Looping(Property):
    """Checks queries that fail in each process (the steps ``bad_batch`` and ``bad_runs``)."""

    def __init__(self, stage: WorldView) -> None:
        super().__init__(stage)
        self._probed: defaultdict[str, set[float]] = defaultdict(set)
        """When each query failed, as far as a probe showed the run in time: then its batch is known."""
        self._suppressed_at: dict[SimDriver, float] = {}
        """When an incident of a whole driver was last open."""
        self._said: defaultdict[str, set[str]] = defaultdict(set)
        """What the open alert that a query flaps has said of it."""

    def tick(self) -> None:
        now = self._stage.time.now
        for query in self._stage.queries.values():
            probe = self.driver_of(query).probe
            self._probed[query.key].add(probe.batches.get(query.key, inf))
            said = self._summaries(query, QUERY_FLAPPING)
            self._said[query.key] = {*self._said[query.key], *said} if said else set()
            began_at = min((failure.at for failure in query.failures), default=now)
            receivers = [
                receiver for receiver in self._stage.receivers if is_up(receiver, began_at)
            ]
            if now < query.bad_until:
                self._check_words(query)
                self._check_poison(query)
                for receiver in receivers:
                    self._check_count(receiver, query)
            if now < query.bad_runs_until:
                for receiver in receivers:
                    self._check_flapping(receiver, query)

    def _check_count(self, receiver: SimReceiver, query: SimQuery) -> None:
        if receiver.kind == "webhook" and not self._stage.plan.setup.spool:
            # A new process cannot know what the webhook knows.
            return
        if query.checkpoint.planned_at == -inf:
            # Its checkpoint is new, and so is the next batch.
            return
        since = max(query.checkpoint.planned_at, query.truth.alive_at)
        received = Counter[tuple[str, str]]()
        known: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
        for note in receiver.notifications:
            if note.at >= since and not _is_of_others(note.named - known[note.key], query.key):
                mine = [name for key, name in note.named if key == query.key]
                received.update((note.key, name) for name in mine)
            known[note.key] |= note.named
        # The ends of drivers are counted by P5.
        for (key, name), times in received.items():
            most = MOST.get(name, MOST_OF_OTHERS)
            # A rejected message is sent once more when its incident ends.
            most += any((key, name) in message.named for message in receiver.rejected)
            # What is silenced when its process ends, the next one does not know.
            most += self._stage.silences.covered(query.spec, name, since, self._stage.time.now)
            if name != DRIVER_DOWN and times > most:
                raise Violation(
                    "P9", f"{receiver.name} notified {times} times of {key} in one loop"
                )

    def _check_words(self, query: SimQuery) -> None:
        """Check that a failure of a batch that an earlier process planned says so."""
        if not self._must_say_so(query) or self._summaries(query, QUERY_FLAPPING):
            # A further failure of a query that flaps is not reported.
            return
        mine = self._summaries(query, QUERY_FAILED)
        if not any(WORDS in summary for summary in mine):
            raise Violation(
                "P9",
                f"no alert says that the batch of {query.key} fails in process after "
                f"process: {mine}",
            )

    def _summaries(self, query: SimQuery, name: str) -> list[str]:
        """What the open alerts of this name say about the query."""
        driver = self.driver_of(query)
        return [
            summary_of(alert)
            for alert in driver.lifecycle.alerts
            if (query.key, name) in driver.about(alert)
        ]

    def _must_say_so(self, query: SimQuery) -> bool:
        """Whether its driver knows that its batch failed, and that an earlier process planned it."""
        driver, checkpoint = self.driver_of(query), query.checkpoint
        failed_at, planned_at = driver.probe.failures.get(query.key), checkpoint.planned_at
        if failed_at is None or not driver.attached or not self._can_be_known(failed_at, driver):
            return False
        if query.runs[-1].is_cut_off:
            # A batch that its SparkContext has cut off did not fail.
            return False
        if planned_at == -inf or checkpoint.planned < checkpoint.batch:
            # Its checkpoint is new, or it failed before it planned the next batch.
            return False
        if not self._is_dated(query, driver):
            return False
        # By the clock of its machine, it may have been planned in the future.
        dated = planned_at <= driver.time.now + driver.time.jump
        is_old = dated and planned_at <= driver.born_at - KNOWN_SECONDS
        window = WINDOW_FACTOR * query.spec.every + SLACK_SECONDS
        old = is_old and failed_at - planned_at >= max(OLD_SECONDS, window)
        return old and not self._is_silenced(query, QUERY_FAILED)

    @staticmethod
    def _is_dated(query: SimQuery, driver: SimDriver) -> bool:
        """Whether signals show when its batch was planned, and that its run did not plan it."""
        # Not in a checkpoint of these kinds.
        records = not query.spec.needs_log and query.spec.trigger != "RealTime"
        # Without its start event, the run may have been active before, and have planned it.
        began = driver.bus.lost_until.get(query.key, -inf) < query.started_at
        # The storage may have refused at the start of each run.
        return records and began and query.key in driver.probe.dated

    def _check_poison(self, query: SimQuery) -> None:
        if query.checkpoint.planned_at == -inf:
            # A continuous query plans no batch, and each failure may be in another one.
            return
        if any(failure.at not in self._probed[query.key] for failure in query.failures[-1:]):
            # The batch of the last failure is not known, and the alert names another one.
            return
        if self._is_spent(self._in_its_batch(query), query):
            self._check_says(query, f"batch {query.checkpoint.batch} failed ", POISON)

    def _check_flapping(self, receiver: SimReceiver, query: SimQuery) -> None:
        """Check that a query that has spent it within the restart window notifies nobody again."""
        window = RESTART_WINDOW_SECONDS
        # A failure whose event was lost or is late may be unknown.
        failed_at = [failure.at for failure in query.failures if failure.known]
        lately = [at for at in failed_at if failed_at[-1] - at <= window]
        if not self._is_spent(lately, query):
            return
        self._check_says(query, "failures within ", EARLIER)
        notified = [
            note for note in receiver.notifications if any(k == query.key for k, _ in note.named)
        ]
        mine = (query.key, QUERY_FLAPPING)
        flapping = [n for n, note in enumerate(notified) if mine in note.named]
        again = notified[flapping[0] + 1 :] if flapping else []
        if again:
            raise Violation(
                "P9",
                f"{receiver.name} notified of {again[0].key}, though {query.key} was known to flap",
            )

    def _in_its_batch(self, query: SimQuery) -> list[float]:
        """When its last runs failed, as far as that is known, in the batch that it is in now.

        All of them failed for the cause of the last one.

        Under async progress tracking the next run goes back to a batch whose commit was not written.
        """
        checkpoint, probed = query.checkpoint, self._probed[query.key]
        cause = query.failures[-1].cause if query.failures else ""
        same = takewhile(
            lambda failed: (failed.batch, failed.cause) == (checkpoint.batch, cause),
            reversed(query.failures),
        )
        failed_at = [failure.at for failure in same if failure.known and failure.at in probed]
        return [at for at in failed_at if at > checkpoint.planned_at][::-1]

    def _is_silenced(self, query: SimQuery, name: str) -> bool:
        """Whether a silence covers it, or did until a moment ago."""
        now = self._stage.time.now
        return self._stage.silences.covered(query.spec, name, now - KNOWN_SECONDS, now)

    def _is_spent(self, failed_at: list[float], query: SimQuery) -> bool:
        """Whether the failure that spends the restart budget can be known by now."""
        budget, driver = Limits().restart_budget, self.driver_of(query)
        if not self._stage.plan.setup.spool or len(failed_at) < budget:
            return False
        # No alert of a query begins while a critical one of the whole driver is open.
        is_whole = any(
            incident.query == WHOLE_DRIVER and incident.is_critical
            for incident in driver.handing.open
        )
        if is_whole:
            self._suppressed_at[driver] = self._stage.time.now
        free_from = self._suppressed_at.get(driver, -inf)
        return driver.attached and self._can_be_known(max(failed_at[budget - 1], free_from), driver)

    def _can_be_known(self, failed_at: float, driver: SimDriver) -> bool:
        """Whether the driver has had enough time since, without a pause of itself or its JVM."""
        seen_at = max(failed_at, driver.awake_since, driver.spark.paused_until)
        return self._stage.time.now - seen_at >= KNOWN_SECONDS

    def _check_says(self, query: SimQuery, *words: str) -> None:
        # A finite run that is stopped looks completed: until the next failure, the alert only
        # counts failures.
        shown = sorted(self._said[query.key])
        if query.spec.name is None and shown:
            # Another query in the list of the unnamed ones is no news.
            return
        if not any(all(word in text for word in words) for text in shown):
            raise Violation(
                "P9",
                f"no alert says {words} of {query.key}, which fails in process after "
                f"process: {shown}",
            )
