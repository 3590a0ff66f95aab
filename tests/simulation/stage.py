"""The world that all properties check: its silences, and the violation of a property."""

from __future__ import annotations

from fnmatch import fnmatchcase
from math import inf
from typing import Any, Protocol

from querypulse.alerting import kinds
from querypulse.alerting.incidents.lifecycle import Evaluated
from querypulse.alerting.silences import END_OF_TIME, Silence
from querypulse.listener.state.identity import UNNAMED

from .clock import Time
from .driver import WHOLE_DRIVER, SimDriver, SimGuard
from .plan import Plan, QuerySpec
from .queries import SimQuery
from .receivers import Open, SimReceiver, alertmanager_key
from .truth import Health

# -- silences ------------------------------------------------------------------------------------


WHOLE = "*"
UNDER_WAY_SECONDS = 12.0
"""A message that left just before a silence began arrives within this time."""

GAP_SECONDS = 3.0
"""Longer than the pause between two ticks."""


class SimSilence:
    """One silence; ``seen_at`` is when it was last in force."""

    def __init__(self, spec: QuerySpec | None, silence: Silence, now: float) -> None:
        self.silence = silence
        self.began_at = self.seen_at = now
        self._spec = spec

    def covers(self, query: QuerySpec | None, name: str) -> bool:
        """Whether it covers this alert of this query; None is the whole driver."""
        if not fnmatchcase(name, self.silence.alertname):
            return False
        if self._spec is None:
            return True
        # Unnamed queries share their alerts, and so the silence.
        return query is not None and query.name == self._spec.name


class Silences:
    """All silences of a history; drivers read ``given`` at each evaluation."""

    def __init__(self, time: Time) -> None:
        # One for all alerts of another app, which covers nothing here.
        self.given: list[Silence] = [Silence(WHOLE, END_OF_TIME, app="payments")]
        self._all: list[SimSilence] = []
        self._time = time

    def add(self, query: QuerySpec | None, seconds: float, alertname: str) -> None:
        # The label of a namesake begins with the name.
        pattern = WHOLE if query is None else f"{query.name}*" if query.name else UNNAMED
        silence = Silence(pattern, self._time.wall() + seconds, alertname or "*", "planned")
        self.given.append(silence)
        self._all.append(SimSilence(query, silence, self._time.now))

    def tick(self) -> None:
        for silence in self._all:
            if self._time.wall() < silence.silence.until:
                if self._time.now - silence.seen_at > GAP_SECONDS:
                    # The wall clock was set back: it is in force again.
                    silence.began_at = self._time.now
                silence.seen_at = self._time.now

    def covers(
        self, query: QuerySpec | None, name: str, *, since: float = 0.0, before: float | None = None
    ) -> bool:
        """Whether a silence that has lasted for ``since`` seconds covers this alert now.

        ``before`` is when the alert ended: a silence that began later does not cover it.
        """
        return any(
            silence.covers(query, name)
            and (before is None or silence.began_at < before)
            and self._time.wall() < silence.silence.until
            and self._time.now - silence.began_at >= since
            for silence in self._all
        )

    def covered(self, query: QuerySpec | None, name: str, begin: float, end: float) -> bool:
        """Whether a silence covered this alert at some time between the two."""
        return any(
            silence.covers(query, name) and silence.began_at <= end and silence.seen_at >= begin
            for silence in self._all
        )


# -- stage ---------------------------------------------------------------------------------------


TICK_SECONDS = 2.0
"""The interval of the checks."""
SEEN_SECONDS = 8.0
"""How long a poll of the probe is fresh."""
RESOLVE_SECONDS = 30.0
_DRIVER = {kinds.DRIVER_DOWN, kinds.QUERY_STOPPED}
_ENDED = frozenset({kinds.QUERY_FAILED, kinds.QUERY_FLAPPING, *_DRIVER})
_OF_BATCH = frozenset({kinds.QUERY_STALLED, kinds.BATCH_SLOW, *_DRIVER})
SAYS = {
    Health.DEAD: _ENDED,
    Health.GONE: _ENDED,
    Health.STUCK: _OF_BATCH | {kinds.OFFSETS_STALLED, kinds.QUERY_MISSING},
    Health.DELAYED: _OF_BATCH | {kinds.QUERY_MISSING},
    Health.STALE: frozenset({kinds.OFFSETS_STALLED, *_DRIVER}),
    Health.REWOUND: frozenset({kinds.OFFSETS_REWOUND, *_DRIVER}),
    Health.LAGGING: frozenset({kinds.QUERY_LAGGING, *_DRIVER}),
    Health.SLOW: _OF_BATCH,
}
"""The alerts that may report each problem."""


