"""Settings -> what pushes metrics, where nobody can scrape."""

from __future__ import annotations

import msgspec

from ..alerting.receivers.http import HttpPoster
from ..core.secret import Secret
from ..exporter.push import otlp
from .receivers_from_settings import as_settings_error, http_options
from .settings import Settings, SettingsError


class PushConnections(msgspec.Struct, frozen=True):
    """The configured targets; None for one that is not."""

    pushgateway: HttpPoster | None = None
    otlp: HttpPoster | None = None
    otlp_headers: Secret | None = None
    interval_seconds: float = 15.0


def push_connections(settings: Settings) -> PushConnections:
    """The connections to all targets; nothing is sent yet.

    Raises:
        SettingsError: a URL or a file of headers cannot be used, or a package is not installed.

    """
    if settings.otlp_headers_file is not None and settings.otlp_endpoint is None:
        raise SettingsError("setting 'otlp_headers_file' needs 'otlp_endpoint'")
    if settings.otlp_endpoint is not None and not otlp.is_installed():
        raise SettingsError(f"setting 'otlp_endpoint' needs: pip install {' '.join(otlp.PACKAGES)}")
    return PushConnections(
        _poster("pushgateway_url", settings.pushgateway_url, settings),
        _poster("otlp_endpoint", settings.otlp_endpoint, settings),
        _headers(settings.otlp_headers_file),
        settings.push_interval_seconds,
    )


def _poster(name: str, url: str | None, settings: Settings) -> HttpPoster | None:
    if url is None:
        return None
    with as_settings_error():
        return HttpPoster(Secret(url), setting=name, http=http_options(None, settings))


def _headers(path: str | None) -> Secret | None:
    if path is None:
        return None
    with as_settings_error():
        secret = Secret.from_file(path, setting="otlp_headers_file")
    with as_settings_error("setting 'otlp_headers_file': "):
        otlp.parse_headers(secret.reveal())
    return secret
