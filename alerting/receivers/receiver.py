"""The contract between deliveries and receivers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import msgspec

from ...core.outcomes import DeliveryOutcome
from ..alert import Incident


class DeliveryError(Exception):
    """An incident was not accepted; the message never holds a secret.

    ``answer`` decides what happens next. ``retry_after`` is what the receiver asked for, in
    seconds. ``may_have_arrived``: the request was sent but no answer came, so the receiver may
    still act on it.
    """

    def __init__(
        self,
        message: str,
        answer: DeliveryOutcome,
        *,
        retry_after: float | None = None,
        may_have_arrived: bool = False,
    ) -> None:
        super().__init__(message)
        self.answer = answer
        self.retry_after = retry_after
        self.may_have_arrived = may_have_arrived


class ReceiverCapabilities(msgspec.Struct, frozen=True):
    """What a kind of receiver needs beyond getting each change once.

    ``per_minute``: how many requests it accepts. ``resend_seconds``: how often firing alerts must
    be repeated. ``resend_resolved_seconds``: how long resolves must be repeated. ``reconciles``:
    alerts that an earlier process may have left open are resolved; if it ``can_be_asked``, only
    those that are open there (``Asked``), else all, since an unknown resolve is harmless.
    ``groups_itself``: it knows alerts but no incidents, so each alert is sent separately.
    """

    per_minute: float | None = None
    resend_seconds: float | None = None
    resend_resolved_seconds: float = 0.0
    reconciles: bool = False
    can_be_asked: bool = False
    groups_itself: bool = False


class Receiver(Protocol):
    """Sends incidents to one place; only one thread calls ``send``."""

    name: str
    capabilities: ReceiverCapabilities

    def send(self, incident: Incident, wall: float) -> None:
        """Send a firing (``ends_at`` None) or resolved incident; ``wall`` is Unix time.

        Raises:
            DeliveryError: it was not accepted.

        """
        ...

    def close(self) -> None:
        """Close the connections; any thread may call it, and a ``send`` in flight ends soon."""
        ...


class LeftOpen(msgspec.Struct, frozen=True):
    """An incident that is still open at a receiver; ``incident`` is its resolve.

    ``posted_at`` is when it was last posted, in Unix seconds of the receiver's clock.
    """

    incident: Incident
    posted_at: float


@runtime_checkable
class Asked(Protocol):
    """A receiver that can report which incidents are open there."""

    def left_open(self, stale_resolves: Sequence[Incident], wall: float) -> tuple[LeftOpen, ...]:
        """The incidents of ``stale_resolves`` that are still open there.

        Raises:
            DeliveryError: no answer came.

        """
        ...
