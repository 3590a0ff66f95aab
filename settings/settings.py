"""Every setting, declared once: name, default, allowed values and purpose.

The name is the same in every source. ``docs/settings.md`` is written from these declarations: the
comments are its headings, the texts below the fields its rows. A text ends with an example, unless
the default is one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, ClassVar

import msgspec
from msgspec import Meta

from ..alerting.policy import Grace, LimitSettings, Seconds
from ..alerting.receivers import AnyReceiverSettings
from ..core.secret import (
    Address,
    Holds,
    Key,
    Pattern,
    SecretFile,
    SecretUrl,
    Text,
    holds,
    shown_path,
)
from ..core.text import HOST, HOST_WORDS
from ..exporter.metrics import LABEL_NAMES
from .allowed import allowed, assignment, example
from .mistakes import find_mistake, mask_value, unusable

DEFAULT_RUNBOOKS = "https://github.com/querypulse/querypulse/blob/main/dashboards/runbooks"


RestartHint = Annotated[str, Meta(min_length=1, max_length=500, extra={"holds": Holds.NOTHING})]
"""A text for people; longer ones belong into a runbook."""


Place = Annotated[
    str,
    Meta(
        pattern=r"^(?![A-Za-z][A-Za-z0-9+.-]+:(?!/))[^\x00-\x1f]*[^\x00-\x20][^\x00-\x1f]*\Z",
        description="a local path, or a URI with a scheme that the driver's Hadoop can write",
        extra={"holds": Holds.NOTHING},
    ),
]
"""A folder; see ``core.folders.is_uri``."""


class _OfQueries(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Overrides for queries whose name matches a pattern; None keeps the default."""

    ignore: bool | None = None
    reads: tuple[Text, ...] | None = None
    """Places that such queries read and Spark does not show, such as ``kafka:orders``."""
    writes: tuple[Text, ...] | None = None
    """Places that they write, as in ``foreachBatch``: ``delta:/lake/bronze``."""
    heartbeat_url: SecretUrl | None = None
    """Pinged when such a query commits or completes, unless one of them is unhealthy."""
    heartbeat_url_file: SecretFile | None = None
    restart_hint: RestartHint | None = None
    """How such a query is restarted, where that differs from the job's own ``restart_hint``."""

    def __repr__(self) -> str:
        return f"QuerySettings({mask_value(None, self)})"


if TYPE_CHECKING:
    QuerySettings = _OfQueries
else:
    # Every limit may be overridden: declared once, it has no default here.
    QuerySettings = msgspec.defstruct(
        "QuerySettings",
        [(limit.name, limit.type | None, None) for limit in msgspec.structs.fields(LimitSettings)],
        bases=(_OfQueries,),
        module=__name__,
        frozen=True,
        forbid_unknown_fields=True,
    )


RESERVED = ", ".join(sorted({*LABEL_NAMES, "instance", "job"}))
LabelName = Annotated[
    str,
    Meta(
        pattern=f"^(?!__|({RESERVED.replace(', ', '|')})$)[A-Za-z_][A-Za-z0-9_]*\\Z",
        description=(
            "ASCII letters, digits and _; no digit and no __ at the start; and none of the names "
            f"that our metrics use: {RESERVED}"
        ),
    ),
]
"""As Prometheus has it; another label of the same name would break each push."""


