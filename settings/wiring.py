"""Settings -> the components of a sidecar."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from ..alerting.lifecycle.lifecycle import LifecycleSettings
from ..alerting.outbox.delivery import Delivery
from ..alerting.outbox.spool import Spool
from ..alerting.policy import Limits, Policy
from ..alerting.receivers.address import is_loopback
from ..alerting.receivers.receiver import Receiver
from ..core.guard import Guard
from ..core.secret import Secret
from ..exporter.tls import Tls
from ..listener.prober import CALM_SECONDS
from . import receivers_from_settings
from .declared_places import declared
from .settings import QuerySettings, Settings, SettingsError

CLOSER_AFTER_SECONDS = 5.0
SLOW_POLL_SECONDS = 3.0
_LIMITS = tuple(name for name in Limits.__struct_fields__ if name != "ignore")
_OF_QUERIES = Limits.__struct_fields__


def policy(settings: Settings, *, probe_expected: bool = False) -> Policy:
    """The expected queries and the limits.

    Raises:
        SettingsError: a warning threshold is greater than its critical threshold, or a declared
            place could never match.

    """
    defaults = Limits(**{name: getattr(settings, name) for name in _LIMITS})
    for pattern, own in {"": QuerySettings(), **settings.queries}.items():
        _check_ratios(defaults, own, f" of queries {pattern!r}" if pattern else "")
    return Policy(
        expected=settings.expected_queries,
        defaults=defaults,
        overrides=tuple(
            (pattern, {k: v for k in _OF_QUERIES if (v := getattr(own, k, None)) is not None})
            for pattern, own in settings.queries.items()
        ),
        probe_stale_seconds=SLOW_POLL_SECONDS
        + max(CALM_SECONDS, 2 * settings.probe_interval_seconds),
        probe_expected=probe_expected,
        declared=declared(settings.queries),
    )


def _check_ratios(defaults: Limits, own: QuerySettings, whose: str) -> None:
    warning = own.data_loss_warning_ratio or defaults.data_loss_warning_ratio
    critical = own.data_loss_critical_ratio or defaults.data_loss_critical_ratio
    if warning > critical:
        raise SettingsError(
            f"setting 'data_loss_warning_ratio'{whose} ({warning:g}) must not be greater than "
            f"'data_loss_critical_ratio' ({critical:g})"
        )


def closer_after_seconds(settings: Settings) -> float:
    """Seconds after which the probe examines a busy query closely: long before any window ends."""
    return min(CLOSER_AFTER_SECONDS, shortest_floor_seconds(settings) / 4)


def shortest_floor_seconds(settings: Settings) -> float:
    """The shortest ``stall_floor_seconds`` of any query."""
    floors = [own.stall_floor_seconds for own in settings.queries.values()]
    return min([settings.stall_floor_seconds, *(floor for floor in floors if floor)])


def terms(settings: Settings) -> LifecycleSettings:
    """When an alert resolves, and when a reminder is sent."""
    return LifecycleSettings(
        **{name: getattr(settings, name) for name in LifecycleSettings.__struct_fields__}
    )


def deliveries(
    settings: Settings,
    guard: Guard,
    *,
    receivers: Sequence[Receiver] | None = None,
    spool: Spool | None = None,
) -> list[Delivery]:
    """One unstarted delivery for each receiver; needs no Spark.

    ``receivers``, if given, were made before from the same settings.

    Raises:
        SettingsError: a receiver cannot be made from its settings.

    """
    made = receivers if receivers is not None else receivers_from_settings.receivers(settings)
    routes = receivers_from_settings.routes(settings)
    return [
        Delivery(receiver, guard, route=routes[receiver.name], spool=spool) for receiver in made
    ]


def spool(settings: Settings, app: str, guard: Guard) -> Spool | None:
    """The spool in which alerts outlive the driver; None if not configured."""
    return Spool(Path(settings.spool_dir), app, guard) if settings.spool_dir is not None else None


class HttpAccess(msgspec.Struct, frozen=True):
    """The token that readers need, and the server's certificates."""

    token: Secret | None = None
    tls: Tls | None = None


def http_access(settings: Settings) -> HttpAccess:
    """Token and TLS files of the HTTP server.

    Raises:
        SettingsError: a file cannot be read, or a certificate has no key.

    """
    cert, key = settings.http_tls_cert_file, settings.http_tls_key_file
    if (cert is None) != (key is None):
        raise SettingsError("settings 'http_tls_cert_file' and 'http_tls_key_file' go together")
    if settings.http_tls_client_ca_file is not None and cert is None:
        raise SettingsError("setting 'http_tls_client_ca_file' needs 'http_tls_cert_file'")
    token = token_of(settings.http_token_file, "setting 'http_token_file'")
    if cert is None or key is None:
        return HttpAccess(token)
    tls = Tls(cert, key, settings.http_tls_client_ca_file)
    try:
        tls.context()
    except OSError as error:
        raise SettingsError(f"settings 'http_tls_...': {error}") from None
    return HttpAccess(token, tls)


def token_of(path: str | None, setting: str) -> Secret | None:
    """The token in a file; None without one.

    Raises:
        SettingsError: the file cannot be read; the message names ``setting``.

    """
    if path is None:
        return None
    try:
        return Secret.from_file(path, setting=setting)
    except ValueError as error:
        raise SettingsError(str(error)) from None


def refused_address(settings: Settings) -> str:
    """Why the HTTP server must not start, because anybody could read; empty if it may."""
    restricted = settings.http_token_file or settings.http_tls_client_ca_file
    if settings.http_port < 0 or restricted or settings.http_allow_anonymous:
        return ""
    if is_loopback(settings.http_host):
        return ""
    return (
        f"setting 'http_host' ({settings.http_host}) lets other machines read: set "
        "'http_token_file' or 'http_tls_client_ca_file', or allow everybody with "
        "'http_allow_anonymous'"
    )
