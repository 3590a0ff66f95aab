"""Sends incidents to the Alertmanagers of one cluster."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from ...core.outcomes import DeliveryOutcome
from ...core.secret import Secret
from ..alert import Incident
from .alertmanager_alerts import (
    RESEND_RESOLVED_SECONDS,
    RESEND_SECONDS,
    Shown,
    alerts_url,
    api_alerts,
    open_alerts_url,
    shown,
    still_open,
)
from .declaration import Address, HttpReceiverSettings, ReceiverContext, ReceiverType
from .encoding import to_json
from .http import TOTAL_SECONDS, HttpError, HttpPoster
from .http_options import HttpOptions
from .receiver import LeftOpen, ReceiverCapabilities
from .web_page import not_a_page

log = logging.getLogger("querypulse")

LEAST_SECONDS = 3.0
SOONEST_FIRST = (DeliveryOutcome.TRANSIENT, DeliveryOutcome.MISCONFIGURED, DeliveryOutcome.REJECTED)
"""If members refuse differently, the outcome with the earliest retry counts."""


class AlertmanagerSettings(
    HttpReceiverSettings, tag_field="type", tag="alertmanager", frozen=True, kw_only=True
):
    """All members of one cluster."""

    urls: Annotated[tuple[Address, ...], Meta(min_length=1)]


class Alertmanager:
    """Posts every incident to all members of the cluster; their gossip deduplicates it.

    One member that accepts is enough; a refusal by another is logged once, until it accepts again.
    Alertmanager ends alerts that are not repeated, so firing ones are posted again and again.
    """

    capabilities = ReceiverCapabilities(
        resend_seconds=RESEND_SECONDS,
        resend_resolved_seconds=RESEND_RESOLVED_SECONDS,
        reconciles=True,
        can_be_asked=True,
        groups_itself=True,
    )

    def __init__(
        self,
        urls: Sequence[str],
        *,
        name: str = "alertmanager",
        http: HttpOptions | None = None,
        external_url: str = "",
    ) -> None:
        """Check the settings; ``external_url`` is the link to more information.

        Raises:
            ValueError: there is no URL, or one cannot be used; the message names the setting.

        """
        if not urls:
            raise ValueError("alertmanager_urls must name at least one Alertmanager")
        self.name = name
        self._external_url = external_url
        self._members = [
            HttpPoster(
                Secret(alerts_url(url)),
                setting="alertmanager_urls",
                http=http,
                total_seconds=max(LEAST_SECONDS, TOTAL_SECONDS / len(urls)),
            )
            for url in urls
        ]
        self._refused: dict[int, str] = {}

    def send(self, incident: Incident, wall: float) -> None:
        """Send one incident; see ``Receiver.send``."""
        alerts = api_alerts(incident, wall, self._external_url)
        errors = [self._send(index, alerts, wall) for index in range(len(self._members))]
        failed = [error for error in errors if error is not None]
        if len(failed) < len(errors):
            return
        failed.sort(key=lambda error: SOONEST_FIRST.index(error.answer))
        raise failed[0].with_doubt(any(error.may_have_arrived for error in failed))

    def left_open(self, stale_resolves: Sequence[Incident], wall: float) -> tuple[LeftOpen, ...]:
        """The incidents that any member has open; see ``Asked.left_open``."""
        apps = dict.fromkeys(one.alerts[0].labels["app"] for one in stale_resolves)
        return still_open(stale_resolves, [one for app in apps for one in self._shown(app, wall)])

    def close(self) -> None:
        """Close the connections."""
        for member in self._members:
            member.close()

    def _shown(self, app: str, wall: float) -> tuple[Shown, ...]:
        """The open alerts of one app; each member may know alerts that the others do not."""
        answers = [_get(member, app, wall) for member in self._members]
        errors = [one for one in answers if isinstance(one, HttpError)]
        if len(errors) == len(answers):
            raise errors[0]
        lists = [one for one in answers if not isinstance(one, HttpError)]
        found = sorted((one for some in lists for one in some), key=lambda one: one.updatedAt)
        unique = {tuple(sorted(one.labels.items())): one for one in found}
        return tuple(unique.values())

    def _send(self, index: int, alerts: list[dict[str, Any]], wall: float) -> HttpError | None:
        """What one member answered: its error, or None."""
        try:
            _post(self._members[index], alerts, wall)
        except HttpError as error:
            self._note(index, error)
            return error
        self._refused.pop(index, None)
        return None

    def _note(self, index: int, error: HttpError) -> None:
        if len(self._members) > 1 and self._refused.get(index) != str(error):
            self._refused[index] = str(error)
            log.warning("querypulse: %s: a member did not take an alert: %s", self.name, error)


def _get(member: HttpPoster, app: str, wall: float) -> tuple[Shown, ...] | HttpError:
    """The open alerts of one app at one member, or why it did not answer."""
    try:
        return shown(member.get(wall, address=lambda url: open_alerts_url(url, app)))
    except HttpError as error:
        return error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return HttpError(f"{member.place}: no list of alerts", DeliveryOutcome.TRANSIENT)


def _post(member: HttpPoster, alerts: list[dict[str, Any]], wall: float) -> None:
    """Post all alerts at once; if that is refused, one by one, since one may be invalid.

    Raises:
        HttpError: none was accepted.

    """
    try:
        not_a_page(member.post(to_json(alerts), wall), member.place)
    except HttpError as error:
        if error.answer is not DeliveryOutcome.REJECTED or len(alerts) == 1:
            raise
        _post_singly(member, alerts, wall)


def _post_singly(member: HttpPoster, alerts: list[dict[str, Any]], wall: float) -> None:
    refusals = [_refusal(member, alert, wall) for alert in alerts]
    errors = [error for error in refusals if error is not None]
    if len(errors) == len(alerts):
        raise errors[0]


def _refusal(member: HttpPoster, alert: dict[str, Any], wall: float) -> HttpError | None:
    """Why this alert is refused, None if it is accepted; raises any error but a refusal."""
    try:
        not_a_page(member.post(to_json([alert]), wall), member.place)
    except HttpError as error:
        if error.answer is not DeliveryOutcome.REJECTED:
            raise
        name, query = alert["labels"]["alertname"], alert["labels"]["query"]
        log.warning("querypulse: %s of %s is not taken: %s", name, query, error)
        return error
    return None


def make(given: AlertmanagerSettings, context: ReceiverContext) -> Alertmanager:
    """Make the cluster from its settings."""
    return Alertmanager(
        given.urls, name=given.name, http=context.http, external_url=context.external_url
    )


def urls(given: AlertmanagerSettings) -> Sequence[str]:
    """All members."""
    return given.urls


TYPE = ReceiverType(AlertmanagerSettings, make, short_form={"urls": "alertmanager_urls"}, urls=urls)
