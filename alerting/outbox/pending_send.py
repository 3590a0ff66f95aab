"""What to send of one entry of an outbox, and why. Pure."""

from __future__ import annotations

from enum import IntEnum

import msgspec
from msgspec.structs import replace

from ..alert import Incident
from ..receivers.receiver import ReceiverCapabilities
from .entry import DeliveryState, OutboxEntry, with_end

LATE_SECONDS = 60.0
"""A page that is sent later than this after it was queued says so."""


class SendReason(IntEnum):
    """Why something is sent, the most urgent first."""

    TRIGGER = 0
    RESOLVE = 1
    REPEAT = 2
    """The receiver knows it, but needs repetition."""
    STALE_RESOLVE = 3
    """A resolve of an incident that an earlier process may have left open."""


NO_NEWS = frozenset({SendReason.REPEAT, SendReason.STALE_RESOLVE})
"""Reasons of messages that are not urgent."""


class PendingSend(msgspec.Struct, frozen=True):
    """An incident to send: a trigger if ``ends_at`` is None, else a resolve."""

    incident: Incident
    reason: SendReason


def next_send(
    entry: OutboxEntry, capabilities: ReceiverCapabilities, wall: float
) -> PendingSend | None:
    """What to send of ``entry`` at Unix time ``wall``, if anything."""
    if entry.dead:
        # An attempt before the refused one may have arrived, and nobody else would resolve it.
        may_be_open = entry.is_over and entry.state is DeliveryState.UNSURE
        return PendingSend(entry.incident, SendReason.RESOLVE) if may_be_open else None
    if entry.earlier_end is not None:
        return PendingSend(entry.earlier_end, SendReason.TRIGGER)
    return (
        _wanted_once_over(entry, capabilities, wall)
        if entry.is_over
        else _wanted(entry, capabilities, wall)
    )


def _wanted(
    entry: OutboxEntry, capabilities: ReceiverCapabilities, wall: float
) -> PendingSend | None:
    if entry.incident.muted:
        return None
    if entry.state is not DeliveryState.FIRING or entry.incident.revision > entry.sent_revision:
        return PendingSend(entry.incident, SendReason.TRIGGER)
    return (
        PendingSend(entry.incident, SendReason.REPEAT)
        if _wants_repetition(entry, capabilities, wall)
        else None
    )


def _wanted_once_over(
    entry: OutboxEntry, capabilities: ReceiverCapabilities, wall: float
) -> PendingSend | None:
    if entry.state is DeliveryState.RESOLVED:
        repeated = _wants_repetition(entry, capabilities, wall)
        return PendingSend(entry.incident, SendReason.REPEAT) if repeated else None
    if entry.is_unsent and entry.is_critical and not entry.incident.muted:
        return PendingSend(with_end(entry.incident, None), SendReason.TRIGGER)
    return PendingSend(entry.incident, SendReason.RESOLVE)


def _wants_repetition(entry: OutboxEntry, capabilities: ReceiverCapabilities, wall: float) -> bool:
    """Whether it was sent long ago; a clock that is set back must not prevent it for ever."""
    if capabilities.resend_seconds is None or entry.sent_at is None:
        return False
    return not 0.0 <= wall - entry.sent_at < capabilities.resend_seconds


def delayed(pending: PendingSend, entry: OutboxEntry, wall: float) -> Incident:
    """The incident to send at Unix time ``wall``; a late page says how late it is."""
    late = wall - entry.queued_at
    if pending.reason is not SendReason.TRIGGER or not entry.is_unsent or late <= LATE_SECONDS:
        return pending.incident
    note = {"delivery_delay_seconds": f"{late:.0f}"}
    return replace(
        pending.incident,
        alerts=tuple(
            replace(alert, annotations={**alert.annotations, **note})
            for alert in pending.incident.alerts
        ),
    )
