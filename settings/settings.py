"""Every setting: name, default, allowed values. The name is the same in every source."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from ..alerting.receivers.receiver import Address, Key, Pattern, SecretFile, SecretUrl, Text, holds
from ..alerting.receivers.registry import RECEIVER_TYPES, AnyReceiverSettings
from ..core.text import is_encodable
from . import masking
from .masking import mistaken, mistaken_name, shown_name

# -- silence settings -------------------------------------------------------------------------
# A silence, as a table of the setting ``silences`` and as an entry of a ``silence_file``.


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


# -- mistakes ---------------------------------------------------------------------------------
# Explains why a value is not allowed: names the place and the choices.


TAGS = {kind.name: kind.settings for kind in RECEIVER_TYPES}
"""Receiver types by the value of ``type``."""
_PLACE = re.compile(r" - at `\$(?P<path>[^`]*)`$")
_UNKNOWN_FIELD = re.compile(r"(?s)Object contains unknown field `(?P<field>.*)`")
_INVALID = re.compile(
    r"(?s)(?P<what>Invalid (?:enum )?value) (?P<quote>['\"])(?P<value>.*)(?P=quote)"
)
_STEP = re.compile(r"\[(?P<index>\d+)\]|\.(?P<field>\w+)")


def explained(name: str, kind: Any, value: object, error: msgspec.ValidationError) -> str:
    """What is wrong with the ``value`` of setting ``name``, where in it, and what is allowed."""
    if name == "queries" and isinstance(value, Mapping):
        name, kind, value, error = _in_table(name, kind, value, error)
    text = str(error)
    found = _PLACE.search(text)
    path = found.group("path") if found else ""
    text = text[: found.start()] if found else text
    place = f"at {name}{path}: " if path or "[" in name else ""
    allowed = _allowed(text, path, _struct(kind, value, path))
    return f"{place}{_INVALID.sub(_without_secret, _UNKNOWN_FIELD.sub(_name_alone, text))}{allowed}"


def _name_alone(unknown: re.Match[str]) -> str:
    return f"Object contains unknown field `{mistaken_name(unknown['field'])}`"


def _without_secret(invalid: re.Match[str]) -> str:
    return f"{invalid['what']} {mistaken(invalid['value'])!r}"


def _in_table(
    name: str, kind: Any, table: Mapping[Any, object], error: msgspec.ValidationError
) -> tuple[str, Any, object, msgspec.ValidationError]:
    """The first wrong entry and its key, which msgspec does not name."""
    own = get_args(kind)[1]
    for key, value in table.items():
        inner = _mistake(own, value)
        if inner is not None:
            return f"{name}[{shown_name(str(key))!r}]", own, value, inner
    return name, kind, table, error


def _mistake(kind: Any, value: object) -> msgspec.ValidationError | None:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        return error
    return None


def _struct(kind: Any, value: object, path: str) -> type[msgspec.Struct] | None:
    """The record that contains the mistake, if known."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind
    first = _STEP.match(path)
    if first is None or first.group("index") is None or not isinstance(value, Sequence):
        return None
    table = value[int(first.group("index"))]
    if SilenceSettings in get_args(kind):
        return SilenceSettings
    return TAGS.get(str(table.get("type"))) if isinstance(table, Mapping) else None


def _allowed(text: str, path: str, struct: type[msgspec.Struct] | None) -> str:
    unknown = _UNKNOWN_FIELD.match(text)
    if unknown is not None and struct is not None:
        fields = list(struct.__struct_fields__)
        return f"; {suggestion(unknown.group('field'), fields) or _choices(fields)}"
    last = path.rpartition(".")[2].partition("[")[0]
    if last == "type" or "required field `type`" in text:
        return f"; {_choices(TAGS)}"
    choices = _literals(get_type_hints(struct).get(last)) if struct is not None else []
    return f"; {_choices(choices)}" if choices else ""


def suggestion(word: str, known: Iterable[str]) -> str:
    """The likely meaning of a typo; empty if there is none."""
    close = difflib.get_close_matches(word, list(known), n=1)
    return f"did you mean {close[0]!r}?" if close else ""


def _choices(names: Iterable[str]) -> str:
    return f"allowed: {', '.join(names)}"


def _literals(kind: Any) -> list[str]:
    """The literal words anywhere in a type."""
    if get_origin(kind) is Literal:
        return [str(word) for word in get_args(kind)]
    return [word for part in get_args(kind) for word in _literals(part)]


