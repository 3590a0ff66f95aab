"""P9: a failure in process after process is one incident, which says so.

A batch that fails in each process is one incident of ``StreamingQueryFailed``. With a spool, its
failures are counted over all processes: the batch is named, and a job that commits in between is
one incident of ``StreamingQueryFlapping``.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import takewhile
from math import inf

from querypulse.alerting.policy import Limits
from querypulse.alerting.rules import driver_down, query_failed, query_flapping

from .driver import WHOLE_DRIVER, SimDriver
from .messages import Open
from .queries import SimQuery
from .receivers import SimReceiver
from .stage import Property, Violation, WorldView, is_of_unnamed, is_up

OLD_SECONDS = 130.0
"""Older than the window of a run that has not committed yet."""
SLACK_SECONDS = 10.0
KNOWN_SECONDS = 14.0
"""The same as after any failure."""
WORDS = "never committed, over restarts"
MOST = {query_failed.NAME: 1}
POISON = "poison_batch"
EARLIER = "in earlier processes"
MORE_AT_WEBHOOKS = 1
"""That the batch also failed in earlier processes, or that one batch fails repeatedly, is news,
and a webhook is notified of it."""
MOST_OF_OTHERS = 2
"""A stall in the process that planned the batch ends separately from one over restarts."""


class Looping(Property):
    """Checks queries that fail in each process (the steps ``bad_batch`` and ``bad_runs``)."""

    def __init__(self, stage: WorldView) -> None:
        super().__init__(stage)
        self._probed: defaultdict[str, set[float]] = defaultdict(set)
        """When each query failed, as far as a probe showed the run in time: then its batch is known."""
        self._named_at: dict[tuple[str, str, float], float] = {}
        """When an incident of a receiver first named a batch: a later batch is no news."""
        self._named: defaultdict[tuple[str, str, float], set[str]] = defaultdict(set)
        """How it named a batch."""

    def tick(self) -> None:
        """Check the incidents of each receiver, and how often it has notified."""
        now = self._stage.time.now
        self._remember_named()
        for query in self._stage.queries.values():
            probe = self.driver_of(query).probe
            self._probed[query.key].add(probe.batches.get(query.key, inf))
            began_at = min((one.at for one in query.failures), default=now)
            receivers = [one for one in self._stage.receivers if is_up(one, began_at)]
            if now < query.bad_until:
                for receiver in receivers:
                    self._check_count(receiver, query)
                    self._check_words(receiver, query)
                    self._check_poison(receiver, query)
            if now < query.bad_runs_until:
                for receiver in receivers:
                    self._check_flapping(receiver, query)

    def _remember_named(self) -> None:
        for receiver in self._stage.receivers:
            for one in receiver.open.values():
                if POISON in one.words:
                    place = (receiver.name, one.key, one.opened_at)
                    self._named_at.setdefault(place, self._stage.time.now)
                    self._named[place].add(one.words)

    def _check_count(self, receiver: SimReceiver, query: SimQuery) -> None:
        webhook = receiver.kind == "webhook"
        if webhook and not self._stage.plan.setup.spool:
            # A new process cannot know what the webhook knows.
            return
        if query.checkpoint.planned_at == -inf:
            # Its checkpoint is new, and so is the next batch.
            return
        since = max(query.checkpoint.planned_at, query.truth.alive_at)
        received = Counter(
            (one.key, name)
            for one in receiver.notifications
            for key, name in one.named
            if key == query.key and one.at >= since
        )
        # The ends of drivers are counted by P5.
        for (key, name), times in received.items():
            most = MOST.get(name, MOST_OF_OTHERS) + MORE_AT_WEBHOOKS * webhook
            # A rejected message is sent once more when its incident ends.
            most += self._is_rejected(receiver, query, name)
            if name != driver_down.NAME and times > most:
                raise Violation(
                    "P9", f"{receiver.name} notified {times} times of {key} in one loop"
                )

    def _check_words(self, receiver: SimReceiver, query: SimQuery) -> None:
        """Check that a failure of a batch that an earlier process planned says so."""
        if not self._must_say_so(query) or self._is_rejected(receiver, query, query_failed.NAME):
            return
        shown = [one for one in receiver.open.values() if query.key in dict(one.shown)]
        if any((query.key, query_flapping.NAME) in one.shown for one in shown):
            # A further failure of a query that flaps is not reported.
            return
        mine = [one.words for one in shown if (query.key, query_failed.NAME) in one.shown]
        if not any(WORDS in words for words in mine):
            raise Violation(
                "P9", f"nothing at {receiver.name} says that the batch of {query.key} fails in "
                f"process after process: {mine}"
            )  # fmt: skip

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
        window = (Limits().stall_tolerance + 2) * query.spec.every + SLACK_SECONDS
        old = is_old and failed_at - planned_at >= max(OLD_SECONDS, window)
        return old and not self._is_silenced(query, query_failed.NAME)

    @staticmethod
    def _is_dated(query: SimQuery, driver: SimDriver) -> bool:
        """Whether signals show when its batch was planned, and that its run did not plan it."""
        # Not in a checkpoint of these kinds.
        records = not query.spec.needs_log and query.spec.trigger != "RealTime"
        # Without its start event, the run may have been active before, and have planned it.
        began = driver.bus.lost_until.get(query.key, -inf) < query.started_at
        # The storage may have refused at the start of each run.
        return records and began and query.key in driver.probe.dated

    def _check_poison(self, receiver: SimReceiver, query: SimQuery) -> None:
        """Check that a batch that has spent the restart budget is named."""
        if query.checkpoint.planned_at == -inf:
            # A continuous query plans no batch, and each failure may be in another one.
            return
        if any(one.at not in self._probed[query.key] for one in query.failures[-1:]):
            # The batch of the last failure is not known, and the alert names another one.
            return
        failed_at = self._in_its_batch(query)
        if self._is_spent(receiver, failed_at, query):
            self._says(receiver, query, f"batch {query.checkpoint.batch} failed ", POISON)

    def _check_flapping(self, receiver: SimReceiver, query: SimQuery) -> None:
        """Check that a query that has spent it within the restart window notifies nobody again."""
        window = Limits().restart_window_seconds
        # A failure whose event was lost or is late may be unknown.
        known = [one.at for one in query.failures if one.known]
        lately = [at for at in known if known[-1] - at <= window]
        if not self._is_spent(receiver, lately, query):
            return
        self._says(receiver, query, "failures within ", EARLIER)
        notified = [
            one for one in receiver.notifications if any(k == query.key for k, _ in one.named)
        ]
        mine = (query.key, query_flapping.NAME)
        first = next(n for n, one in enumerate(notified) if mine in one.named)
        news = receiver.kind == "webhook" and any(
            POISON in one.words for one in receiver.open.values() if mine in one.shown
        )
        again = notified[first + 1 + MORE_AT_WEBHOOKS * news :]
        if again:
            raise Violation(
                "P9", f"{receiver.name} notified of {again[0].key}, though "
                f"{query.key} was known to flap"
            )  # fmt: skip

    def _in_its_batch(self, query: SimQuery) -> list[float]:
        """When its last runs failed, as far as that is known and was in the batch that it is in now.

        Under async progress tracking the next run goes back to a batch whose commit was not written.
        """
        checkpoint, probed = query.checkpoint, self._probed[query.key]
        same = takewhile(lambda one: one.batch == checkpoint.batch, reversed(query.failures))
        known = [one.at for one in same if one.known and one.at in probed]
        return [at for at in known if at > checkpoint.planned_at][::-1]

    def _is_silenced(self, query: SimQuery, name: str) -> bool:
        """Whether a silence covers it, or did until a moment ago."""
        now = self._stage.time.now
        return self._stage.silences.covered(query.spec, name, now - KNOWN_SECONDS, now)

    def _is_spent(self, receiver: SimReceiver, failed_at: list[float], query: SimQuery) -> bool:
        """Whether the failure that spends the restart budget can be known and sent by now."""
        budget, driver = Limits().restart_budget, self.driver_of(query)
        if not self._stage.plan.setup.spool or len(failed_at) < budget:
            return False
        if self._is_silenced(query, query_flapping.NAME):
            return False
        free_from = self._suppressed_until(receiver, driver)
        return driver.attached and self._can_be_known(max(failed_at[budget - 1], free_from), driver)

    def _suppressed_until(self, receiver: SimReceiver, driver: SimDriver) -> float:
        """Until when a critical alert of the whole driver is open: no alert of a query begins then.

        A failure does, and the flapping of a query is reported in addition to it.
        """
        if any(_is_of_driver(one, driver) for one in receiver.open.values()):
            return self._stage.time.now
        ends = (end.at for end in receiver.closed if _is_of_driver(end.incident, driver))
        return max(ends, default=-inf)

    @staticmethod
    def _is_rejected(receiver: SimReceiver, query: SimQuery, name: str) -> bool:
        """Whether the receiver rejected a message about it."""
        return any((query.key, name) in one.named for one in receiver.rejected)

    def _can_be_known(self, failed_at: float, driver: SimDriver) -> bool:
        """Whether the driver has had enough time since, without a pause of itself or its JVM."""
        seen_at = max(failed_at, driver.awake_since, driver.spark.paused_until)
        return self._stage.time.now - seen_at >= KNOWN_SECONDS

    def _says(self, receiver: SimReceiver, query: SimQuery, *words: str) -> None:
        about = [
            one for one in receiver.open.values() if (query.key, query_flapping.NAME) in one.shown
        ]
        places = [(receiver.name, one.key, one.opened_at) for one in about]
        named_at = min((self._named_at.get(place, inf) for place in places), default=inf)
        if POISON in words and named_at < query.checkpoint.planned_at:
            return
        if self._is_rejected(receiver, query, query_flapping.NAME):
            return
        if query.spec.name is None and any(map(is_of_unnamed, receiver.open)):
            # Another query in the list of the unnamed ones is no news.
            return
        shown = [one.words for one in about]
        if POISON in words:
            # A finite run that is stopped looks completed: until the next failure, the alert only
            # counts failures, and what it named before is no news.
            shown += [text for place in places for text in self._named[place]]
        if not any(all(word in text for word in words) for text in shown):
            raise Violation(
                "P9", f"nothing at {receiver.name} says {words} of {query.key}, which fails in "
                f"process after process: {shown}"
            )  # fmt: skip


def _is_of_driver(one: Open, driver: SimDriver) -> bool:
    """Whether it is a critical incident of the whole driver that this driver has sent."""
    whole = any(key == WHOLE_DRIVER for key, _ in one.shown)
    return whole and one.driver == driver.name and one.severity == "critical"
