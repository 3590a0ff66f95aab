"""``querypulse test-alert``: tells every receiver of a test, and says what each answered."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping

from msgspec.structs import replace

from ...alerting.alert import Alert, Incident
from ...alerting.finding import WHOLE_DRIVER, Severity
from ...alerting.receivers.answer import Answer
from ...alerting.receivers.receiver import DeliveryError, Receiver
from ..configuration import receivers_from_settings
from ..configuration.settings import Settings, SettingsError
from ..configuration.settings_sources import load_strictly

TEST_NAME = "QuerypulseTest"
ADVICE = {
    Answer.TRANSIENT: "an outage, or an address where nobody answers; alerts are kept meanwhile",
    Answer.CONFIG_FAULT: "address, key, certificate or proxy is wrong; alerts are kept meanwhile",
    Answer.POISON: "it does not take such a message; check the receiver's type and URL",
    Answer.GONE: "it wants nothing any more; remove it, or make a new one there",
}


def try_receivers(environment: Mapping[str, str]) -> int:
    """Send a test alert of severity ``warning``, and its end, through every receiver.

    Returns 0 when all took both, else 1. Whatever a receiver's ``severities`` and ``queries``
    are, it is told.

    Raises:
        SettingsError: a setting cannot be used, or there is no receiver.

    """
    settings = load_strictly({}, environment).settings
    receivers = receivers_from_settings.receivers(settings)
    if not receivers:
        raise SettingsError("test-alert: no receiver is configured, so nobody would be told")
    incident = _incident(settings, time.time())
    width = max(len(receiver.name) for receiver in receivers)
    all_took_it = True
    for receiver in receivers:
        problem = _try(receiver, incident)
        all_took_it = all_took_it and problem is None
        outcome = problem or "took the test alert and its end"
        sys.stdout.write(f"{receiver.name:<{width}}  {outcome}\n")
        sys.stdout.flush()
    return 0 if all_took_it else 1


def _try(receiver: Receiver, incident: Incident) -> str | None:
    """What went wrong, in plain words; None when nothing did."""
    resolved = _resolved(incident, time.time())
    try:
        told = _send(receiver, incident)
        if told is not None and not told.may_have_arrived:
            return f"did NOT take the test alert: {_explain(told)}"
        ended = _send(receiver, resolved)
    finally:
        receiver.close()
    if told is not None:
        return f"did NOT surely take the test alert: {_explain(told)}"
    return f"took the test alert, but NOT its end: {_explain(ended)}" if ended else None


def _send(receiver: Receiver, incident: Incident) -> DeliveryError | None:
    try:
        receiver.send(incident, time.time())
    except DeliveryError as error:
        return error
    return None


def _explain(error: DeliveryError) -> str:
    later = f", it asks to wait {error.retry_after:.0f} s" if error.retry_after else ""
    return f"{error}{later} ({error.answer.value}: {ADVICE[error.answer]})"


def _incident(settings: Settings, now: float) -> Incident:
    alert = Alert(
        labels={
            "alertname": TEST_NAME,
            "app": settings.app_name or "querypulse",
            "query": WHOLE_DRIVER,
            "severity": Severity.WARNING.value,
        },
        annotations={
            "summary": "Test alert of querypulse: nothing is wrong",
            "description": "Somebody ran 'querypulse test-alert'. It ends by itself at once.",
            "reason": "a test of the receivers",
            "runbook_url": settings.runbook_base_url,
        },
        starts_at=now,
    )
    return Incident((alert,))


def _resolved(incident: Incident, now: float) -> Incident:
    return replace(incident, alerts=tuple(replace(alert, ends_at=now) for alert in incident.alerts))