# -- settings ---------------------------------------------------------------------------------


_Seconds = Annotated[float, Meta(gt=0)]
_Grace = Annotated[float, Meta(ge=0)]
_Factor = Annotated[float, Meta(ge=1)]
_Share = Annotated[float, Meta(gt=0, le=1)]
_Count = Annotated[int, Meta(ge=1, le=16)]

DEFAULT_RUNBOOKS = "https://github.com/querypulse/querypulse/blob/main/dashboards/runbooks"


class QuerySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Overrides for queries whose name matches a pattern; None keeps the default."""

    stall_floor_seconds: _Seconds | None = None
    stall_tolerance: _Grace | None = None
    start_grace_seconds: _Grace | None = None
    gone_grace_seconds: _Grace | None = None
    failed_grace_seconds: _Grace | None = None
    stall_critical_factor: _Factor | None = None
    slow_critical_factor: _Factor | None = None
    slow_critical_seconds: _Seconds | None = None
    lag_allowed_offsets: _Grace | None = None
    lag_allowed_seconds: _Seconds | None = None
    expected_input_seconds: _Seconds | None = None
    trend_window_seconds: _Seconds | None = None
    data_loss_warning_ratio: _Share | None = None
    data_loss_critical_ratio: _Share | None = None
    restart_budget: _Count | None = None
    restart_window_seconds: _Seconds | None = None
    ignore: bool | None = None
    reads: tuple[Text, ...] | None = None
    """Places that such queries read and Spark does not show, such as ``kafka:orders``."""
    writes: tuple[Text, ...] | None = None
    """Places that they write, as in ``foreachBatch``: ``delta:/lake/bronze``."""
    heartbeat_url: SecretUrl | None = None
    """Pinged when such a query commits or completes, unless one of them is unhealthy."""
    heartbeat_url_file: SecretFile | None = None

    def __repr__(self) -> str:
        return f"QuerySettings({masking.masked_table(self, QuerySettings)})"


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings; times in seconds.

    Raises:
        ValueError: a value is not allowed; the message names its setting.

    """

    app_name: Text | None = None
    """Label ``app`` and part of every dedup key; Spark's ``spark.app.name`` by default."""
    expected_queries: tuple[Text, ...] = ()
    """Names of queries that must run."""
    http_host: Text = "127.0.0.1"
    http_port: Annotated[int, Meta(ge=-1, le=65535)] = 9719
    """0: any free port. -1: no server."""
    http_token_file: SecretFile | None = None
    http_tls_cert_file: Text | None = None
    http_tls_key_file: Text | None = None
    http_tls_client_ca_file: Text | None = None
    http_allow_anonymous: bool = False
    """Whether everybody may read if ``http_host`` is not loopback."""
    probe_interval_seconds: Annotated[float, Meta(ge=0.05, le=60)] = 0.5
    source_interval_seconds: Annotated[float, Meta(ge=0)] = 15.0
    """How often brokers are asked for their end offsets; 0 is never."""
    lag_by_partition: bool = False
    """Whether to export lag per partition, too: one series for each partition."""
    stall_floor_seconds: _Seconds = 60.0
    stall_tolerance: _Grace = 1.0
    start_grace_seconds: _Grace = 120.0
    gone_grace_seconds: _Grace = 60.0
    failed_grace_seconds: _Grace = 0.0
    """How long a failed query may take to recover before its alert is sent."""
    stall_critical_factor: _Factor = 3.0
    """After how many windows a stall with an ordinary cause is critical (at most 15 minutes)."""
    slow_critical_factor: _Factor = 10.0
    """After how many windows a running batch is critical, although its tasks finish ..."""
    slow_critical_seconds: _Seconds = 1800.0
    """... and after how long at the latest."""
    lag_allowed_offsets: _Grace = 1000.0
    lag_allowed_seconds: _Seconds | None = None
    """How long the oldest unread record may wait."""
    expected_input_seconds: _Seconds | None = None
    """How long a query may read no rows; None: without limit."""
    trend_window_seconds: _Seconds = 300.0
    """How long lag must rise, or a watermark must not advance, before the alert fires."""
    data_loss_warning_ratio: _Share = 0.7
    """The share of a source's retention that unread data may use up before a warning ..."""
    data_loss_critical_ratio: _Share = 0.9
    """... and before a critical alert."""
    restart_budget: _Count = 3
    """How many failures within ``restart_window_seconds`` mean that a query is flapping."""
    restart_window_seconds: _Seconds = 600.0
    resolve_after_seconds: _Grace = 30.0
    """How long a query must be healthy, with two commits or idle, before its alert resolves."""
    repeat_interval_seconds: _Seconds = 4 * 3600.0
    """How often a reminder is sent while an alert fires."""
    group_min_queries: Annotated[int, Meta(ge=2)] = 3
    """How many queries must fail for one cause ..."""
    group_window_seconds: _Grace = 10.0
    """... within this time to be grouped into one page."""
    silences: tuple[SilenceSettings, ...] = ()
    silence_file: Text | None = None
    """Where ``querypulse silence`` writes and the sidecar reads."""
    webhook_url: SecretUrl | None = None
    webhook_url_file: SecretFile | None = None
    webhook_secret_file: SecretFile | None = None
    pagerduty_routing_key: Key | None = None
    pagerduty_routing_key_file: SecretFile | None = None
    pagerduty_url: Address | None = None
    alertmanager_urls: tuple[Address, ...] = ()
    slack_webhook_url: SecretUrl | None = None
    slack_webhook_url_file: SecretFile | None = None
    heartbeat_url: SecretUrl | None = None
    heartbeat_url_file: SecretFile | None = None
    heartbeat_interval_seconds: _Seconds = 60.0
    receivers: tuple[AnyReceiverSettings, ...] = ()
    """The full form: any number, each with its own severities, queries and fallback."""
    pushgateway_url: Address | None = None
    """A Prometheus Pushgateway that gets all metrics, where nobody can scrape."""
    otlp_endpoint: Address | None = None
    """An OpenTelemetry receiver (OTLP over HTTP) that gets all metrics."""
    otlp_headers_file: SecretFile | None = None
    """The file of its headers, as ``name=value,name=value``."""
    push_interval_seconds: Annotated[float, Meta(ge=1, le=60)] = 15.0
    spool_dir: Text | None = None
    """The folder in which undelivered and open alerts outlive the driver."""
    allow_http: bool = False
    """Whether alerts may be sent to other hosts over plain http."""
    proxy_url: Address | None = None
    proxy_from_environment: bool = False
    ca_file: Text | None = None
    client_cert_file: Text | None = None
    client_key_file: Text | None = None
    redact_patterns: tuple[Pattern, ...] = ()
    """Regular expressions of further texts that must not leave the driver."""
    external_url: Text | None = None
    """The public URL of this driver's status page; alerts link to it."""
    dashboard_url: Text | None = None
    """A dashboard that alerts link to; ``{app}`` and ``{query}`` are filled in."""
    runbook_base_url: Text = DEFAULT_RUNBOOKS
    """The base of ``runbook_url``; by default, with ``external_url``, the driver itself."""
    queries: dict[Text, QuerySettings] = {}
    """Overrides by name pattern, such as ``{"nightly*": {"stall_floor_seconds": 3600}}``."""

    def __post_init__(self) -> None:
        for field in msgspec.structs.fields(self):
            value = check_value(field.name, getattr(self, field.name), "an argument")
            msgspec.structs.force_setattr(self, field.name, value)

    def __repr__(self) -> str:
        shown = (f"{name}={masked(name, getattr(self, name))!r}" for name in self.__struct_fields__)
        return f"Settings({', '.join(shown)})"


HOLDS = holds(Settings)
TYPES = {field.name: field.type for field in msgspec.structs.fields(Settings)}


class SettingsError(ValueError):
    """A setting is unknown or not allowed; the message says which, where and why."""


def masked(name: str, value: object) -> object:
    """A setting's value in a form that may be shown, whatever type it has."""
    if name == "receivers":
        return masking.masked_receivers(value)
    if name == "queries":
        return masking.masked_queries(value, QuerySettings)
    return masking.masked(HOLDS.get(name), value)


def check_value(name: str, value: object, origin: str) -> object:
    """Convert one value to the type of its setting.

    Raises:
        SettingsError: it is not allowed.

    """
    if not is_encodable(value):
        raise SettingsError(f"setting {name!r} from {origin}: a text in it is not UTF-8")
    try:
        return msgspec.convert(value, TYPES[name], strict=not isinstance(value, str))
    except msgspec.ValidationError as error:
        why = explained(name, TYPES[name], value, error)
        shown = masking.mistaken(masked(name, value))
        raise SettingsError(f"setting {name!r} from {origin}: {why} (given: {shown!r})") from None
