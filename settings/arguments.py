"""The settings as keywords of ``attach`` and ``Sidecar``, for editors and type checkers.

``Settings`` declares each one. A keyword takes what users write: a list or a tuple, a mapping for a
table. ``tests/settings/test_arguments.py`` compares the two, and says which line is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, Signature, signature
from typing import Any, TypedDict, get_type_hints

from msgspec import NODEFAULT
from msgspec.structs import FieldInfo, fields

from ..alerting.receivers.receiver import ReceiverSettings
from .settings import TYPES, Settings

Texts = list[str] | tuple[str, ...]
Receivers = Sequence[Mapping[str, object] | ReceiverSettings]


class LimitArguments(TypedDict, total=False):
    """The limits, of all queries or of those that match a pattern."""

    stall_floor_seconds: float
    stall_critical_seconds: float
    slow_critical_seconds: float
    complete_by: str | None
    start_grace_seconds: float
    gone_grace_seconds: float
    failed_grace_seconds: float
    restart_budget: int
    lag_allowed_offsets: float
    lag_allowed_seconds: float | None
    trend_window_seconds: float
    expected_input_seconds: float | None
    data_loss_warning_ratio: float
    state_limit_bytes: int | None
    freshness_seconds: float | None
    freshness_objective: float


class QueryArguments(LimitArguments, total=False):
    """What ``queries`` sets for a name pattern."""

    ignore: bool
    restart_hint: str | None
    reads: Texts
    writes: Texts
    heartbeat_url: str | None
    heartbeat_url_file: str | None


class SettingArguments(LimitArguments, total=False):
    """All settings; ``docs/settings.md`` says what each does."""

    app_name: str | None
    labels: Mapping[str, str]
    expected_queries: Texts
    expected_errors: Texts
    queries: Mapping[str, QueryArguments]
    enabled: bool
    webhook_url: str | None
    webhook_url_file: str | None
    webhook_secret_file: str | None
    pagerduty_routing_key: str | None
    pagerduty_routing_key_file: str | None
    pagerduty_url: str | None
    alertmanager_urls: Texts
    alertmanager_credentials_file: str | None
    slack_webhook_url_file: str | None
    heartbeat_url: str | None
    heartbeat_url_file: str | None
    receivers: Receivers
    resolve_after_seconds: float
    repeat_interval_seconds: float
    silence_file: str | None
    spool_dir: str | None
    incidents_dir: str | None
    external_url: str | None
    dashboard_url: str | None
    runbooks_url: str
    restart_hint: str | None
    redact_patterns: Texts
    source_interval_seconds: float
    lag_by_partition: bool
    observed_metrics: Texts
    probe_interval_seconds: float
    http_host: str
    http_port: int
    http_token_file: str | None
    http_tls_cert_file: str | None
    http_tls_key_file: str | None
    http_tls_client_ca_file: str | None
    http_allow_anonymous: bool
    pushgateway_url: str | None
    pushgateway_credentials_file: str | None
    otlp_endpoint: str | None
    otlp_headers_file: str | None
    allow_http: bool
    ca_file: str | None


def with_settings(function: Callable[..., Any]) -> Signature:
    """The signature of a function whose ``**`` parameter is the settings: each one a keyword.

    ``help`` and IPython show it. Its defaults hold where no other source gives the setting.
    """
    own = signature(function)
    given = [one for one in own.parameters.values() if one.kind is not Parameter.VAR_KEYWORD]
    types = get_type_hints(SettingArguments)
    declared = {field.name: field for field in fields(Settings)}
    keywords = [
        Parameter(
            name,
            Parameter.KEYWORD_ONLY,
            default=_default(declared[name]),
            annotation=types.get(name, Parameter.empty),
        )
        for name in TYPES
    ]
    return own.replace(parameters=[*given, *keywords])


def _default(setting: FieldInfo) -> Any:
    return setting.default_factory() if setting.default is NODEFAULT else setting.default
