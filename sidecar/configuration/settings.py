"""Every setting: its name, its default, what is allowed. One record, one name everywhere."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from .masking import masked, masked_table
from .mistakes import explained
from .receiver_settings import ReceiverSettings, SilenceSettings

_Seconds = Annotated[float, Meta(gt=0)]
_Grace = Annotated[float, Meta(ge=0)]
_Factor = Annotated[float, Meta(ge=1)]
_Share = Annotated[float, Meta(gt=0, le=1)]
_Count = Annotated[int, Meta(ge=1, le=16)]

DEFAULT_RUNBOOKS = "https://github.com/querypulse/querypulse/blob/main/dashboards/runbooks"


class QuerySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What may differ for queries whose name matches a pattern; None keeps the default."""

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
    heartbeat_url: str | None = None
    """Pinged when such a query has committed or completed, while none of them is unhealthy."""
    heartbeat_url_file: str | None = None

    def __repr__(self) -> str:
        return f"QuerySettings({masked_table(self)})"


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings; times in seconds.

    Raises:
        ValueError: built by hand with a value that is not allowed; the message names it.

    """

    app_name: str | None = None
    """Label ``app`` and part of every dedup key; Spark's ``spark.app.name`` by default."""
    expected_queries: tuple[str, ...] = ()
    """The roster: names of queries that must be there."""
    http_host: str = "127.0.0.1"
    http_port: Annotated[int, Meta(ge=-1, le=65535)] = 9719
    """0 is any free port, -1 is no server."""
    http_token_file: str | None = None
    http_tls_cert_file: str | None = None
    http_tls_key_file: str | None = None
    http_tls_client_ca_file: str | None = None
    http_allow_anonymous: bool = False
    """Whether everybody may read where ``http_host`` is not loopback."""
    probe_interval_seconds: Annotated[float, Meta(ge=0.05, le=60)] = 0.5
    source_interval_seconds: Annotated[float, Meta(ge=0)] = 15.0
    """How often brokers are asked where their data ends; 0 is never."""
    lag_by_partition: bool = False
    """Whether lag is shown for each partition too: as many series as there are partitions."""
    stall_floor_seconds: _Seconds = 60.0
    stall_tolerance: _Grace = 1.0
    start_grace_seconds: _Grace = 120.0
    gone_grace_seconds: _Grace = 60.0
    failed_grace_seconds: _Grace = 0.0
    """How long a query that failed may take to recover before anybody is notified."""
    stall_critical_factor: _Factor = 3.0
    """After how many windows a stall with an ordinary cause is critical (at most 15 minutes)."""
    slow_critical_factor: _Factor = 10.0
    """After how many windows a batch in flight is critical, though its tasks finish ..."""
    slow_critical_seconds: _Seconds = 1800.0
    """... and after how long at the latest."""
    lag_allowed_offsets: _Grace = 1000.0
    lag_allowed_seconds: _Seconds | None = None
    """How long the first unread record may wait."""
    expected_input_seconds: _Seconds | None = None
    """How long a query may read no rows; without it, for ever."""
    trend_window_seconds: _Seconds = 300.0
    """How long lag must have risen, or a watermark stood, before anybody is told."""
    data_loss_warning_ratio: _Share = 0.7
    """How much of a source's retention what waits may use up before anybody is told ..."""
    data_loss_critical_ratio: _Share = 0.9
    """... and before somebody is woken up."""
    restart_budget: _Count = 3
    """How many failures within ``restart_window_seconds`` make a query a flapping one."""
    restart_window_seconds: _Seconds = 600.0
    resolve_after_seconds: _Grace = 30.0
    """How long a query must have been well, with two commits or idle, before its alert ends."""
    repeat_interval_seconds: _Seconds = 4 * 3600.0
    """How often an alert that still fires is told again."""
    group_min_queries: Annotated[int, Meta(ge=2)] = 3
    """How many queries must fall sick of one thing ..."""
    group_window_seconds: _Grace = 10.0
    """... within this time to be told in one page."""
    silences: tuple[SilenceSettings, ...] = ()
    silence_file: str | None = None
    """Where ``querypulse silence`` writes and the sidecar reads."""
    webhook_url: str | None = None
    webhook_url_file: str | None = None
    webhook_secret_file: str | None = None
    pagerduty_routing_key: str | None = None
    pagerduty_routing_key_file: str | None = None
    pagerduty_url: str | None = None
    alertmanager_urls: tuple[str, ...] = ()
    slack_webhook_url: str | None = None
    slack_webhook_url_file: str | None = None
    heartbeat_url: str | None = None
    heartbeat_url_file: str | None = None
    heartbeat_interval_seconds: _Seconds = 60.0
    receivers: tuple[ReceiverSettings, ...] = ()
    """The full form: any number, each with its own severities, queries and fallback."""
    spool_dir: str | None = None
    """Where undelivered and open alerts outlive the driver."""
    allow_http: bool = False
    """Whether receivers on other hosts may be told over plain http."""
    proxy_url: str | None = None
    proxy_from_environment: bool = False
    ca_file: str | None = None
    client_cert_file: str | None = None
    client_key_file: str | None = None
    redact_patterns: tuple[str, ...] = ()
    """Regular expressions of what must not leave the driver, besides what is known."""
    external_url: str | None = None
    """Where people reach this driver's status page; alerts link to it."""
    dashboard_url: str | None = None
    """A dashboard that alerts link to; ``{app}`` and ``{query}`` are filled in."""
    runbook_base_url: str = DEFAULT_RUNBOOKS
    """Where ``runbook_url`` leads; with ``external_url``, by default to the driver itself."""
    queries: dict[str, QuerySettings] = {}
    """Overrides by name pattern, such as ``{"nightly*": {"stall_floor_seconds": 3600}}``."""

    def __post_init__(self) -> None:
        for field in msgspec.structs.fields(self):
            value = check_value(field.name, getattr(self, field.name), "an argument")
            msgspec.structs.force_setattr(self, field.name, value)

    def __repr__(self) -> str:
        shown = (f"{name}={masked(name, getattr(self, name))!r}" for name in self.__struct_fields__)
        return f"Settings({', '.join(shown)})"


TYPES = {field.name: field.type for field in msgspec.structs.fields(Settings)}


class SettingsError(ValueError):
    """A setting that is unknown or not allowed; the message says which, where and why."""


def check_value(name: str, value: object, origin: str) -> object:
    """Convert one value to its setting's type.

    Raises:
        SettingsError: it is not allowed.

    """
    try:
        return msgspec.convert(value, TYPES[name], strict=not isinstance(value, str))
    except msgspec.ValidationError as error:
        why, shown = explained(name, TYPES[name], value, error), masked(name, value)
        raise SettingsError(f"setting {name!r} from {origin}: {why} (given: {shown!r})") from None
