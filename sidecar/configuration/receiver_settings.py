"""Receivers and silences in their full form, as tables of the TOML file."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

_Seconds = Annotated[float, Meta(ge=0)]
_Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]


class Common(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings that every receiver has; None takes the top-level setting of the same name."""

    name: _Name
    severities: tuple[Literal["critical", "warning"], ...] = ("critical", "warning")
    """Empty if it is only the fallback of other receivers."""
    queries: tuple[str, ...] = ("*",)
    """Name patterns of its queries. Alerts about the whole driver are always sent."""
    fallback: str | None = None
    """The receiver that gets an alert when this one has not accepted it in time."""
    fallback_after_seconds: _Seconds = 60.0
    allow_http: bool | None = None
    proxy_url: str | None = None
    proxy_from_environment: bool | None = None
    ca_file: str | None = None
    client_cert_file: str | None = None
    client_key_file: str | None = None


class WebhookSettings(Common, tag_field="type", tag="webhook", frozen=True, kw_only=True):
    """``format``: Alertmanager's version-4 JSON, or querypulse's own, with a published schema."""

    url: str | None = None
    url_file: str | None = None
    secret_files: tuple[str, ...] = ()
    """More than one during a rotation: each secret signs."""
    format: Literal["alertmanager", "raw"] = "alertmanager"


class PagerDutySettings(Common, tag_field="type", tag="pagerduty", frozen=True, kw_only=True):
    """``region`` is the service region; ``url`` replaces it. By default warnings do not page."""

    severities: tuple[Literal["critical", "warning"], ...] = ("critical",)
    routing_key: str | None = None
    routing_key_file: str | None = None
    region: Literal["us", "eu"] = "us"
    url: str | None = None


class AlertmanagerSettings(Common, tag_field="type", tag="alertmanager", frozen=True, kw_only=True):
    """All members of one cluster."""

    urls: Annotated[tuple[str, ...], Meta(min_length=1)]


class SlackSettings(Common, tag_field="type", tag="slack", frozen=True, kw_only=True):
    """An incoming webhook."""

    url: str | None = None
    url_file: str | None = None


ReceiverSettings = WebhookSettings | PagerDutySettings | AlertmanagerSettings | SlackSettings
RECEIVER_TYPES = (WebhookSettings, PagerDutySettings, AlertmanagerSettings, SlackSettings)


class SilenceSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Suppresses matching alerts until a required end."""

    queries: str
    """Name pattern."""
    until: Annotated[datetime, Meta(tz=True)]
    """With its time zone, such as ``2026-11-21T18:00:00Z``."""
    alertname: str = "*"
    reason: str = ""
    app: str | None = None
    """Name pattern of the label ``app``; None is every app that reads the silence.

    Required in a ``silence_file``, because drivers of several apps may read it.
    """