class Settings(LimitSettings, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """All settings; times in seconds. ``origins`` says where those came from that were loaded.

    Raises:
        ValueError: a value is not allowed; the message names its setting.

    """

    # The job
    app_name: Text | None = None
    """Label `app`, and part of every dedup key: [each job needs its
    own](alerts.md#two-drivers-of-one-app-name). Default: `spark.app.name`.
    Example: `"orders"`"""
    labels: dict[LabelName, Text] = msgspec.field(default_factory=dict)
    """Labels of each alert at each receiver; they are in `/status` and part of every dedup key.
    No names of [labels of our metrics](metrics.md), `job` or `instance`.
    Example: `{env = "prod"}`"""
    expected_queries: tuple[Text, ...] = ()
    """Queries that must run. Example: `["bronze", "silver"]`"""
    expected_errors: tuple[Text, ...] = ()
    """Error classes or exception names, as patterns, that are part of the job's life. Such a
    failure is a warning, and critical if the query has not recovered after `failed_grace_seconds`,
    300 where that is 0. Example: `["UNKNOWN_FIELD_EXCEPTION*"]`"""
    queries: dict[Text, QuerySettings] = msgspec.field(default_factory=dict)
    """Other limits by name pattern: see [By query](#by-query).
    Example: `{"nightly*" = {stall_floor_seconds = 3600}}`"""
    enabled: bool = True
    """`false` turns querypulse off, as for a job's own tests: `attach` does nothing
    ([api.md](api.md#in-your-tests)). Example: `false`"""
    # Receivers
    webhook_url: SecretUrl | None = None
    """Receives Alertmanager's version-4 JSON.
    Example: `"https://hooks.example.com/pages"`"""
    webhook_url_file: SecretFile | None = None
    """The file that holds `webhook_url`. Example: `"/run/secrets/url"`"""
    webhook_secret_file: SecretFile | None = None
    """Signs each request (Standard Webhooks). Example: `"/run/secrets/webhook"`"""
    pagerduty_routing_key: Key | None = None
    """The key itself, such as from the environment. Refused in the Spark conf.
    Example: `"R03..."`"""
    pagerduty_routing_key_file: SecretFile | None = None
    """The file of the integration key of PagerDuty's Events API v2.
    Example: `"/run/secrets/pagerduty"`"""
    pagerduty_url: Address | None = None
    """Another service region. Default: the US region.
    Example: `"https://events.eu.pagerduty.com/v2/enqueue"`"""
    alertmanager_urls: tuple[Address, ...] = ()
    """All members of one Alertmanager cluster. Example: `["https://alertmanager-0:9093"]`"""
    alertmanager_credentials_file: SecretFile | None = None
    """The file of a bearer token, or of `user:password`, that they require.
    Example: `"/run/secrets/alertmanager"`"""
    slack_webhook_url_file: SecretFile | None = None
    """The file of an incoming webhook of a Slack channel. Example: `"/run/secrets/slack"`"""
    heartbeat_url: SecretUrl | None = None
    """A dead man's switch: requested every minute while querypulse evaluates.
    Example: `"https://hc.example.com/ping/orders"`"""
    heartbeat_url_file: SecretFile | None = None
    """The file that holds `heartbeat_url`. Example: `"/run/secrets/heartbeat"`"""
    receivers: tuple[AnyReceiverSettings, ...] = ()
    """Any number of receivers, each with its own severities, queries and fallback:
    [receivers.md](receivers.md).
    Example: `[{type = "slack", name = "team", url_file = "/run/secrets/slack"}]`"""
    # Alerts
    resolve_after_seconds: Grace = 30.0
    """An alert resolves after the query has been healthy for this long, with two commits or
    idle; a critical one with one commit, where the trigger interval is longer."""
    repeat_interval_seconds: Seconds = 4 * 3600.0
    """Reminder while an alert keeps firing."""
    silence_file: Text | None = None
    """Where `querypulse silence` writes, and the sidecar reads.
    Example: `"/shared/silences.json"`"""
    spool_dir: Place | None = None
    """Where undelivered and open alerts, and the failures that `StreamingQueryFlapping` counts,
    outlive the driver: on a disk, or [in a store](#folders) where the disk ends with the driver.
    Example: `"/var/lib/querypulse"`"""
    incidents_dir: Place | None = None
    """The [folder](#folders) of the recordings of incidents, which keeps 100 MB and 30 days of
    them. Default: `incidents` in `spool_dir`; without that, they are only in memory.
    Example: `"s3a://team/querypulse/incidents"`"""
    external_url: Text | None = None
    """Where people reach this driver's status page: alerts link to it.
    Example: `"https://spark.example.com/orders"`"""
    dashboard_url: Text | None = None
    """A dashboard that alerts link to; `{app}` and `{query}` are filled in.
    Example: `"https://grafana.example.com/d/querypulse-query?var-app={app}&var-query={query}"`"""
    runbooks_url: Text = DEFAULT_RUNBOOKS
    """The folder of the runbooks that alerts link to; it must outlive the driver. Default: the
    project's. Example: `"https://wiki.example.com/runbooks"`"""
    restart_hint: RestartHint | None = None
    """How this job is restarted: a command, a link, or whom to ask. Each alert whose next steps
    have a restart shows it. Example: `"kubectl -n streaming rollout restart deploy/orders"`"""
    redact_patterns: tuple[Pattern, ...] = ()
    r"""Regular expressions of further texts that must not leave the driver:
    [security.md](security.md#redaction). Example: `['customer-\d+']`"""
    # Lag, input and data loss
    source_interval_seconds: Annotated[float, Meta(ge=0)] = 15.0
    """How often brokers are asked for the end offsets of a query's sources; `0` is never."""
    lag_by_partition: bool = False
    """Exports the lag of each partition too: one series per partition."""
    observed_metrics: tuple[Text, ...] = ()
    """Values of `df.observe()` that become metrics, as patterns `NAME.FIELD`: numbers only, at most
    50 of a query. Example: `["orders.amount*"]`"""
    probe_interval_seconds: Annotated[float, Meta(ge=0.05, le=60)] = 0.5
    """How often Spark is polled while a batch takes long; at most once a second otherwise."""
    # The HTTP server
    http_host: Annotated[Text, Meta(pattern=HOST, description=HOST_WORDS)] = "127.0.0.1"
    """The address to listen on. Example: `"0.0.0.0"`"""
    http_port: Annotated[int, Meta(ge=-1, le=65535)] = 9719
    """`0` is any free port, `-1` is no server."""
    http_token_file: SecretFile | None = None
    """Readers must send this bearer token. Example: `"/run/secrets/token"`"""
    http_tls_cert_file: Text | None = None
    """The server's certificate. Example: `"/run/secrets/tls.crt"`"""
    http_tls_key_file: Text | None = None
    """Its key. Example: `"/run/secrets/tls.key"`"""
    http_tls_client_ca_file: Text | None = None
    """Readers must have a certificate of this authority. Example: `"/run/secrets/ca.crt"`"""
    http_allow_anonymous: bool = False
    """Lets everybody read. On another `http_host` than loopback, the server stays off without a
    token, client certificates, or this."""
    # Pushing metrics
    pushgateway_url: Address | None = None
    """A Prometheus Pushgateway that gets all metrics, where nobody can scrape:
    [prometheus.md](prometheus.md#push).
    Example: `"https://pushgateway.example.com"`"""
    pushgateway_credentials_file: SecretFile | None = None
    """The file of a bearer token, or of `user:password`, that it requires.
    Example: `"/run/secrets/pushgateway"`"""
    otlp_endpoint: Address | None = None
    """An OpenTelemetry receiver that gets all metrics by OTLP over HTTP; `/v1/metrics` is appended.
    Needs the extra `otlp`: [prometheus.md](prometheus.md#opentelemetry).
    Example: `"https://otel-collector.example.com:4318"`"""
    otlp_headers_file: SecretFile | None = None
    """The file of its headers: `api-key=abc,other=def`. Example: `"/run/secrets/otlp-headers"`"""
    # Connections to receivers
    allow_http: bool = False
    """Allows plain http to other hosts."""
    ca_file: Text | None = None
    """PEM file of the authorities to trust instead of the public ones.
    Example: `"/etc/ssl/own-ca.pem"`"""

    origins: ClassVar[Mapping[str, str]] = {}

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = check_value(name, getattr(self, name), "an argument")
            msgspec.structs.force_setattr(self, name, value)

    def error(self, message: str) -> SettingsError:
        """An error, with the origin of the setting that it begins with, else of those in quotes."""
        first = first_word(message)
        first = "receivers" if first == "receiver" else first
        names = [first] if first in TYPES else re.findall(r"'(\w+)'", message)
        given = [name for name in dict.fromkeys(names) if name in self.origins]
        if not given:
            return SettingsError(message)
        values = [shown for name in given if (shown := self._shown(name)).strip("'") not in message]
        what = f"given: {' and '.join(values)}, " if values else ""
        origins = ", ".join(dict.fromkeys(self.origins[name] for name in given))
        return SettingsError(f"{message} ({what}from {origins})")

    def _shown(self, name: str) -> str:
        """A value as a message shows it; empty of tables, whose wrong part the message names."""
        value = mask(name, getattr(self, name))
        if HOLDS.get(name) is Holds.SECRET_FILE and isinstance(value, str):
            return repr(shown_path(value))
        is_table = isinstance(value, dict) or name == "receivers"
        return "" if is_table else repr(value)

    def __repr__(self) -> str:
        shown = (f"{name}={mask(name, getattr(self, name))!r}" for name in self.__struct_fields__)
        return f"Settings({', '.join(shown)})"


HOLDS = holds(Settings)
_FIELDS = msgspec.structs.fields(Settings)
_LIMITS = len(LimitSettings.__struct_fields__)
TYPES = {field.name: field.type for field in (*_FIELDS[_LIMITS:], *_FIELDS[:_LIMITS])}
"""The type of each setting; the limits, which msgspec puts first, are the last."""
DEFAULTS = {field.name: field.default for field in _FIELDS}


class SettingsError(ValueError):
    """A setting is unknown or not allowed; the message says which, where and why."""


def first_word(message: str) -> str:
    """The setting or the field that a message begins with."""
    return re.split(r"\W", message, maxsplit=1)[0]


def mask(name: str, value: object) -> object:
    """The value of a setting in a form that may be shown."""
    return mask_value(HOLDS.get(name), value)


def check_value(name: str, value: object, origin: str, *, is_text: bool = False) -> object:
    """Convert one value to the type of its setting; ``is_text``: its origin has only texts.

    Raises:
        SettingsError: it is not allowed.

    """
    place = f"setting {name!r} from {origin}"
    _require_usable(place, name, value, origin)
    strict = not is_text or not isinstance(value, str)
    try:
        checked = msgspec.convert(value, TYPES[name], strict=strict)
    except msgspec.ValidationError:
        mistake = find_mistake(name, TYPES[name], value, DEFAULTS[name])
        hint = "; it is a setting of its own: write it above the first table"
        stray = hint if mistake.unknown in TYPES else ""
        raise SettingsError(f"{place}: {mistake.explained(origin)}{stray}") from None
    # A text may have become an infinite number.
    _require_usable(place, name, checked, origin)
    return checked


def _require_usable(place: str, name: str, value: object, origin: str) -> None:
    if wrong := unusable(value):
        right = assignment(name, example(TYPES[name], name, DEFAULTS[name]), origin)
        words = allowed(TYPES[name], name)
        raise SettingsError(f"{place}: {wrong}; allowed: {words}; example: {right}")