class Violation(BaseException):
    """A property did not hold at a moment of a history; no guard of the product contains it."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(f"{name}: {text}")
        self.name = name
        self.text = text


class WorldView(Protocol):
    """The parts of the world that the properties may read."""

    plan: Plan
    time: Time
    queries: dict[str, SimQuery]
    drivers: dict[str, SimDriver]
    receivers: list[SimReceiver]
    silences: Silences
    guard: SimGuard
    boots: list[tuple[float, str]]
    longest_delay: float


class Property:
    """One property; it raises ``Violation`` when it does not hold."""

    def __init__(self, stage: WorldView) -> None:
        self._stage = stage
        self._done: dict[tuple[str, str], int] = {}

    def new(self, receiver: SimReceiver, kind: str) -> list[Any]:
        """What has come to a list of the receiver since this was asked last."""
        entries = getattr(receiver, kind)
        done, self._done[receiver.name, kind] = (
            self._done.get((receiver.name, kind), 0),
            len(entries),
        )
        return list(entries[done:])

    def tick(self) -> None:
        """Check after ``TICK_SECONDS``."""

    def evaluated(self, driver: SimDriver, evaluated: Evaluated) -> None:
        """Check an evaluation of a driver."""

    def driver_of(self, query: SimQuery) -> SimDriver:
        return self._stage.drivers[query.spec.driver]

    def has_namesake(self, query: SimQuery) -> bool:
        """Whether another query has its name."""
        names = [other.spec.name for other in self._stage.queries.values()]
        return query.spec.name is not None and names.count(query.spec.name) > 1

    def holds(self, receiver: SimReceiver, query: SimQuery, names: frozenset[str]) -> list[Open]:
        """The open incidents of a receiver that hold one of these alerts of the query.

        One that people read is not sent again when an alert joins it; they were notified of it.
        """
        driver = self.driver_of(query)
        joined = {
            key
            for incident in driver.handing.open
            for alert in incident.firing
            if any((query.key, name) in driver.about(alert) for name in names)
            for key in (incident.key, alertmanager_key(alert))
        }
        return [
            held
            for held in receiver.open.values()
            if held.key in joined or any((query.key, name) in held.shown for name in names)
        ]

    def lost_until(self, query: SimQuery) -> float:
        return self.driver_of(query).bus.lost_until.get(query.key, -inf)


def recovery_seconds(query: SimQuery) -> float:
    """How long an alert may stay open after the query's first sign of life."""
    spec = query.spec
    # The first commit that a log shows may be that of the run before.
    commits = 3 if spec.is_continuous else 2
    return RESOLVE_SECONDS + max(commits * (spec.every + spec.takes), 12.0 + spec.every) + 20.0


def is_seen(driver: SimDriver, key: str) -> bool:
    """Whether the monitor runs, and the probe shows the present state of this query."""
    now = driver.time.now
    if not driver.attached or not driver.awake or now - driver.awake_since < SEEN_SECONDS:
        return False
    if now - driver.attached_at < SEEN_SECONDS:
        return False
    return now - driver.probe.answered.get(key, float("-inf")) <= SEEN_SECONDS


def forgets(stage: WorldView, driver: SimDriver) -> bool:
    """Whether more queries have ended than are remembered: then the oldest alerts resolve."""
    gone = sum(query.key not in driver.spark.living for query in driver.queries)
    # An unnamed query under a new id leaves its old id behind.
    gone += sum(len(query.query_ids) - 1 for query in driver.queries if query.spec.name is None)
    return gone >= stage.plan.setup.memory


def is_end_unreported(stage: WorldView, query: SimQuery) -> bool:
    """Whether nothing shows that its last, finite run has completed.

    Its end was lost, or no signal has shown that it would end by itself.
    """
    driver = stage.drivers[query.spec.driver]
    lost = driver.bus.lost_until.get(query.key, -inf) >= query.started_at
    polled = driver.probe.answered.get(query.key, -inf) >= query.started_at
    unknown = query.started_at < driver.attached_at and not polled
    return query.spec.is_finite and (lost or unknown)


def is_of_all(key: str) -> bool:
    """Whether it is the key of a group or of the whole driver, at any receiver."""
    return _is_of(WHOLE_DRIVER, key)


def is_of_unnamed(key: str) -> bool:
    """Whether it is the key of the shared alert of unnamed queries, at any receiver."""
    return _is_of(UNNAMED, key)


def _is_of(query: str, key: str) -> bool:
    return key.removesuffix("/warning").endswith(f"/{query}") or f'"query": "{query}"' in key


def is_up(receiver: SimReceiver, since: float = inf) -> bool:
    """Whether the receiver works, and its breaker has had time to detect that.

    A message queued before it answered 410 may wait for an hour.
    """
    return receiver.is_up_from < receiver.now and since > receiver.gone_until
