"""A simulated month with a restart of each query an hour: state, series and outbox stay flat.

The real state, rules, lifecycle, outbox and exposition on a fake clock, evaluated a few times an
hour.
"""

from __future__ import annotations

import gc
from itertools import count
from operator import itemgetter
from typing import NamedTuple

import pytest
from support.published_states import WALL, published, text
from support.story import CONFLICT, Story, run

from querypulse.alerting.delivery.outbox import Outbox
from querypulse.alerting.incidents.lifecycle import Lifecycle, LifecycleSettings
from querypulse.alerting.receivers.receiver import ReceiverCapabilities
from querypulse.alerting.words.messages import Guidance
from querypulse.listener.events import Started

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
        self._outbox = Outbox(ReceiverCapabilities(per_minute=100.0, orphan_after_seconds=0.0))
        self._hour = 0
        self._batches = count()

    def pass_days(self, days: int) -> Size:
        for _ in range(days * 24):
            self._hour += 1
            happens = [(0.0, self._restart), (3.0, self._job)]
            happens += [(at, self._commit) for at in COMMITS_AT]
            happens += [(at, self._evaluate) for at in EVALUATED_AT]
            for at, happen in sorted(happens, key=itemgetter(0)):
                happen((self._hour - 1) * HOUR + at)
        gc.collect()
        shown = published(self.story, now=self._hour * HOUR)
        return Size(
            objects=len(gc.get_objects()),
            queries=len(shown.snapshot.queries),
            series=sum(not line.startswith("#") for line in text(shown).splitlines()),
            outbox=len(self._outbox.rows),
        )

    def _fails(self, stream: str) -> bool:
        return stream == "gold" and self._hour % FAILS_EVERY_HOURS == 0

    def _restart(self, at: float) -> None:
        """The failed one starts again three seconds after its failure, with its first commit."""
        for stream in STREAMS:
            error = CONFLICT if self._fails(stream) else None
            if self._hour > 1:
                self.story.ended(stream, self._hour - 1, at=at, exception=error)
            if error is None:
                self.story.started(stream, self._hour, at=at)

    def _job(self, at: float) -> None:
        if self._fails("gold"):
            self.story.started("gold", self._hour, at=at)
        name = f"job-{self._hour}"
        started = Started(f"id-{name}", f"{name}-1", name, trigger="AvailableNowTrigger")
        self.story.state.apply_event(started, at)
        self.story.commit(name, batch=0, at=at + 1.0).ended(name, at=at + 1.0)

    def _commit(self, at: float) -> None:
        batch = next(self._batches)
        for stream in STREAMS:
            self.story.commit(stream, self._hour, batch=batch, at=at)

    def _evaluate(self, at: float) -> None:
        if at % HOUR > COMMITS_AT[0]:
            self.story.probe(*(run(stream, self._hour) for stream in STREAMS), at=at)
        self.story.state.forget(at)
        evaluation, snapshot = self.story.evaluate(at), self.story.snapshot(at)
        self._outbox.offer(self._lifecycle.update(evaluation, snapshot, at, WALL + at), WALL + at)
        while (sent := self._outbox.begin(at, WALL + at)) is not None:
            self.notified += sent.ends_at is None
            self._outbox.delivered(WALL + at)


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
