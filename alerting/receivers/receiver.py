"""The contract between deliveries and receivers."""

from __future__ import annotations

from typing import Protocol

from ..alert import Alert


class DeliveryError(Exception):
    """An alert was not accepted; the message never holds a secret.

    ``transient`` tells an outage (try again soon) from a refusal (try again slowly, for a
    rotated token must not lose a page). ``retry_after`` is what the receiver asked for, in seconds.
    """

    def __init__(self, message: str, *, transient: bool, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.transient = transient
        self.retry_after = retry_after


class Receiver(Protocol):
    """Tells one alert to one place; used by one thread."""

    name: str

    def send(self, alert: Alert, wall: float) -> None:
        """Tell a firing (``ends_at`` None) or resolved alert; ``wall`` is Unix time.

        Raises:
            DeliveryError: it was not accepted.

        """
        ...

    def close(self) -> None:
        """Give connections back."""
        ...
