"""One incident in one receiver's account: what it should know, and what it knows. Pure."""

from __future__ import annotations

from enum import Enum, IntEnum

import msgspec
from msgspec.structs import replace

from ..alert import Incident
from ..finding import Severity
from ..receivers.receiver import Habits

LATE_SECONDS = 60.0
"""A page told later than this after it was queued says so."""
FORGOTTEN_AFTER_SECONDS = 24 * 3600.0
"""How long something that is over is still worth telling."""


class Told(str, Enum):
    """What the receiver knows of an incident."""

    NOTHING = "nothing"
    UNSURE = "unsure"
    """An attempt, to trigger or to resolve, may have arrived or not."""
    FIRING = "firing"
    RESOLVED = "resolved"


class Row(msgspec.Struct, frozen=True):
    """One incident as one receiver should know it, and what it was told; times in Unix seconds.

    ``incident`` is over when its ``ends_at`` is set. ``told_revision`` is the newest revision
    surely told. ``told_at`` is when something was last surely told; None while it is not sure
    that this occurrence was told at all. ``dead``: the receiver will not take this message;
    it is not sent again before its revision grows, one more query joins it, or it ends.
    ``unended`` is an occurrence before this one, with its end, which the receiver has to be told
    first: while that is open, this one would notify nobody. ``reuses_key``: the receiver refused
    that end. This one is sent all the same, and counts as not notified until an end is taken.
    """

    incident: Incident
    told: Told
    told_revision: int
    told_at: float | None
    queued_at: float
    dead: bool
    unended: Incident | None = None
    reuses_key: bool = False

    @property
    def is_over(self) -> bool:
        """Whether it fires no more."""
        return self.incident.ends_at is not None

    @property
    def is_critical(self) -> bool:
        """Whether it is worth waking somebody."""
        return self.incident.severity == Severity.CRITICAL.value

    @property
    def is_untold(self) -> bool:
        """Whether it is not sure that anybody ever heard of it."""
        return self.told is Told.NOTHING or (self.told is Told.UNSURE and self.told_at is None)

    @property
    def is_unnotified(self) -> bool:
        """Whether it is not sure that anybody was notified of it, whatever the receiver took."""
        return self.is_untold or self.reuses_key


class Why(IntEnum):
    """Why something is sent, the most urgent first."""

    TRIGGER = 0
    RESOLVE = 1
    REPEAT = 2
    """Known to the receiver, which forgets."""
    CLOSING = 3
    """Perhaps left open by an earlier process, and over."""


NO_NEWS = frozenset({Why.REPEAT, Why.CLOSING})
"""What nobody waits for."""


class Want(msgspec.Struct, frozen=True):
    """An incident as it is to be sent: ``ends_at`` None is a trigger, else a resolve."""

    incident: Incident
    why: Why


def queued(incident: Incident, wall: float, unended: Incident | None = None) -> Row:
    """A row of something nobody was told of yet."""
    told = Told.NOTHING if unended is None else Told.UNSURE
    return Row(incident, told, 0, None, wall, dead=False, unended=unended)


def wanted(row: Row, habits: Habits, wall: float) -> Want | None:
    """What to send of ``row`` at Unix time ``wall``, if anything."""
    if row.dead:
        return None
    if row.unended is not None:
        return Want(row.unended, Why.TRIGGER)
    return _wanted_once_over(row, habits, wall) if row.is_over else _wanted(row, habits, wall)


def _wanted(row: Row, habits: Habits, wall: float) -> Want | None:
    if row.incident.muted:
        return None
    if row.told is not Told.FIRING or row.incident.revision > row.told_revision:
        return Want(row.incident, Why.TRIGGER)
    return Want(row.incident, Why.REPEAT) if _wants_repetition(row, habits, wall) else None


def _wanted_once_over(row: Row, habits: Habits, wall: float) -> Want | None:
    if row.told is Told.RESOLVED:
        repeated = _wants_repetition(row, habits, wall)
        return Want(row.incident, Why.REPEAT) if repeated else None
    if row.is_untold and row.is_critical and not row.incident.muted:
        return Want(_with_end(row.incident, None), Why.TRIGGER)
    return Want(row.incident, Why.RESOLVE)


def _wants_repetition(row: Row, habits: Habits, wall: float) -> bool:
    """Whether it was told long ago; a clock set back must not make that for ever."""
    if habits.resend_seconds is None or row.told_at is None:
        return False
    return not 0.0 <= wall - row.told_at < habits.resend_seconds


