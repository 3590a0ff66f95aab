"""The contract between deliveries and receivers."""

from __future__ import annotations

from typing import Protocol

from ..alert import Alert


class DeliveryError(Exception):
    """An alert was not accepted; the message never holds a secret.

    ``transient`` tells an outage (try again soon) from a refusal (try again slowly, for a
    rotated token must not lose a page). ``retry_after`` is what the receiver asked for, in seconds.
    ``may_have_arrived``: the request left and the answer did not come, so the receiver may
    act on it all the same.
    """

    def __init__(
        self,
        message: str,
        *,
        transient: bool,
        retry_after: float | None = None,
        may_have_arrived: bool = False,
    ) -> None:
        super().__init__(message)
        self.transient = transient
        self.retry_after = retry_after
        self.may_have_arrived = may_have_arrived


class Receiver(Protocol):
    """Tells one alert to one place; ``send`` is called by one thread."""

    name: str

    def send(self, alert: Alert, wall: float) -> None:
        """Tell a firing (``ends_at`` None) or resolved alert; ``wall`` is Unix time.

        Raises:
            DeliveryError: it was not accepted.

        """
        ...

    def close(self) -> None:
        """Give connections back; any thread may call it, and a ``send`` under way ends soon."""
        ...
