"""P9: a batch that fails in process after process is one incident, which says so."""

from __future__ import annotations

from collections import Counter

from querypulse.alerting.rules import query_failed
from querypulse.sidecar.worker import Judged

from .driver import SimDriver
from .queries import SimQuery
from .receivers import SimReceiver
from .verdicts import Stage, Violation, is_up

OLD_SECONDS = 130.0
"""A plan that is older than the window of a run that has not committed yet."""
KNOWN_SECONDS = 14.0
"""As after any death."""
WORDS = "never committed, over restarts"
MOST = {query_failed.NAME: 1}
MOST_OF_OTHERS = 2
"""A stall in the process that planned the batch has another end than one over restarts."""


class Looping:
    """Looks at queries whose batch fails in each process (the step ``bad_batch``)."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def judged(self, driver: SimDriver, judged: Judged) -> None:
        """Nothing changes by an evaluation."""

    def tick(self) -> None:
        """Check what each receiver shows of them, and how often it has notified."""
        now = self._stage.time.now
        for query in self._stage.queries.values():
            if now < query.bad_until:
                for receiver in filter(is_up, self._stage.receivers):
                    self._check_count(receiver, query)
                    self._check_words(receiver, query)

    def _check_count(self, receiver: SimReceiver, query: SimQuery) -> None:
        since = query.checkpoint.planned_at
        heard = Counter(
            (one.key, name)
            for one in receiver.notifications
            for key, name in one.named
            if key == query.key and one.at >= since
        )
        for (key, name), times in heard.items():
            if times > MOST.get(name, MOST_OF_OTHERS):
                raise Violation(
                    "P9", f"{receiver.name} notified {times} times of {key} in one loop"
                )

    def _check_words(self, receiver: SimReceiver, query: SimQuery) -> None:
        driver = self._stage.drivers[query.spec.driver]
        failed_at = driver.probe.failures.get(query.key)
        planned_at, now = query.checkpoint.planned_at, self._stage.time.now
        if failed_at is None or not driver.attached or now - failed_at < KNOWN_SECONDS:
            return
        if planned_at > driver.born_at - KNOWN_SECONDS or failed_at - planned_at < OLD_SECONDS:
            return
        mine = [
            one for one in receiver.open.values()
            if (query.key, query_failed.NAME) in one.shown
        ]  # fmt: skip
        if not any(WORDS in one.words for one in mine):
            raise Violation(
                "P9", f"nothing at {receiver.name} says that the batch of {query.key} fails in "
                f"process after process: {[one.words for one in mine]}"
            )  # fmt: skip
