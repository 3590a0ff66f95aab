"""Requests to one receiver: their errors are contained and counted."""

from __future__ import annotations

from collections import Counter

from ...core.guard import Guard
from ..alert import Incident
from ..receivers.answer import DeliveryOutcome
from ..receivers.receiver import Asked, DeliveryError, LeftOpen, Receiver

FAILED = "failed"
OUTCOMES = (*(answer.value for answer in DeliveryOutcome), FAILED)


class Talk:
    """``outcomes`` counts attempts to deliver; ``failed`` is an unexpected exception."""

    def __init__(self, receiver: Receiver, guard: Guard) -> None:
        self.outcomes: Counter[str] = Counter(dict.fromkeys(OUTCOMES, 0))
        self._receiver = receiver
        self._guard = guard

    def send(self, incident: Incident, wall: float) -> DeliveryError | None:
        """Why the receiver did not take it; None when it did."""
        try:
            self._receiver.send(incident, wall)
        except DeliveryError as error:
            self.outcomes[error.answer.value] += 1
            return error
        except Exception as error:  # noqa: BLE001 - a receiver's bug must not end the deliveries
            self.outcomes[FAILED] += 1
            self._report(error)
            return DeliveryError(
                type(error).__name__, DeliveryOutcome.TRANSIENT, may_have_arrived=True
            )
        self.outcomes[DeliveryOutcome.DELIVERED.value] += 1
        return None

    def ask(self, stale_resolves: tuple[Incident, ...], wall: float) -> tuple[LeftOpen, ...] | None:
        """The incidents of ``stale_resolves`` that are open there; None without an answer."""
        if not isinstance(self._receiver, Asked):
            return ()
        try:
            return self._receiver.left_open(stale_resolves, wall)
        except DeliveryError:
            return None
        except Exception as error:  # noqa: BLE001 - as above
            self._report(error)
            return None

    def _report(self, error: Exception) -> None:
        self._guard.report(f"deliver-{self._receiver.name}", error)
