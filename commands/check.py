"""``querypulse check`` shows the settings in force, ``test-alert`` tries every receiver."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import msgspec
from msgspec.structs import replace

from ..alerting.alert import (
    TEST_ALERT,
    Alert,
    AlertOutcome,
    Incident,
    incident_key,
    incident_labels,
    problem_of,
)
from ..alerting.delivery.heartbeat import Heartbeat
from ..alerting.delivery.spool import try_folder
from ..alerting.finding import WHOLE_DRIVER, Severity
from ..alerting.receivers.receiver import DeliveryError, Receiver, is_loopback
from ..alerting.silences import read_silences
from ..core.folders import is_uri
from ..core.guard import Guard
from ..core.states import DeliveryOutcome
from ..exporter import push
from ..settings.links import guidance, runbooks_url
from ..settings.loading import load_strictly
from ..settings.receivers import (
    NOBODY,
    as_settings_error,
    expired_certificates,
    find_gap,
    receivers_text,
)
from ..settings.settings import TYPES, Settings, SettingsError, mask
from ..sidecar.assemble import (
    Components,
    http_options,
    make_heartbeat,
    make_receivers,
    make_redactor,
    refused_address,
)
from ..sidecar.preflight import known_risks

UNNAMED_APP = (
    "app_name is not set, so Spark's application name is used; if that is generic (pyspark-shell, "
    "Databricks Shell), alerts that an earlier process left open are not resolved at the start"
)
PROMETHEUS = (
    "Prometheus notifies if it gets the metrics of this driver and has loaded queries.yaml "
    "(docs/prometheus.md)."
)
NO_PROMETHEUS = (
    "Prometheus could notify instead: let it scrape this driver (http_host, http_port) or "
    "set pushgateway_url, and load queries.yaml (docs/prometheus.md)."
)


def check(environment: Mapping[str, str]) -> int:
    """Print every setting, secrets masked, and a summary; sends nothing.

    Returns 0, or 1 if nobody would be notified. Settings come from environment and file: the Spark
    conf is known only inside a job.

    Raises:
        SettingsError: a setting is unknown, not allowed, or refers to something unusable.

    """
    settings = load_strictly({}, environment)
    _require_usable(settings)
    width = max(map(len, TYPES))
    for name in TYPES:
        value = mask(name, getattr(settings, name))
        text = "-" if value is None else msgspec.json.encode(value).decode()
        sys.stdout.write(f"{name:<{width}}  {text:<34}  {settings.origins.get(name, 'default')}\n")
    note = UNNAMED_APP if settings.app_name is None else problem_of(settings.app_name)
    lacks_package = settings.otlp_endpoint is not None and not push.is_installed()
    notes = [
        note,
        push.NOT_INSTALLED if lacks_package else "",
        *expired_certificates(settings),
        *(risk.text for risk in known_risks(settings)),
        *_altered_hints(settings),
        *(
            f"{name}: {place} is only tried in the driver, by its Hadoop"
            for name, place in _folders(settings).items()
            if is_uri(place)
        ),
    ]
    for text in filter(None, notes):
        sys.stdout.write(f"note: {text}\n")
    code, summary = _who_is_notified(settings)
    sys.stdout.write(f"\nThese settings can be used{summary}\n")
    return code


def _altered_hints(settings: Settings) -> Iterator[str]:
    """Restart hints that no message shows as they are, because something looks like a secret."""
    redact = make_redactor(settings).text
    for pattern, hint in guidance(settings).restart_hints:
        shown = redact(hint)
        if shown != hint:
            yield (
                f"restart_hint of {pattern!r} seems to hold a secret and is shown as {shown!r}; "
                "name a script instead"
            )


def _who_is_notified(settings: Settings) -> tuple[int, str]:
    """The exit code, and the end of the summary."""
    gap = find_gap(settings, settings.app_name or "")
    if not gap:
        return 0, f": {receivers_text(settings)}. querypulse test-alert tries them."
    if not settings.enabled:
        return 1, f", but {gap}."
    is_scraped = settings.http_port >= 0 and not is_loopback(settings.http_host)
    pushes_otlp = settings.otlp_endpoint is not None and push.is_installed()
    is_exported = is_scraped or pushes_otlp or settings.pushgateway_url is not None
    code = 0 if gap == NOBODY and is_exported else 1
    return code, f", but {gap}. {PROMETHEUS if is_exported else NO_PROMETHEUS}"


def _require_usable(settings: Settings) -> None:
    """Try everything that can be tried without sending anything."""
    with as_settings_error(settings):
        http_options(None, settings)
    Components(settings, Guard())
    if settings.silence_file is not None:
        try:
            read_silences(Path(settings.silence_file))
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise settings.error(f"setting 'silence_file': {why}") from None
    require_folders(settings)
    if refused := refused_address(settings):
        raise SettingsError(refused)


def _folders(settings: Settings) -> dict[str, str]:
    """The folders that a driver writes, by the setting that names each."""
    places = {"spool_dir": settings.spool_dir, "incidents_dir": settings.incidents_dir}
    return {name: place for name, place in places.items() if place is not None}


def require_folders(settings: Settings) -> None:
    """Try the local folders as a driver uses them, with the rights of the current user.

    Raises:
        SettingsError: one cannot be made, locked or written; the message has the system's reason.

    """
    for name, place in _folders(settings).items():
        if is_uri(place):
            continue
        try:
            try_folder(Path(place), locks=name == "spool_dir")
        except OSError as error:
            reason = error.strerror or str(error)
            raise settings.error(f"setting {name!r}: {place}: {reason}") from None


# -- test-alert ---------------------------------------------------------------------------------


TAKEN = "accepted the test alert and its end"
GROUPED = "accepted the test alert: it notifies after its group_wait, and in minutes of the end"
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


def add_test_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``try_receivers``."""
    parser.add_argument(
        "--severity",
        choices=[severity.value for severity in Severity],
        default=Severity.WARNING.value,
        help="severity of the test alert (%(default)s); critical pages the person on call",
    )
    parser.add_argument("--app", help="the app of the test alert (default: the setting app_name)")


