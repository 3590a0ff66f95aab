"""Silences that people set, and the alerts that they cover: the truth for the properties."""

from __future__ import annotations

from fnmatch import fnmatchcase

from querypulse.alerting.alert import END_OF_TIME, Silence
from querypulse.listener.state.identity import UNNAMED

from .clock import Time
from .plan import QuerySpec

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
        """Silence a query, or all of them, from now on."""
        # The label of a namesake begins with the name.
        pattern = WHOLE if query is None else f"{query.name}*" if query.name else UNNAMED
        silence = Silence(pattern, self._time.wall() + seconds, alertname or "*", "planned")
        self.given.append(silence)
        self._all.append(SimSilence(query, silence, self._time.now))

    def tick(self) -> None:
        """Remember which silences are in force."""
        for one in self._all:
            if self._time.wall() < one.silence.until:
                if self._time.now - one.seen_at > GAP_SECONDS:
                    # The wall clock was set back: it is in force again.
                    one.began_at = self._time.now
                one.seen_at = self._time.now

    def covers(
        self, query: QuerySpec | None, name: str, *, since: float = 0.0, before: float | None = None
    ) -> bool:
        """Whether a silence that has lasted for ``since`` seconds covers this alert now.

        ``before`` is when the alert ended: a silence that began later does not cover it.
        """
        return any(
            one.covers(query, name)
            and (before is None or one.began_at < before)
            and self._time.wall() < one.silence.until
            and self._time.now - one.began_at >= since
            for one in self._all
        )

    def covered(self, query: QuerySpec | None, name: str, begin: float, end: float) -> bool:
        """Whether a silence covered this alert at some time between the two."""
        return any(
            one.covers(query, name) and one.began_at <= end and one.seen_at >= begin
            for one in self._all
        )
