"""The log line for an incident that a receiver did not take."""

from __future__ import annotations

import logging

from ..alert import Incident
from ..receivers.answer import DeliveryOutcome
from ..receivers.receiver import DeliveryError

log = logging.getLogger("querypulse")


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
