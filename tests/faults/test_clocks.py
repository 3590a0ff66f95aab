"""A change to daylight saving time, a suspended laptop, and a clock that is set raise no alert.

The real worker and rules on a fake clock: one query commits every 5 s, one idles, one fails.
"""

from __future__ import annotations

import time

import pytest
from msgspec.structs import replace
from support.published_states import published
from support.story import CONFLICT, processing, run
from support.worker_harness import WorkerHarness

from querypulse.alerting.receivers.alertmanager import api_alerts
from querypulse.exporter.status import status

HOUR = 3600.0
BEFORE_SECONDS = AFTER_SECONDS = 200
FAILS_AT = 100
BERLIN = "CET-1CEST,M3.5.0,M10.5.0/3"
"""Its rules: the change to summer time and back, as POSIX writes them."""
SPRING, AUTUMN = 1_679_792_400.0, 1_698_541_200.0
"""The changes of 2023."""


class ClockedQuery:
    """Three queries for some minutes around a moment; ``shown`` is what people saw each second."""

    def __init__(self, at: float) -> None:
        self.harness = WorkerHarness(stall_floor_seconds=30.0)
        self.harness.wall = at - BEFORE_SECONDS - self.harness.clock()
        self.shown: list[tuple[object, ...]] = []
        self._seconds = 0
        for query in ("busy", "quiet", "doomed"):
            self.harness.started(query).commit(query, batch=0)

    def live(self, seconds: int) -> ClockedQuery:
        for _ in range(seconds):
            self._second()
        return self

    def suspend(self, seconds: float) -> ClockedQuery:
        """The wall clock goes on; the monotonic one does not count (CLOCK_MONOTONIC of Linux)."""
        self.harness.wall += seconds
        return self

    def _second(self) -> None:
        self._seconds += 1
        batch, failed = self._seconds // 5, self._seconds >= FAILS_AT
        if self._seconds % 5 == 0:
            self.harness.commit("busy", batch=batch)
        if self._seconds == FAILS_AT:
            self.harness.ended("doomed", CONFLICT)
        self.harness.poll(
            processing("busy", batch=batch + 1),
            run("quiet", batch=1),
            run("doomed", active=not failed, batch=1, exception=CONFLICT if failed else None),
        )
        self.harness.step(after=1.0)
        self.shown.append(self._shown())

    def _shown(self) -> tuple[object, ...]:
        """The queries of ``/status``, and what an Alertmanager receives."""
        evaluated, wall = self.harness.published[-1], self.harness.wall + self.harness.clock()
        shown = status(
            replace(
                published(),
                snapshot=evaluated.snapshot,
                health=evaluated.evaluation.health,
                alerts=evaluated.alerts,
                wall=wall,
            )
        )
        sent = [api_alerts(incident.alerts, wall) for incident in self.harness.offers[-1]]
        return shown.queries, shown.alerts, sent

    @property
    def alerts(self) -> set[tuple[str, str]]:
        return {
            (alert.name, alert.labels["query"])
            for evaluated in self.harness.published
            for alert in evaluated.alerts
        }

    @property
    def ages(self) -> list[float | None]:
        """How long ago each query committed last, as it is shown now."""
        return [query.last_commit_age_seconds for query in self.shown[-1][0]]

    @property
    def starts(self) -> set[str]:
        """When the alert began, as each evaluation has shown it."""
        return {alert.starts_at for _, alerts, _ in self.shown for alert in alerts}


REPORTED = {("StreamingQueryFailed", "doomed")}


@pytest.fixture
def zone(monkeypatch):
    """Set the time zone of this process."""

    def change(name):
        monkeypatch.setenv("TZ", name)
        time.tzset()

    yield change
    monkeypatch.undo()
    time.tzset()


@pytest.mark.fault(
    "Time and pauses",
    "The time zone changes to daylight saving time, and back",
    "Every status and every message is the same as in UTC",
)
@pytest.mark.parametrize("change", [SPRING, AUTUMN])
def test_daylight_saving_time_changes_nothing(change, zone):
    zone(BERLIN)
    before, after = (time.localtime(change + seconds).tm_hour for seconds in (-1, 1))
    assert after - before in {2, 0}
    there = ClockedQuery(change).live(BEFORE_SECONDS + AFTER_SECONDS)
    zone("UTC")
    here = ClockedQuery(change).live(BEFORE_SECONDS + AFTER_SECONDS)

    assert there.shown == here.shown
    assert there.alerts == REPORTED


@pytest.mark.fault(
    "Time and pauses",
    "The host is suspended for eight hours, or its wall clock is set by one",
    "No alert; ages count the time awake, and the start of an alert stays",
)
@pytest.mark.parametrize("seconds", [8 * HOUR, HOUR, -HOUR])
def test_suspended_host_or_a_clock_that_is_set_raises_no_alert(seconds):
    jumped = ClockedQuery(SPRING).live(BEFORE_SECONDS).suspend(seconds).live(AFTER_SECONDS)
    steady = ClockedQuery(SPRING).live(BEFORE_SECONDS).live(AFTER_SECONDS)

    assert jumped.alerts == REPORTED
    assert jumped.ages == steady.ages
    assert jumped.starts == steady.starts
    assert len(jumped.starts) == 1
