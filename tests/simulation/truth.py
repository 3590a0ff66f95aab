"""The true health of each query at each moment; only the simulated Spark writes it."""

from __future__ import annotations

from enum import Enum
from math import inf

import msgspec


class Health(str, Enum):
    ABSENT = "absent"
    STARTING = "starting"
    MOVING = "moving"
    """It was stuck and makes progress again; its batch has not committed yet."""
    HEALTHY = "healthy"
    DEAD = "dead"
    STUCK = "stuck"
    DELAYED = "delayed"
    """A task of its batch runs for long, or its job waits for slots; nothing finishes."""
    SLOW = "slow"
    STALE = "stale"
    """Its batches run, but its offsets do not advance although there is unread data."""
    REWOUND = "rewound"
    LAGGING = "lagging"
    GONE = "gone"
    """Stopped without an announcement."""
    STOPPED = "stopped"
    """Stopped as planned, or completed."""
    DOWN = "down"
    """Its driver has ended with it."""

    @property
    def is_bad(self) -> bool:
        """Whether it must be reported to a person."""
        return self in BAD


CALM = frozenset({Health.HEALTHY, Health.STOPPED, Health.ABSENT, Health.STARTING, Health.MOVING})
"""A query that failed before its restart is DEAD, not STARTING, until it shows life."""
OF_BATCH = frozenset({Health.STUCK, Health.DELAYED, Health.SLOW})
OF_SOURCE = frozenset({Health.STALE, Health.REWOUND, Health.LAGGING})
_SHOWS_LIFE = (
    frozenset({Health.HEALTHY, Health.MOVING, Health.DELAYED, Health.SLOW, Health.STOPPED})
    | OF_SOURCE
)
"""A delayed batch was planned and begun, so its query was not stuck."""
LIVES = frozenset({Health.HEALTHY, Health.STARTING, Health.MOVING, Health.SLOW}) | OF_SOURCE
WARNINGS = frozenset({Health.SLOW, Health.DELAYED, Health.REWOUND, Health.LAGGING})
BAD = frozenset({Health.DEAD, Health.STUCK, Health.DELAYED, Health.SLOW, Health.GONE}) | OF_SOURCE


class Episode(msgspec.Struct):
    """A time in which a query had one problem; ``waited`` counts the time that the monitor saw.

    ``previous`` is how long the query had been healthy before, as far as its driver saw it.
    """

    query: str
    health: Health
    began_at: float
    previous: float
    ended_at: float | None = None
    waited: dict[str, float] = {}
    answered: set[str] = set()
    notified: bool = False
    """Whether a receiver has notified somebody of it; an open incident may answer it as well."""
    first_batch: bool = False
    window: float = 0.0
    """The longest stall window that the monitor has shown meanwhile: it may shrink."""
    batch_window: float = 0.0
    """The same for the window of a batch in flight."""


class Truth:
    """The timeline of one query, and its episodes."""

    def __init__(self, query: str) -> None:
        self.query = query
        self.health = Health.ABSENT
        self.since = 0.0
        self.timeline: list[tuple[float, Health]] = [(0.0, Health.ABSENT)]
        self.episodes: list[Episode] = []
        self.unseen: list[tuple[float, float]] = []
        """When its driver was paused, or could not poll or read its log: begins and ends."""
        self.healthy_since: float | None = None
        """Since when it has been healthy, completed, stopped as planned, or restarted."""

    @property
    def episode(self) -> Episode | None:
        last = self.episodes[-1] if self.episodes else None
        return last if last is not None and last.ended_at is None else None

    def becomes(self, health: Health, at: float, *, first_batch: bool = False) -> None:
        if health is self.health:
            return
        if self.episode is not None:
            self.episode.ended_at = at
        self.health, self.since = health, at
        self.timeline.append((at, health))
        if health.is_bad:
            self._begin(health, at, first_batch=first_batch)
        if health.is_bad or health is Health.DOWN:
            self.healthy_since = None
        elif health not in (Health.STARTING, Health.MOVING) and self.healthy_since is None:
            self.healthy_since = at

    def _begin(self, health: Health, at: float, *, first_batch: bool) -> None:
        ended = [episode.ended_at for episode in self.episodes if episode.ended_at is not None]
        previous = self.seen_between(max(ended, default=0.0), at)
        self.episodes.append(Episode(self.query, health, at, previous, first_batch=first_batch))

    def seen_between(self, begin: float, end: float) -> float:
        """How long its driver was up and saw it between the two times."""
        ends = [*(at for at, _ in self.timeline[1:]), end]
        downs = [
            (at, until)
            for (at, health), until in zip(self.timeline, ends, strict=True)
            if health is Health.DOWN
        ]
        away = (min(until, end) - max(at, begin) for at, until in (*downs, *self.unseen))
        return end - begin - sum(max(0.0, seconds) for seconds in away)

    def unseen_until(self, now: float, until: float) -> None:
        """Record that nothing shows its state from now on."""
        last = max((end for _, end in self.unseen), default=now)
        if until > last:
            self.unseen.append((max(now, last), until))

    def batch_troubled_since(self, now: float) -> float:
        """Since when its batch has had any problem by then: one that hung may be slow or move now."""
        since = now
        for at, health in reversed(self.timeline):
            if at > now:
                continue
            if health not in OF_BATCH | {Health.MOVING}:
                break
            since = at
        return since

    @property
    def alive_at(self) -> float:
        """When it last became healthy or stopped; a finite run that is replaced is healthy."""
        calm = (Health.HEALTHY, Health.STOPPED)
        return max((at for at, health in self.timeline if health in calm), default=0.0)

    def healths_between(self, begin: float, end: float) -> set[Health]:
        """All its healths between the two times."""
        held = [(at, health) for at, health in self.timeline if at <= end]
        ends = [*(at for at, _ in held[1:]), end]
        return {health for (_, health), until in zip(held, ends, strict=True) if until >= begin}

    def shows_life_after(self, at: float, *, ends_by_itself: bool) -> float:
        """When it first showed progress or idleness after ``at``; a start shows neither.

        A stop shows it if no run follows, or if it is the end of a run that ``ends_by_itself``.
        So does a batch whose log is stuck at once, but not a run that another one replaces.
        """
        following = [*self.timeline[1:], (inf, Health.ABSENT)]
        shown = [
            max(began, at)
            for (began, health), (end, after) in zip(self.timeline, following, strict=True)
            if (end > max(began, at) or (began >= at and after is not Health.STARTING))
            and health in _SHOWS_LIFE
            and (health is not Health.STOPPED or ends_by_itself or end == inf)
        ]
        return min(shown, default=at)