def try_receivers(environment: Mapping[str, str], severity: str, app: str | None) -> int:
    """Send a test alert, and its end, to every receiver; ping the heartbeat once.

    ``app`` is by default the setting ``app_name``. A receiver's ``severities`` and ``queries`` are
    ignored. Returns 0 when all accepted it, else 1.

    Raises:
        SettingsError: a setting cannot be used, or there is no receiver.

    """
    settings = load_strictly({}, environment)
    receivers = make_receivers(settings)
    heartbeat = make_heartbeat(settings, Guard())
    if not receivers and heartbeat is None:
        raise SettingsError(f"test-alert: {NOBODY}")
    require_folders(settings)
    incident = _incident(settings, severity, app or settings.app_name or "querypulse")
    attempts = {receiver.name: partial(_try, receiver, incident) for receiver in receivers}
    if heartbeat is not None:
        attempts[heartbeat.name] = partial(_ping, heartbeat)
    width = max(map(len, attempts))
    code = 0
    for name, attempt in attempts.items():
        result = attempt()
        sys.stdout.write(f"{name:<{width}}  {result}\n")
        sys.stdout.flush()
        code = code if result in (TAKEN, GROUPED, PINGED) else 1
    return code


def _ping(heartbeat: Heartbeat) -> str:
    error = heartbeat.try_once()
    return PINGED if error is None else f"did NOT accept the ping: {_explain(error)}"


def _try(receiver: Receiver, incident: Incident) -> str:
    """What came of the test alert and of its end, in plain words.

    One that groups by itself drops an alert that ends before it has notified of it: the alert ends
    there by itself.
    """
    ends = tuple(alert.ended(time.time(), AlertOutcome.TEST_OVER) for alert in incident.alerts)
    try:
        error = _send(receiver, incident)
        if error is not None and not error.may_have_arrived:
            return f"did NOT accept the test alert: {_explain(error)}"
        if error is None and receiver.capabilities.groups_itself:
            return GROUPED
        end_error = _send(receiver, replace(incident, alerts=ends))
    finally:
        receiver.close()
    if error is not None:
        return f"may NOT have accepted the test alert: {_explain(error)}"
    if end_error is not None:
        return f"accepted the test alert, but NOT its end: {_explain(end_error)}"
    return TAKEN


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


def _incident(settings: Settings, severity: str, app: str) -> Incident:
    labels = incident_labels(app, WHOLE_DRIVER, settings.labels)
    alert = Alert(
        labels={**labels, "alertname": TEST_ALERT, "severity": severity},
        annotations={
            "summary": f"[{app}] test alert of querypulse: nothing is wrong",
            "description": "Somebody ran 'querypulse test-alert'. The alert ends by itself.",
            "reason": "a test of the receivers",
            "runbook_url": runbooks_url(settings),
        },
        starts_at=time.time(),
    )
    # A key of its own: the test must not resolve the open incident of the driver.
    key = incident_key({**labels, "alertname": TEST_ALERT}, severity)
    return Incident(key, labels, severity, (alert,))