def is_obsolete(row: Row) -> bool:
    """Whether it came and went unheard, and is not worth telling any more."""
    unheard = row.is_over and row.told is Told.NOTHING
    return unheard and (not row.is_critical or bool(row.incident.muted))


def is_settled(row: Row, habits: Habits, wall: float) -> bool:
    """Whether it is over and the receiver knows, or never will.

    A critical one that the receiver would not take stays, for a fallback to see.
    """
    ends_at = row.incident.ends_at
    if ends_at is None:
        return False
    if row.dead:
        return not (row.is_critical and row.is_untold)
    return row.told is Told.RESOLVED and wall >= ends_at + habits.resend_resolved_seconds


def is_expired(row: Row, wall: float) -> bool:
    """Whether it is over for so long that telling it makes no sense."""
    ends_at = row.incident.ends_at
    return ends_at is not None and wall > max(ends_at, row.queued_at) + FORGOTTEN_AFTER_SECONDS


def offered(row: Row, incident: Incident, wall: float) -> Row:
    """The row when its incident is now ``incident``."""
    came_back = row.is_over and incident.ends_at is None
    unmuted = bool(row.incident.muted) and not incident.muted and row.is_untold
    ended = not row.is_over and incident.ends_at is not None
    grown = incident.revision > row.incident.revision
    joined = bool(incident.members - row.incident.members)
    if came_back:
        # This occurrence was told to nobody, and perhaps the end of the last one neither.
        known = row.told in (Told.FIRING, Told.UNSURE)
        told = Told.UNSURE if known else Told.NOTHING
        unended = (row.unended or row.incident) if known else None
        row = replace(row, told=told, told_at=None, queued_at=wall, unended=unended)
    return replace(
        row,
        incident=incident,
        told_revision=min(row.told_revision, incident.revision),
        queued_at=wall if unmuted else row.queued_at,
        dead=row.dead and not (came_back or ended or grown or joined),
    )


def ended(row: Row, wall: float) -> Row:
    """The row when its incident fires no more at Unix time ``wall``."""
    if row.is_over:
        return row
    end = max(wall, *(alert.starts_at for alert in row.incident.alerts))
    return offered(row, _with_end(row.incident, end), wall)


def begun(row: Row, sent: Incident) -> Row:
    """The row while ``sent`` is under way: from now on it may have arrived.

    So a successor of a driver that is killed in this moment does not take it for untold.
    """
    if row.unended is not None:
        return row
    if sent.ends_at is None:
        known = row.told is Told.FIRING
        return row if known else replace(row, told=Told.UNSURE, told_at=None)
    return row if row.told is Told.RESOLVED else replace(row, told=Told.UNSURE)


def accepted(row: Row, sent: Incident, wall: float) -> Row:
    """The row after the receiver took ``sent`` at Unix time ``wall``."""
    if sent.ends_at is not None:
        row = replace(row, reuses_key=False)
    if row.unended is not None and sent.ends_at is not None:
        return replace(row, told=Told.NOTHING, told_at=None, unended=None)
    revision = min(sent.revision, row.incident.revision)
    if sent.ends_at is None:
        return replace(row, told=Told.FIRING, told_revision=revision, told_at=wall)
    if row.is_over:
        return replace(row, told=Told.RESOLVED, told_revision=revision, told_at=wall)
    return replace(row, told=Told.NOTHING, told_at=None)


def delayed(want: Want, row: Row, wall: float) -> Incident:
    """What is sent of ``want`` at Unix time ``wall``; a late page says how late it is."""
    late = wall - row.queued_at
    if want.why is not Why.TRIGGER or not row.is_untold or late <= LATE_SECONDS:
        return want.incident
    note = {"delivery_delay_seconds": f"{late:.0f}"}
    return replace(
        want.incident,
        alerts=tuple(
            replace(alert, annotations={**alert.annotations, **note})
            for alert in want.incident.alerts
        ),
    )


def _with_end(incident: Incident, end: float | None) -> Incident:
    """The incident with every alert firing (None), or with those that fire ending at ``end``."""
    return replace(
        incident,
        alerts=tuple(
            replace(alert, ends_at=end if end is None or alert.ends_at is None else alert.ends_at)
            for alert in incident.alerts
        ),
    )
