"""The roll and ``now`` -> what is to be told. Pure: no clock, no thread, no socket.

``now`` is monotonic seconds of the watcher, ``wall`` Unix seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from ...alerting.alert import Alert, Incident
from ...alerting.lifecycle.guidance import Guidance
from . import story
from .blindness import ADVICE, Blindness
from .look import Said
from .memory import Subject
from .roll import Key, Roll

FORGET_SECONDS = 24 * 3600.0
"""So long is waited for what only DNS has named, or an earlier watcher where none is down."""
EXPIRED = "driver was not seen for 24 hours"
BACK = "driver answers again"
STOPPED = "driver was shut down gracefully"
FRESH_SECONDS = 1.0
"""So long a look tells that nothing is wrong: what the driver reports itself comes after it."""


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """How it is told; each as in ``Settings``."""

    resolve_after_seconds: float
    repeat_interval_seconds: float
    guidance: Guidance


class Told(msgspec.Struct, frozen=True):
    """What is to be told now.

    ``incidents`` are those open, and once those that have just ended. ``closings`` are ended
    ones that a watcher before this one may have left open: given while a look has just shown that
    the driver is there. ``news`` are lines for the log.
    """

    incidents: tuple[Incident, ...]
    closings: tuple[Incident, ...]
    news: tuple[str, ...]


class _Open(msgspec.Struct, frozen=True):
    """An alert that fires; ``fired_at`` is since when, and with which revision, it does here."""

    alert: Alert
    fired_at: float
    revision: int = 0


class Judge:
    """Opens an alert for each driver of ``roll`` that is gone, and ends it when it is back."""

    def __init__(self, roll: Roll, terms: Terms) -> None:
        self.roll = roll
        self._terms = terms
        self._open: dict[Key, _Open] = {}
        self._inherited: dict[str, _Open] = {}
        self._missed: set[Key] = set()
        self._standing: dict[Key, str] = {}
        self._blindness = Blindness(terms.guidance, terms.repeat_interval_seconds)

    def inherit(self, incidents: Iterable[Incident], now: float) -> None:
        """Take over what an earlier watcher left open; it ends when its driver is seen well."""
        for incident in incidents:
            if incident.ends_at is None and not self._blindness.restore(incident, now):
                self._inherited[incident.key] = _Open(incident.alerts[0], now, incident.revision)

    def update(self, now: float, wall: float, muted: Callable[[Alert], str] = lambda _: "") -> Told:
        """Judge everyone on the roll; ``muted`` says why nobody is to be told of an alert now."""
        self._claim_inherited()
        over = [*self._end_open(now, wall), *self._end_inherited(now, wall)]
        names = self.roll.names()
        for key, subject in self.roll.subjects.items():
            if key not in self._open and self._is_gone(subject):
                alert = story.gone(subject, names[key], now, wall, self._terms.guidance)
                self._open[key] = _Open(alert, now)
        incidents = {alert.key: Incident((alert,)) for alert in over}
        for one in (*self._open.values(), *self._inherited.values()):
            reminders = int((now - one.fired_at) // self._terms.repeat_interval_seconds)
            revision = one.revision + reminders
            incidents[one.alert.key] = Incident((one.alert,), revision, muted(one.alert))
        blind = self._blindness.update(self.roll, now, wall, muted)
        return Told(
            (*incidents.values(), *blind),
            tuple(self._closings(now, wall)),
            tuple(self._news(names)),
        )

    def _claim_inherited(self) -> None:
        """What was left open of a listed URL is its driver's, as if it had been opened here."""
        for incident_key, one in list(self._inherited.items()):
            key = self.roll.expect(_address(one.alert), one.alert.labels["app"])
            if key is not None and key not in self._open:
                self._open[key] = self._inherited.pop(incident_key)

    def _end_open(self, now: float, wall: float) -> list[Alert]:
        over = []
        for key, one in list(self._open.items()):
            subject = self.roll.subjects.get(key)
            if subject is None:
                why = "driver is no longer watched, or known by its app now"
            elif subject.stopped:
                why = STOPPED
            elif self._is_well(subject):
                why = BACK
            elif _may_expire(subject) and now - one.fired_at > FORGET_SECONDS:
                why = EXPIRED
                self.roll.forget(key)
            else:
                continue
            over.append(self._open.pop(key).alert.ended(wall, outcome=why))
        return over

    def _end_inherited(self, now: float, wall: float) -> list[Alert]:
        over = []
        for key, one in list(self._inherited.items()):
            owners = self._owners(one.alert)
            if any(owner.stopped or self._is_well(owner) for owner in owners):
                why = BACK
            elif now - one.fired_at > FORGET_SECONDS and not self.roll.is_down(_address(one.alert)):
                why = EXPIRED
            else:
                continue
            over.append(self._inherited.pop(key).alert.ended(wall, outcome=why))
        return over

    def _closings(self, now: float, wall: float) -> list[Incident]:
        """For each driver that is found well and was never missed here."""
        self._missed.update(self._open)
        found = []
        for key, subject in self.roll.subjects.items():
            if key not in self._missed and self._is_well(subject) and subject.last is not None:
                late = now - subject.last.at
                names = self._closed_names(subject) if late <= FRESH_SECONDS else ()
                guidance = self._terms.guidance
                found += [story.closing(name, wall - late, guidance) for name in names]
        closings = {alert.key: Incident((alert,)) for alert in found}
        still_open = {*self._inherited, *(one.alert.key for one in self._open.values())}
        return [one for key, one in closings.items() if key not in still_open]

    def _closed_names(self, subject: Subject) -> tuple[str, ...]:
        """All that an earlier watcher may have called it; an app is well where all of it are."""
        full = tuple(dict.fromkeys((subject.full_name, subject.address)))
        subjects = self.roll.subjects.values()
        same = [one for one in subjects if one.app == subject.app and not one.stopped]
        return (subject.app, *full) if subject.app and all(map(self._is_well, same)) else full

    def _news(self, names: Mapping[Key, str]) -> list[str]:
        """What has changed, for the log."""
        told = {key: self._standing_of(key, names[key]) for key in self.roll.subjects}
        changed = [text for key, text in told.items() if text != self._standing.get(key, "")]
        self._standing = told
        return [text for text in changed if text]

    def _standing_of(self, key: Key, name: str) -> str:
        subject = self.roll.subjects[key]
        if key in self._open:
            return f"StreamingDriverDown: {self._open[key].alert.annotations.get('summary', name)}"
        if subject.stopped:
            return f"{name} has closed in good order"
        if subject.terminated:
            return f"{name} was ended by a signal and may come back"
        if self.roll.is_gone(subject):
            return f"{name} cannot be reached, and nothing else either: own network?"
        if subject.last is not None and subject.last.said is Said.BARRED:
            return f"{name} does not let this watcher in: {subject.last.detail}; {ADVICE}"
        return f"{name} is there: {subject.place.shown}" if subject.seen else ""

    def _is_gone(self, subject: Subject) -> bool:
        if not self.roll.is_gone(subject):
            return False
        return not subject.unsure or self.roll.network_works(subject)

    def _is_well(self, subject: Subject) -> bool:
        if subject.well_since is None or subject.last is None:
            return False
        return subject.last.at - subject.well_since >= self._terms.resolve_after_seconds

    def _owners(self, alert: Alert) -> list[Subject]:
        """Whom an alert of an earlier watcher may be about; at a URL, whom it found there."""
        called, at = alert.labels["app"], _address(alert)
        return [
            one
            for one in self.roll.subjects.values()
            if called in (one.name, one.full_name, one.address)
            and (one.place.group or at in ("", one.place.shown))
        ]


def _address(alert: Alert) -> str:
    """Where it was found; empty where it does not say."""
    return alert.annotations.get(story.ADDRESS, "")


def _may_expire(subject: Subject) -> bool:
    """Whether it may never come back: only DNS has named it, or another driver has its place."""
    return bool(subject.place.group) or subject.replaced
