"""Requests to one receiver: their errors are contained, counted and logged."""

from __future__ import annotations

import logging
from collections import Counter

from ...core.guard import Guard
from ...core.outcomes import FAILED, OUTCOMES, DeliveryOutcome
from ..alert import Incident
from ..receivers.receiver import Asked, DeliveryError, LeftOpen, Receiver

log = logging.getLogger("querypulse")


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


def log_refusal(
    name: str, incident: Incident, error: DeliveryError, wait_seconds: float | None
) -> None:
    """Log the error and what happens next; ``wait_seconds`` is None without another attempt."""
    queries = ", ".join(alert.labels["query"] for alert in incident.alerts)
    outcome = (
        f"kept, next attempt in {wait_seconds:.0f} s"
        if wait_seconds is not None
        else "not sent again as it is"
    )
    log.log(
        logging.WARNING if error.answer is DeliveryOutcome.TRANSIENT else logging.ERROR,
        "querypulse: %s did not take %s of %s: %s; %s",
        *(name, incident.name, queries, error, outcome),
    )
