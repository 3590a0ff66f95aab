"""Settings -> the parts of a sidecar."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ..alerting.policy import Limits, Policy
from ..alerting.receivers.pagerduty import EVENTS_URL, PagerDuty
from ..alerting.receivers.receiver import Receiver
from ..alerting.receivers.webhook import Webhook
from ..exporter.tls import Tls
from .settings import Settings, SettingsError

CLOSER_AFTER_SECONDS = 5.0
SLOW_LOOK_SECONDS = 3.0
_LIMITS = tuple(name for name in Limits.__struct_fields__ if name != "ignore")


def policy(settings: Settings, *, probe_expected: bool = False) -> Policy:
    """The roster and the limits."""
    return Policy(
        expected=settings.expected_queries,
        defaults=Limits(**{name: getattr(settings, name) for name in _LIMITS}),
        overrides=tuple(
            (pattern, {k: v for k, v in msgspec.structs.asdict(own).items() if v is not None})
            for pattern, own in settings.queries.items()
        ),
        probe_stale_seconds=SLOW_LOOK_SECONDS + 2 * settings.probe_interval_seconds,
        probe_expected=probe_expected,
    )


def closer_after_seconds(settings: Settings) -> float:
    """When the probe looks closely at a busy query: long before any window can be over."""
    floors = [own.stall_floor_seconds for own in settings.queries.values()]
    shortest = min([settings.stall_floor_seconds, *(floor for floor in floors if floor)])
    return min(CLOSER_AFTER_SECONDS, shortest / 4)


def receivers(settings: Settings) -> list[Receiver]:
    """One receiver for each place the settings name.

    Raises:
        SettingsError: a URL, key or secret is not usable.

    """
    _require_sense(settings)
    found: list[Receiver] = []
    plain = settings.allow_http
    try:
        if settings.webhook_url is not None:
            secret = read_secret("webhook_secret_file", settings.webhook_secret_file)
            found.append(Webhook(settings.webhook_url, secret=secret, allow_http=plain))
        key = settings.pagerduty_routing_key
        if key is None:
            path = settings.pagerduty_routing_key_file
            key = read_secret("pagerduty_routing_key_file", path)
        if key is not None:
            url = settings.pagerduty_url or EVENTS_URL
            found.append(PagerDuty(key, url=url, allow_http=plain))
    except SettingsError:
        raise
    except ValueError as error:
        raise SettingsError(str(error)) from None
    return found


def _require_sense(settings: Settings) -> None:
    """Refuse settings that would silently mean nothing."""
    key, key_file = settings.pagerduty_routing_key, settings.pagerduty_routing_key_file
    if key is not None and key_file is not None:
        raise SettingsError(
            "give 'pagerduty_routing_key' or 'pagerduty_routing_key_file', not both"
        )
    if settings.pagerduty_url is not None and key is None and key_file is None:
        raise SettingsError("setting 'pagerduty_url' needs 'pagerduty_routing_key_file'")
    if settings.webhook_secret_file is not None and settings.webhook_url is None:
        raise SettingsError("setting 'webhook_secret_file' needs 'webhook_url'")


def read_secret(name: str, path: str | None) -> str | None:
    """The secret in a file, without the white space around it.

    Raises:
        SettingsError: the file cannot be read, or is empty.

    """
    if path is None:
        return None
    try:
        secret = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise SettingsError(f"setting {name!r}: cannot read {path}: {error}") from None
    if not secret:
        raise SettingsError(f"setting {name!r}: {path} is empty")
    return secret


class HttpAccess(msgspec.Struct, frozen=True):
    """Who may read, and how the server proves itself."""

    token: str | None = None
    tls: Tls | None = None


def http_access(settings: Settings) -> HttpAccess:
    """Token and TLS files of the HTTP server.

    Raises:
        SettingsError: a file cannot be read, or a certificate comes without its key.

    """
    cert, key = settings.http_tls_cert_file, settings.http_tls_key_file
    if (cert is None) != (key is None):
        raise SettingsError("settings 'http_tls_cert_file' and 'http_tls_key_file' go together")
    if settings.http_tls_client_ca_file is not None and cert is None:
        raise SettingsError("setting 'http_tls_client_ca_file' needs 'http_tls_cert_file'")
    token = read_secret("http_token_file", settings.http_token_file)
    if cert is None or key is None:
        return HttpAccess(token)
    tls = Tls(cert, key, settings.http_tls_client_ca_file)
    try:
        tls.context()
    except OSError as error:
        raise SettingsError(f"settings 'http_tls_...': {error}") from None
    return HttpAccess(token, tls)
