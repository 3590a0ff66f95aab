"""Sends incidents to the Alertmanagers of one cluster."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, ClassVar
from urllib.parse import urlencode

import msgspec
from msgspec import Meta

from ...core.guard import Problem
from ...core.secret import Address, Secret, SecretFile
from ...core.states import DeliveryOutcome
from ...core.text import rfc3339, to_json
from ..alert import TEST_ALERT, Alert, AlertOutcome, Incident, is_generic
from ..words.messages import shown_annotations
from .http import TOTAL_SECONDS, HttpPoster, not_a_page
from .receiver import DeliveryError, HttpReceiverSettings, ReceiverCapabilities, ReceiverContext

log = logging.getLogger("querypulse")


# -- alerts -----------------------------------------------------------------------------------
# https://github.com/prometheus/alertmanager/blob/main/api/v2/openapi.yaml

PATH = "/api/v2/alerts"
RESEND_SECONDS = 60.0
"""How often firing alerts are posted again, as Prometheus does."""
RESEND_RESOLVED_SECONDS = 300.0
ABANDONED_SECONDS = 1.5 * RESEND_SECONDS
"""An alert that was not posted for so long has no process that posts it."""
LAPSE_SECONDS = 4 * RESEND_SECONDS
"""A warning or a test ends by itself this long after its last post, as with Prometheus."""
CRITICAL_LAPSE_SECONDS = 365 * 24 * 3600.0
"""The same for critical alerts: a driver that crashed with its query sends no more posts, and an
``endsAt`` that lapses would make Alertmanager report the failed query as resolved. A year is never:
it ends with the next process of the app, or by somebody who posts its end.
"""
GENERIC_LAPSE_SECONDS = 24 * 3600.0
"""The same where the name of the app is generic."""


CAUSE_LABEL = "cause"
OF_AN_ALERT = frozenset({"alertname", "severity", CAUSE_LABEL})
"""The labels that an alert has beyond those of its incident."""


class Shown(msgspec.Struct, frozen=True):
    """An alert that is open at an Alertmanager, and when it was last posted; times have a zone."""

    labels: dict[str, str]
    annotations: dict[str, str]
    startsAt: datetime  # noqa: N815 - the API's name
    updatedAt: datetime  # noqa: N815 - as above


def left_open(alerts: Iterable[Shown], labels: Mapping[str, str], wall: float) -> list[Alert]:
    """The ends of the alerts of these ``labels`` that no running process posts any more.

    Alerts with further labels are somebody else's, such as those of Prometheus.
    """
    return [
        Alert(alert.labels, alert.annotations, alert.startsAt.timestamp()).ended(
            wall, AlertOutcome.HEALTHY
        )
        for alert in alerts
        if wall - alert.updatedAt.timestamp() >= ABANDONED_SECONDS
        and {name: alert.labels[name] for name in alert.labels if name not in OF_AN_ALERT} == labels
    ]


def api_alerts(
    alerts: Iterable[Alert], wall: float, external_url: str = "", *, cause_label: bool = False
) -> list[dict[str, Any]]:
    """The alerts to post, with their causes as labels if ``cause_label``.

    One that goes on in another incident has the same labels there: its end would end both.
    """
    link = {"generatorURL": external_url} if external_url else {}
    return [
        {
            "labels": _with_cause(alert) if cause_label else alert.labels,
            "annotations": shown_annotations(alert),
            "startsAt": rfc3339(alert.starts_at),
            "endsAt": rfc3339(_ends_at(alert, wall)),
            **link,
        }
        for alert in alerts
        if not alert.is_superseded
    ]


def _with_cause(alert: Alert) -> dict[str, str]:
    """The labels with the cause: what an older version has opened, or this finds open, has none."""
    return alert.labels | ({CAUSE_LABEL: alert.cause} if alert.cause else {})


def _ends_at(alert: Alert, wall: float) -> float:
    if alert.ends_at is not None:
        return max(alert.ends_at, alert.starts_at)
    if not alert.is_critical or alert.name == TEST_ALERT:
        return wall + LAPSE_SECONDS
    # Under a generic name, no later process ends what this one leaves open.
    is_ended_later = not is_generic(alert.labels["app"])
    return wall + (CRITICAL_LAPSE_SECONDS if is_ended_later else GENERIC_LAPSE_SECONDS)


# -- alertmanager -----------------------------------------------------------------------------

LEAST_SECONDS = 3.0
SOONEST_FIRST = (DeliveryOutcome.TRANSIENT, DeliveryOutcome.MISCONFIGURED, DeliveryOutcome.REJECTED)
"""If members refuse differently, the outcome with the earliest retry counts."""


class Alertmanager:
    """Posts every incident to all members of the cluster; their gossip deduplicates it.

    One member that accepts is enough; a refusal by another is logged once, until it accepts again.
    Alertmanager ends alerts that are not repeated, so firing ones are posted again and again.
    """

    capabilities = ReceiverCapabilities(
        resend_seconds=RESEND_SECONDS,
        resend_resolved_seconds=RESEND_RESOLVED_SECONDS,
        orphan_after_seconds=ABANDONED_SECONDS,
        groups_itself=True,
    )

    def __init__(self, given: AlertmanagerSettings, context: ReceiverContext) -> None:
        """Check the URLs; see ``ReceiverSettings.makes``."""
        self.name = given.name
        self._external_url = context.external_url
        self._cause_label = given.cause_label
        credentials = context.secret("credentials") if given.credentials_file else None
        self._members = [
            HttpPoster(
                Secret(url.rstrip("/") + PATH),
                setting="urls",
                http=context.http,
                credentials=credentials,
                total_seconds=max(LEAST_SECONDS, TOTAL_SECONDS / len(given.urls)),
            )
            for url in given.urls
        ]
        text = "querypulse: %s: a member did not take an alert: %s"
        self._problems = [Problem(text, given.name) for _ in given.urls]

    def send(self, incident: Incident, wall: float) -> None:
        """Post the alerts of one incident, or end those that an orphan finds open."""
        labels = incident.labels
        left = left_open(self._shown(labels), labels, wall) if incident.is_orphan else None
        alerts = api_alerts(
            incident.alerts if left is None else left,
            wall,
            self._external_url,
            cause_label=self._cause_label,
        )
        if not alerts:
            return
        answers = [_error(member, alerts) for member in self._members]
        if len(self._members) > 1:
            for problem, answer in zip(self._problems, answers, strict=True):
                problem.note("" if answer is None else str(answer))
        errors = [answer for answer in answers if answer is not None]
        if len(errors) < len(answers):
            return
        soonest = min(errors, key=lambda error: SOONEST_FIRST.index(error.answer))
        soonest.may_have_arrived = any(error.may_have_arrived for error in errors)
        raise soonest

    def close(self) -> None:
        """Close the connections."""
        for member in self._members:
            member.close()

    def _shown(self, labels: Mapping[str, str]) -> tuple[Shown, ...]:
        """The open alerts with these labels; a member may know some that the others do not."""
        errors: list[DeliveryError] = []
        alerts: list[Shown] = []
        for member in self._members:
            try:
                alerts += _get(member, labels)
            except DeliveryError as error:  # noqa: PERF203 - a cluster has few members
                errors.append(error)
        if len(errors) == len(self._members):
            raise errors[0]
        alerts.sort(key=lambda alert: alert.updatedAt)
        return tuple({tuple(sorted(alert.labels.items())): alert for alert in alerts}.values())


def _get(member: HttpPoster, labels: Mapping[str, str]) -> tuple[Shown, ...]:
    """The open alerts with these labels at one member."""
    filters = urlencode(
        [
            ("filter", f"{name}={json.dumps(value, ensure_ascii=False)}")
            for name, value in labels.items()
        ]
    )
    answer = member.post(None, method="GET", address=lambda url: f"{url}?{filters}")
    try:
        return msgspec.json.decode(answer, type=tuple[Shown, ...])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        text = f"{member.place}: no list of alerts"
        raise DeliveryError(text, DeliveryOutcome.TRANSIENT) from None


def _error(member: HttpPoster, alerts: list[dict[str, Any]]) -> DeliveryError | None:
    """Why the member has accepted none of the alerts; None if it has accepted one.

    If it refuses all together, each is posted alone: one may be invalid.
    """
    try:
        not_a_page(member.post(to_json(alerts)), member.place)
    except DeliveryError as error:
        if error.answer is not DeliveryOutcome.REJECTED or len(alerts) == 1:
            return error
    else:
        return None
    errors = []
    for alert in alerts:
        refusal = _error(member, [alert])
        if refusal is not None and refusal.answer is not DeliveryOutcome.REJECTED:
            return refusal
        if refusal is not None:
            name, query = alert["labels"]["alertname"], alert["labels"]["query"]
            log.warning("querypulse: %s of %s is not taken: %s", name, query, refusal)
            errors.append(refusal)
    return errors[0] if len(errors) == len(alerts) else None


class AlertmanagerSettings(
    HttpReceiverSettings, tag_field="type", tag="alertmanager", frozen=True, kw_only=True
):
    """All members of one cluster."""

    makes = Alertmanager

    one_of = ("urls",)
    short_form: ClassVar[Mapping[str, str]] = {
        "urls": "alertmanager_urls",
        "credentials_file": "alertmanager_credentials_file",
    }
    urls: Annotated[tuple[Address, ...], Meta(min_length=1)]
    credentials_file: SecretFile | None = None
    cause_label: bool = False
    """Whether alerts have the label ``cause``, by which a fleet is grouped."""

    def targets(self) -> Sequence[str]:
        """The members."""
        return self.urls
