"""A simulated month with a restart of each query an hour: state, series and outbox stay flat.

The real state, rules, lifecycle, outbox and exposition on a fake clock, evaluated a few times an
hour.
"""

from __future__ import annotations

import gc
from operator import itemgetter
from typing import NamedTuple

import pytest
from support.published_states import MONITOR, text
from support.story import CONFLICT, Story, progress, run

from querypulse.alerting.alert_text import Guidance
from querypulse.alerting.lifecycle import Lifecycle, LifecycleSettings
from querypulse.alerting.outbox import Outbox
from querypulse.alerting.receivers.receiver import ReceiverCapabilities
from querypulse.exporter.published_state import PublishedState
from querypulse.listener.events import Started, Terminated

WALL = 1_700_000_000.0
HOUR, DAYS = 3600.0, 30
FAILS_EVERY_HOURS = 24
COMMITS_AT = (5.0, 10.0, 60.0, 900.0, 1800.0, 2700.0, 3500.0)
EVALUATED_AT = (2.0, 12.0, 70.0, 910.0)
STREAMS = ("bronze", "silver", "gold")
MORE_OBJECTS = 1000
"""A leak of one object for each restart would be 1,440 in twenty days."""


class Size(NamedTuple):
    """What the agent holds."""

    objects: int
    queries: int
    series: int
    outbox: int


class Month:
    """Three streams restart each hour, one of them after a failure once a day; a job of a new name
    runs to its end each hour.
    """

    def __init__(self) -> None:
        self.story = Story()
        self.notified = 0
        self._lifecycle = Lifecycle(
            "etl", Guidance("https://runbooks.example/{alertname}.md"), LifecycleSettings()
        )
        self._outbox = Outbox(ReceiverCapabilities(per_minute=100.0, stale_after_seconds=0.0))
        self._hour = 0

    def pass_days(self, days: int) -> Size:
        for _ in range(days * 24):
            self._pass_hour()
        gc.collect()
        return self._size()

    def _pass_hour(self) -> None:
        number, began = self._hour + 1, self._hour * HOUR
        self._hour += 1
        observed = [(began, self._restart, (number,)), (began + 3.0, self._job, (number,))]
        observed += [
            (began + at, self._commit, (number, index)) for index, at in enumerate(COMMITS_AT)
        ]
        observed += [(began + at, self._evaluate, (number,)) for at in EVALUATED_AT]
        for at, happen, arguments in sorted(observed, key=itemgetter(0)):
            happen(at, *arguments)

    def _restart(self, at: float, number: int) -> None:
        """The failed one starts again three seconds after its failure, with its first commit."""
        for stream in STREAMS:
            failed = stream == "gold" and number % FAILS_EVERY_HOURS == 0
            if number > 1:
                error = CONFLICT if failed else None
                ended = Terminated(f"id-{stream}", f"{stream}-{number - 1}", error, None)
                self.story.state.apply_event(ended, at)
            if not failed:
                self._start(at, stream, number)

    def _start(self, at: float, stream: str, number: int) -> None:
        self.story.state.apply_event(Started(f"id-{stream}", f"{stream}-{number}", stream), at)

    def _job(self, at: float, number: int) -> None:
        if number % FAILS_EVERY_HOURS == 0:
            self._start(at, "gold", number)
        name = f"job-{number}"
        self.story.state.apply_event(
            Started(f"id-{name}", f"{name}-1", name, trigger="AvailableNowTrigger"), at
        )
        self.story.state.apply_event(progress(name, batch=0), at + 1.0)
        self.story.state.apply_event(Terminated(f"id-{name}", f"{name}-1", None, None), at + 1.0)

    def _commit(self, at: float, number: int, index: int) -> None:
        for stream in STREAMS:
            batch = number * len(COMMITS_AT) + index
            self.story.state.apply_event(progress(stream, number, batch=batch), at)

    def _evaluate(self, at: float, number: int) -> None:
        runs = [run(stream, number) for stream in STREAMS]
        if at % HOUR > COMMITS_AT[0]:
            self.story.probe(*runs, at=at)
        self.story.state.forget(at)
        evaluation, snapshot = self.story.evaluate(at), self.story.state.snapshot(at)
        incidents = self._lifecycle.update(evaluation, snapshot, at, WALL + at)
        self._outbox.offer(incidents, WALL + at)
        while (sent := self._outbox.begin(at, WALL + at)) is not None:
            self.notified += sent.ends_at is None
            self._outbox.delivered(WALL + at)
        self._published = PublishedState(
            app="etl",
            spark_version="4.0.0",
            snapshot=snapshot,
            health=evaluation.health,
            alerts=self._lifecycle.alerts,
            monitor=MONITOR,
            wall=WALL + at,
        )

    def _size(self) -> Size:
        return Size(
            objects=len(gc.get_objects()),
            queries=len(self.story.state.snapshot(self._hour * HOUR).queries),
            series=sum(not line.startswith("#") for line in text(self._published).splitlines()),
            outbox=len(self._outbox.rows),
        )


@pytest.mark.slow
@pytest.mark.fault(
    "Time and pauses",
    "Thirty simulated days: each query restarts every hour, a job of a new name runs each hour",
    "State, series and outbox stay flat; one alert a day, for the one failure",
)
def test_month_of_restarts_leaves_everything_flat():
    month = Month()
    early = month.pass_days(DAYS // 3)
    late = month.pass_days(DAYS - DAYS // 3)

    assert late.objects < early.objects + MORE_OBJECTS
    assert late[1:] == early[1:]
    assert late.queries <= len(STREAMS) + 1
    assert late.outbox == 0
    assert month.notified == DAYS
