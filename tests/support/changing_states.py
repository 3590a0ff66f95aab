"""A fake driver for the status page: its published state advances with the real clock."""

from __future__ import annotations

import time

import msgspec
from support.published_states import MONITOR, published
from support.story import Story, processing, run, source

from querypulse.alerting.facts import Reported
from querypulse.alerting.finding import QueryHealth
from querypulse.core.states import QueryState
from querypulse.exporter.published_state import Monitor, PublishedState, RecordingFolder

BEGAN = 1000.0
"""The story's clock when the driver is created."""
HOSTILE = "<img src=x onerror=\"document.title='owned'\">"
QUIET_MONITOR = msgspec.structs.replace(
    MONITOR,
    reregistrations=0,
    events_dropped={},
    internal_errors={},
    spool_problem=None,
    recordings=RecordingFolder(place="/incidents"),
    file_problems={},
    circuits_open={},
    alerts_lost={},
    outbox_pending={},
)


class ChangingState:
    """Each call returns a newer published of ``story``, evaluated by the real rules.

    ``health`` (label -> state, reason) overrides the results of the rules.
    ``frozen`` makes it return the same published for ever, like a worker that hangs.
    """

    def __init__(self, story: Story | None = None, *, expected=(), monitor=QUIET_MONITOR) -> None:
        self.story = story or Story()
        self.expected = tuple(expected)
        self.monitor: Monitor = monitor
        self.health: dict[str, tuple[str, str]] = {}
        self.ignored: tuple[str, ...] = ()
        self.change = lambda shown: shown
        self.frozen: PublishedState | None = None
        self._made_at = time.monotonic()

    @property
    def now(self) -> float:
        return BEGAN + time.monotonic() - self._made_at

    def __call__(self) -> PublishedState:
        return self.frozen or self.change(self._published())

    def freeze(self) -> None:
        self.frozen = self()

    def _published(self) -> PublishedState:
        wall = time.time()
        shown = published(self.story, now=self.now, expected=self.expected, app="telemetry")
        health = {label: self._health(label, query) for label, query in shown.health.items()}
        return msgspec.structs.replace(
            shown,
            wall=wall,
            health=health,
            alerts=tuple(
                msgspec.structs.replace(alert, starts_at=wall - 3) for alert in shown.alerts
            ),
            monitor=msgspec.structs.replace(self.monitor, heartbeat_timestamp=wall),
        )

    def _health(self, label: str, evaluated: QueryHealth) -> QueryHealth:
        if label in self.ignored:
            return msgspec.structs.replace(evaluated, ignored=True)
        if label not in self.health:
            return evaluated
        state, reason = self.health[label]
        return QueryHealth(
            QueryState(state), Reported(reason=reason, summary=""), evaluated.window_seconds
        )


def at_work(*names: str) -> ChangingState:
    """A driver whose queries keep running, however slow the machine is."""
    living = ChangingState(fleet(*names))
    living.health = dict.fromkeys(names, ("running", ""))
    return living


def working(story: Story, name: str, *, ago: float = 3.0, batches: int = 12, rows: float = 40.0):
    """A query that has committed ``batches`` batches, the last one ``ago`` seconds ago."""
    story.started(name, at=BEGAN - 600)
    for batch in range(batches):
        at = BEGAN - ago - (batches - 1 - batch) * 5
        seconds = 1.1 + 0.35 * ((batch * 7 + len(name)) % 5)
        lag = 20 * ((batch + len(name)) % 4)
        sources = (source({"0": 900 + batch}, {"0": 900 + batch + lag}),)
        story.commit(
            name,
            batch=batch,
            at=at,
            seconds=seconds,
            sources=sources,
            input_rows_per_second=rows,
            processed_rows_per_second=rows * 4,
        )
    return story


def fleet(*names: str) -> Story:
    """Running queries, all seen by the probe a moment ago."""
    story = Story()
    for index, name in enumerate(names):
        working(story, name, ago=2.0 + index % 3, rows=12.5 * (index + 1))
    polls = [run(name, trigger="ProcessingTimeTrigger(5000)", batch=12) for name in names]
    return story.probe(*polls, at=BEGAN - 0.5)


def in_flight(story: Story, name: str, *others: str, at: float):
    """The probe sees batch 12 of ``name`` being processed, and the others waiting."""
    return story.probe(processing(name, batch=12), *(run(other) for other in others), at=at)
