"""``querypulse test-alert``: sends a test to every receiver and prints each answer."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial

import msgspec
from msgspec.structs import replace

from ..alerting.alert import Alert, Incident, incident_key, incident_labels
from ..alerting.finding import WHOLE_DRIVER, Severity
from ..alerting.heartbeat import Heartbeat
from ..alerting.receivers.receiver import DeliveryError, Receiver
from ..core.guard import Guard
from ..core.states import DeliveryOutcome
from ..settings import receivers as receivers_from_settings
from ..settings.links import runbook_base_url
from ..settings.loading import load_strictly
from ..settings.settings import Settings, SettingsError
from .check import require_spool

TEST_NAME = "QuerypulseTest"
TAKEN = "accepted the test alert and its end"
PINGED = "accepted the ping"
ADVICE = {
    DeliveryOutcome.TRANSIENT: (
        "an outage, or an address where nothing answers; alerts are kept meanwhile"
    ),
    DeliveryOutcome.MISCONFIGURED: (
        "address, key, certificate or proxy is wrong, or the receiver was removed there (410); "
        "alerts are kept meanwhile"
    ),
    DeliveryOutcome.REJECTED: "it does not accept this message; check the receiver's type and URL",
}


class TestRequest(msgspec.Struct, frozen=True):
    """The arguments of the command line; without ``app``, the setting ``app_name`` is used."""

    severity: str = Severity.WARNING.value
    app: str | None = None


def add_test_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments: the fields of a ``TestRequest``."""
    parser.add_argument(
        "--severity",
        choices=[severity.value for severity in Severity],
        default=TestRequest().severity,
        help="severity of the test alert (%(default)s); critical pages the person on call",
    )
    parser.add_argument("--app", help="the app of the test alert (default: the setting app_name)")


def try_receivers(request: TestRequest, environment: Mapping[str, str]) -> int:
    """Send a test alert, and its end, to every receiver; ping the heartbeat once.

    Returns 0 when all accepted it, else 1. Ignores a receiver's ``severities`` and ``queries``.

    Raises:
        SettingsError: a setting cannot be used, or there is no receiver.

    """
    settings = load_strictly({}, environment).settings
    receivers = receivers_from_settings.receivers(settings)
    heartbeat = receivers_from_settings.heartbeat(settings, Guard())
    if not receivers and heartbeat is None:
        raise SettingsError("test-alert: no receiver is configured")
    require_spool(settings)
    incident = _incident(settings, request, time.time())
    tries: list[tuple[str, Callable[[], str | None], str]] = [
        (receiver.name, partial(_try, receiver, incident), TAKEN) for receiver in receivers
    ]
    if heartbeat is not None:
        tries.append((heartbeat.name, partial(_try_heartbeat, heartbeat), PINGED))
    width = max(len(name) for name, *_ in tries)
    code = 0
    for name, problem_of, success in tries:
        problem = problem_of()
        sys.stdout.write(f"{name:<{width}}  {problem or success}\n")
        sys.stdout.flush()
        code = 1 if problem else code
    return code


def _try_heartbeat(heartbeat: Heartbeat) -> str | None:
    """What went wrong with one ping that reports no state; None when nothing did."""
    error = heartbeat.try_once()
    return None if error is None else f"did NOT accept the ping: {_explain(error)}"


def _try(receiver: Receiver, incident: Incident) -> str | None:
    """What went wrong, in plain words; None when nothing did."""
    outcome = "test alert of querypulse has ended"
    ends = tuple(alert.ended(time.time(), outcome=outcome) for alert in incident.alerts)
    try:
        error = _send(receiver, incident)
        if error is not None and not error.may_have_arrived:
            return f"did NOT accept the test alert: {_explain(error)}"
        end_error = _send(receiver, replace(incident, alerts=ends))
    finally:
        receiver.close()
    if error is not None:
        return f"may NOT have accepted the test alert: {_explain(error)}"
    if end_error is not None:
        return f"accepted the test alert, but NOT its end: {_explain(end_error)}"
    return None


def _send(receiver: Receiver, incident: Incident) -> DeliveryError | None:
    try:
        receiver.send(incident, time.time())
    except DeliveryError as error:
        return error
    return None


def _explain(error: DeliveryError) -> str:
    asks = error.answer is DeliveryOutcome.TRANSIENT and error.retry_after
    later = f", Retry-After {error.retry_after:.0f} s" if asks else ""
    return f"{error}{later} ({error.answer.value}: {ADVICE[error.answer]})"


def _incident(settings: Settings, request: TestRequest, now: float) -> Incident:
    app = request.app or settings.app_name or "querypulse"
    labels = incident_labels(app, WHOLE_DRIVER, settings.labels)
    alert = Alert(
        labels={**labels, "alertname": TEST_NAME, "severity": request.severity},
        annotations={
            "summary": f"[{app}] test alert of querypulse: nothing is wrong",
            "description": "Somebody ran 'querypulse test-alert'. The alert resolves at once.",
            "reason": "a test of the receivers",
            "runbook_url": runbook_base_url(settings),
        },
        starts_at=now,
    )
    # A key of its own: the test must not resolve the open incident of the driver.
    key = incident_key({**labels, "alertname": TEST_NAME}, request.severity)
    return Incident(key, labels, request.severity, (alert,))
