"""One alert, from its first finding to its end, also if it fires again and again."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from ..core.text import duration
from .alert import LASTING, OCCURRENCE, Alert
from .finding import Severity
from .recovery import DriverHealth, RecoveryWindow
from .rules import query_failed, query_given_up

# -- flap guard -------------------------------------------------------------------------------
# Keeps an alert that fires again and again open, so that it is one incident.


CYCLES = 3
WITHIN_SECONDS = 24 * 3600.0
SHORTEST_CALM_SECONDS = 15 * 60.0
LONGEST_CALM_SECONDS = 2 * 3600.0
SHORTEST_NEWS_SECONDS = 120.0
LONGEST_NEWS_SECONDS = 15 * 60.0
MAX_HISTORIES = 1000


class FlapHistory(msgspec.Struct, frozen=True):
    """When one alert last began to fire. Monotonic seconds, on disk Unix seconds.

    ``longest_seconds`` is the longest time without a break for which its finding held.
    """

    key: str
    fired_at: tuple[float, ...] = ()
    longest_seconds: float = 0.0

    @property
    def held_seconds(self) -> float:
        """How long the finding must be absent before the alert resolves; 0 adds nothing.

        From the third time within a day on it is the time that the last three took: an alert that
        fires every 20 minutes must be absent for 40 minutes.
        """
        if len(self.fired_at) < CYCLES:
            return 0.0
        took = self.fired_at[-1] - self.fired_at[0]
        return min(LONGEST_CALM_SECONDS, max(SHORTEST_CALM_SECONDS, took))

    def since(self, begin: float) -> FlapHistory:
        """The history without what is older."""
        return replace(self, fired_at=tuple(at for at in self.fired_at if at >= begin)[-CYCLES:])

    def shifted(self, seconds: float) -> FlapHistory:
        """Convert the times to a clock that is ``seconds`` ahead."""
        return replace(self, fired_at=tuple(at + seconds for at in self.fired_at))


class FlapGuard:
    """Records for a day when each alert began to fire, and how long it lasted."""

    def __init__(self) -> None:
        self._known: dict[str, FlapHistory] = {}

    @property
    def histories(self) -> tuple[FlapHistory, ...]:
        """What the next process needs."""
        return tuple(self._known.values())

    def restore(self, histories: Iterable[FlapHistory], now: float) -> None:
        """Add what earlier processes recorded; a time in the future counts as now."""
        for past in histories:
            mine = self._known.get(past.key, FlapHistory(past.key))
            fired_at = sorted([*(min(at, now) for at in past.fired_at), *mine.fired_at])
            longest = max(past.longest_seconds, mine.longest_seconds)
            self._known[past.key] = FlapHistory(past.key, tuple(fired_at), longest)
        self._forget(now)

    def fires(self, key: str, now: float) -> float:
        """Record that an alert begins to fire; return ``held_seconds``."""
        self._forget(now)
        known = self._known.pop(key, FlapHistory(key))
        self._known[key] = replace(known, fired_at=(*known.fired_at, now)[-CYCLES:])
        if len(self._known) > MAX_HISTORIES:
            del self._known[next(iter(self._known))]
        return self.held_seconds(key)

    def held_seconds(self, key: str) -> float:
        """How long the finding of this alert must be absent before it resolves."""
        return self._known.get(key, FlapHistory(key)).held_seconds

    def lasted(self, key: str, seconds: float) -> None:
        """Record that the finding of this alert held for so long, and is absent now."""
        known = self._known.get(key)
        if known is not None and seconds > known.longest_seconds:
            self._known[key] = replace(known, longest_seconds=seconds)

    def news_seconds(self, key: str) -> float:
        """From when on it is news that this alert, which is held open, fires again.

        That is when it lasts longer than each time before, but at least 2 and at most 15 minutes.
        """
        longest = self._known.get(key, FlapHistory(key)).longest_seconds
        return min(LONGEST_NEWS_SECONDS, max(SHORTEST_NEWS_SECONDS, longest))

    def _forget(self, now: float) -> None:
        fresh = (one.since(now - WITHIN_SECONDS) for one in self._known.values())
        self._known = {one.key: one for one in fresh if one.fired_at}


def note(calm_seconds: float, *, lasts: bool = False) -> str:
    """The annotation of an alert that is held open; ``lasts``: longer than each time before."""
    text = (
        f"it has fired {CYCLES} times within {duration(WITHIN_SECONDS)}: "
        f"held open until {duration(calm_seconds)} of calm"
    )
    return f"{text}; this time it lasts longer than before" if lasts else text


# -- active alert -----------------------------------------------------------------------------
# One alert, from its first finding to its end.


FACTS = frozenset({query_failed.NAME, query_given_up.NAME})
"""Alerts that fire at the first evaluation; all others need two in a row, to ignore glitches."""

POLLS = 2
UNSEEN_SECONDS = 24 * 3600.0
"""An alert of an earlier driver waits this long for its query to be seen."""


class ActiveAlert(msgspec.Struct, frozen=True):
    """Pending until ``begun``; then firing while ``found``, and recovering otherwise.

    ``polls`` counts the evaluations with its finding. ``held_seconds``: the alert has fired too
    often, and stays open until its finding is absent for this long. ``unseen_since`` (monotonic
    seconds): an earlier driver left the alert open, and this one has not seen its query since then.
    ``found_since`` is when the finding appeared, None while it is absent; ``is_relapse``: the alert
    was open by then, so nobody was notified of that.
    """

    alert: Alert
    polls: int = 1
    begun: bool = False
    found: bool = True
    recovery: RecoveryWindow | None = None
    held_seconds: float = 0.0
    unseen_since: float | None = None
    found_since: float | None = None
    is_relapse: bool = False

    @property
    def query(self) -> str:
        """The value of its label ``query``."""
        return self.alert.labels["query"]

    @property
    def severity(self) -> str:
        """The value of its label ``severity``."""
        return self.alert.labels["severity"]

    @property
    def is_firing(self) -> bool:
        """Whether its query is unhealthy, or has not been seen yet."""
        return self.begun and (self.found or self.unseen_since is not None)

    @property
    def is_ripe(self) -> bool:
        """Whether it may begin to fire: in ``FACTS``, or found at two evaluations in a row."""
        return not self.begun and (self.polls >= POLLS or self.alert.name in FACTS)


def found_again(active: ActiveAlert, alert: Alert, health: DriverHealth) -> ActiveAlert:
    """The alert with the newest annotations, but its old start; a critical one stays critical.

    Otherwise a value that oscillates around its limit would notify each time.
    """
    seen = health.knows(active.query)
    known = active.alert
    labels = _labels(alert, known) if active.begun else alert.labels
    is_back = not active.found
    return replace(
        active,
        alert=_worded(
            replace(alert, labels=labels, starts_at=known.starts_at), held=active.held_seconds
        ),
        polls=active.polls + 1,
        found=True,
        recovery=None,
        unseen_since=None if seen else active.unseen_since,
        found_since=health.now if is_back else active.found_since,
        is_relapse=active.begun if is_back else active.is_relapse,
    )


def escalates(active: ActiveAlert, alert: Alert) -> bool:
    """Whether a warning that has fired has become critical."""
    return active.begun and _is_milder(active.alert, alert)


def is_news(active: ActiveAlert, health: DriverHealth, news_seconds: float) -> bool:
    """Whether a critical alert that is held open fires again, and for so long that it is news."""
    if not (active.is_relapse and active.held_seconds and active.found_since is not None):
        return False
    critical = active.severity == Severity.CRITICAL.value
    return critical and health.watched_since(active.found_since) > news_seconds


def as_news(active: ActiveAlert) -> ActiveAlert:
    """The alert under the other one of its two identities, which is not open."""
    labels = {**active.alert.labels, OCCURRENCE: LASTING}
    if active.alert.is_lasting:
        del labels[OCCURRENCE]
    alert = _worded(replace(active.alert, labels=labels), held=active.held_seconds, lasts=True)
    return replace(active, alert=alert, is_relapse=False)


def not_found(active: ActiveAlert, health: DriverHealth) -> ActiveAlert:
    """The alert without its finding: it recovers unless its query is unhealthy in another way."""
    active = replace(active, found=False, found_since=None)
    if active.unseen_since is not None and not health.knows(active.query):
        return replace(active, recovery=None)
    recovery = health.recovery(active.query, active.severity, active.recovery)
    unseen_since = None if health.has_seen(active.query) else active.unseen_since
    return replace(active, recovery=recovery, unseen_since=unseen_since)


def begin(active: ActiveAlert, held_seconds: float) -> ActiveAlert:
    """The alert, firing from now on."""
    return replace(
        active,
        begun=True,
        held_seconds=held_seconds,
        alert=_worded(active.alert, held=held_seconds),
    )


def is_over(active: ActiveAlert, health: DriverHealth, resolve_after_seconds: float) -> bool:
    """Whether the query has been proven healthy for long enough."""
    if active.recovery is None:
        return False
    seconds = max(active.held_seconds, resolve_after_seconds)
    return health.has_recovered(active.query, active.recovery, seconds)


def is_expired(active: ActiveAlert, now: float) -> bool:
    """Whether its query has not been seen for a day; call it only if the finding is absent."""
    since = active.unseen_since
    return since is not None and now - since >= UNSEEN_SECONDS


def _is_milder(new: Alert, old: Alert) -> bool:
    critical = Severity.CRITICAL.value
    return old.labels["severity"] == critical != new.labels["severity"]


def _labels(new: Alert, known: Alert) -> dict[str, str]:
    """The labels of an open alert, which only becomes more severe."""
    if _is_milder(known, new):
        return new.labels
    kept = {name: known.labels[name] for name in (OCCURRENCE, "severity") if name in known.labels}
    return new.labels | kept


def _worded(alert: Alert, *, held: float, lasts: bool = False) -> Alert:
    if not held:
        return alert
    text = note(held, lasts=lasts or alert.is_lasting)
    return replace(alert, annotations={**alert.annotations, "flapping": text})
