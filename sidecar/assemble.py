"""Settings -> what a sidecar, the watcher and a replay are made of; nothing is started or sent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from ..alerting.alert import Incident
from ..alerting.delivery.deliveries import Attempt, Delivery, Notifier
from ..alerting.delivery.heartbeat import Heartbeat, QueryHeartbeats
from ..alerting.delivery.spool import Spool
from ..alerting.policy import Limits, LimitSettings, Overrides, Policy
from ..alerting.receivers.http import HttpPoster
from ..alerting.receivers.receiver import (
    HttpOptions,
    Receiver,
    ReceiverContext,
    ReceiverSettings,
    is_loopback,
)
from ..alerting.redaction import EvaluationRedactor
from ..alerting.silences import SilenceStore
from ..core.folders import Folder, LocalFolder, is_uri
from ..core.guard import Guard
from ..core.redaction import unusable
from ..core.secret import Secret, parse_headers
from ..exporter import push
from ..exporter.push import PushTarget
from ..exporter.server import Tls
from ..listener.prober import CALM_SECONDS
from ..listener.state.snapshot import DriverAttempt
from ..settings.datasets import declared_datasets
from ..settings.links import external_url, guidance
from ..settings.receivers import HEARTBEAT, Configured, as_settings_error, configured, routes
from ..settings.secrets import own_secrets
from ..settings.settings import QuerySettings, Settings

SLOW_POLL_SECONDS = 3.0

Hadoop = Callable[[str], Folder]
"""Opens a folder by its URI, with the driver's own file systems."""


def make_policy(settings: Settings, *, probe_expected: bool = False) -> Policy:
    """The expected queries and the limits.

    Raises:
        SettingsError: a declared dataset could never match, or a time of day cannot be read.

    """
    defaults = Limits(**{name: getattr(settings, name) for name in LimitSettings.__struct_fields__})
    overrides = tuple(
        (
            pattern,
            {
                name: limit
                for name in Limits.__struct_fields__
                if (limit := getattr(own, name)) is not None
            },
        )
        for pattern, own in settings.queries.items()
    )
    with as_settings_error(settings):
        declared = declared_datasets(settings.queries)
    _require_times(settings, defaults, overrides)
    return Policy(
        expected=settings.expected_queries,
        expected_errors=settings.expected_errors,
        defaults=defaults,
        overrides=overrides,
        probe_stale_seconds=SLOW_POLL_SECONDS
        + max(CALM_SECONDS, 2 * settings.probe_interval_seconds),
        probe_expected=probe_expected,
        declared=declared,
    )


def _require_times(settings: Settings, defaults: Limits, overrides: Overrides) -> None:
    """Require that each ``complete_by`` can be read.

    Raises:
        SettingsError: one cannot; the message names it.

    """
    places = {"setting 'complete_by'": defaults}
    for pattern, changes in overrides:
        places[f"setting 'queries', in {pattern!r}, complete_by"] = replace(defaults, **changes)
    for place, limits in places.items():
        with as_settings_error(settings, f"{place}: "):
            limits.deadlines  # noqa: B018 - it is read to be checked


def shortest_floor_seconds(settings: Settings) -> float:
    """The shortest ``stall_floor_seconds`` of any query."""
    own = (getattr(query, "stall_floor_seconds", None) for query in settings.queries.values())
    floors: list[float | None] = [settings.stall_floor_seconds, *own]
    return min(filter(None, floors))


def make_receivers(settings: Settings) -> list[Receiver]:
    """One receiver for each that the settings name.

    Raises:
        SettingsError: a URL, key, secret or certificate cannot be used, or the settings
            contradict each other.

    """
    return [_receiver(entry, settings) for entry in configured(settings)]


def make_heartbeat(settings: Settings, guard: Guard) -> Heartbeat | None:
    """The heartbeat of the driver; None if not configured.

    Raises:
        SettingsError: its URL cannot be used.

    """
    with as_settings_error(settings):
        return _heartbeat(settings, settings, guard)


def make_query_heartbeats(settings: Settings, guard: Guard) -> dict[str, Heartbeat]:
    """By name pattern: the heartbeats pinged when such a query commits or completes.

    Raises:
        SettingsError: a URL cannot be used.

    """
    made = {}
    for pattern, own in settings.queries.items():
        with as_settings_error(settings, f"queries {pattern!r}: "):
            name = f"{HEARTBEAT} {pattern}"
            made[pattern] = _heartbeat(own, settings, guard, name=name, announces=False)
    return {pattern: heartbeat for pattern, heartbeat in made.items() if heartbeat is not None}


def _heartbeat(
    given: Settings | QuerySettings, settings: Settings, guard: Guard, **options: Any
) -> Heartbeat | None:
    url = given.heartbeat_url
    file = given.heartbeat_url_file
    if url is not None and file is not None:
        raise ValueError("give 'heartbeat_url' or 'heartbeat_url_file', not both")
    if url is None and file is None:
        return None
    secret = _secret(url, file, "heartbeat_url_file")
    return Heartbeat(secret, guard, http=http_options(None, settings), **options)


def _receiver(entry: Configured, settings: Settings) -> Receiver:
    def secret(field: str) -> Secret:
        value = getattr(entry.given, field, None)
        file = getattr(entry.given, f"{field}_file")
        return _secret(value, file, entry.called(f"{field}_file"))

    def secrets(field: str) -> list[Secret]:
        setting = entry.called(field)
        return [Secret.from_file(path, setting=setting) for path in getattr(entry.given, field)]

    page = external_url(settings)
    with as_settings_error(settings, entry.place, entry):
        context = ReceiverContext(http_options(entry.given, settings), page, secret, secrets)
        return entry.given.makes(entry.given, context)


def _secret(value: str | None, file: str | None, setting: str) -> Secret:
    return Secret(value) if value is not None else Secret.from_file(file or "", setting=setting)


def http_options(given: ReceiverSettings | None, settings: Settings) -> HttpOptions:
    """A receiver's own HTTP options; where it has none, the top-level settings.

    Raises:
        ValueError: one cannot be used; the message names the setting.

    """
    fields: dict[str, Any] = {}
    for name in HttpOptions.__struct_fields__:
        own = getattr(given, name, None)
        fields[name] = own if own is not None else getattr(settings, name, None)
    options = HttpOptions(**fields)
    options.check()
    return options


def make_notifier(
    settings: Settings,
    app: str,
    guard: Guard,
    receivers: Sequence[Receiver],
    *,
    restore: Callable[[tuple[Incident, ...]], None],
    heartbeat: Heartbeat | None = None,
    query_heartbeats: dict[str, Heartbeat] | None = None,
    redact: Callable[[str], str] = str,
    on_attempt: Callable[[Attempt], object] = lambda _: None,
    is_held: Callable[[str], bool] = lambda _: False,
    keep_ended_seconds: float = 0.0,
    hadoop: Hadoop | None = None,
    attempt: DriverAttempt | None = None,
) -> Notifier:
    """The unstarted notifier; ``restore`` gets what an earlier process of ``app`` left open.

    For ``is_held`` and ``keep_ended_seconds`` see ``Delivery``.

    Raises:
        SettingsError: the spool is at a URI, and there is no JVM that opens it.

    """
    folder = folder_at(settings.spool_dir, "spool_dir", settings, hadoop)
    spool = None if folder is None else Spool(folder, app, guard, attempt=attempt)
    taken = routes(settings)
    return Notifier(
        [
            Delivery(
                receiver,
                guard,
                route=taken[receiver.name],
                spool=spool,
                on_attempt=on_attempt,
                is_held=is_held,
                keep_ended_seconds=keep_ended_seconds,
            )
            for receiver in receivers
        ],
        spool,
        heartbeat=heartbeat,
        query_heartbeats=QueryHeartbeats(query_heartbeats or {}),
        restore=restore,
        redact=redact,
    )


def folder_at(
    place: str | None, setting: str, settings: Settings, hadoop: Hadoop | None
) -> Path | Folder | None:
    """The folder that ``setting`` names, which is not made yet; a path where it is on a disk.

    Raises:
        SettingsError: it is a URI, and there is no JVM that opens it.

    """
    if place is None:
        return None
    if not is_uri(place):
        return Path(place)
    if hadoop is None:
        raise settings.error(
            f"setting {setting!r}: {place} is opened by Hadoop in the driver's JVM, and "
            "there is none here, as over Spark Connect and in `querypulse watch`: give a local path"
        )
    return hadoop(place)


def recordings_folder(settings: Settings, hadoop: Hadoop | None) -> Folder | None:
    """The folder of the recordings of incidents; None where they are kept in memory only.

    Raises:
        SettingsError: as ``folder_at``.

    """
    place = settings.incidents_dir
    setting = "incidents_dir"
    if place is None and settings.spool_dir is not None:
        place = f"{settings.spool_dir.rstrip('/')}/incidents"
        setting = "spool_dir"
    folder = folder_at(place, setting, settings, hadoop)
    return LocalFolder(folder) if isinstance(folder, Path) else folder


def make_redactor(settings: Settings) -> EvaluationRedactor:
    """What hides the secrets of the settings, and what their patterns match.

    Raises:
        SettingsError: a pattern is not a regular expression, or a secret's file cannot be read.

    """
    for position, pattern in enumerate(settings.redact_patterns):
        if problem := unusable(pattern):
            # The pattern is not shown: it may contain the secret that it hides.
            raise settings.error(f"setting 'redact_patterns', at [{position}]: {problem}")
    with as_settings_error(settings):
        secrets = own_secrets(settings)
    return EvaluationRedactor(secrets, settings.redact_patterns)


def http_access(settings: Settings) -> tuple[Secret | None, Tls | None]:
    """The token that readers need, and the certificates of the HTTP server.

    Raises:
        SettingsError: a file cannot be read, or a certificate has no key.

    """
    cert = settings.http_tls_cert_file
    key = settings.http_tls_key_file
    if (cert is None) != (key is None):
        raise settings.error("settings 'http_tls_cert_file' and 'http_tls_key_file' go together")
    if settings.http_tls_client_ca_file is not None and cert is None:
        raise settings.error("setting 'http_tls_client_ca_file' needs 'http_tls_cert_file'")
    token = secret_in(settings.http_token_file, "setting 'http_token_file'", settings)
    if cert is None or key is None:
        return token, None
    tls = Tls(cert, key, settings.http_tls_client_ca_file)
    with as_settings_error(settings):
        tls.context()
    return token, tls


def secret_in(path: str | None, setting: str, settings: Settings) -> Secret | None:
    """The secret in a file; None without one.

    Raises:
        SettingsError: the file cannot be read; the message names ``setting``.

    """
    if path is None:
        return None
    with as_settings_error(settings):
        return Secret.from_file(path, setting=setting)


def refused_address(settings: Settings) -> str:
    """Why the HTTP server must not start, because anybody could read; empty if it may."""
    restricted = settings.http_token_file or settings.http_tls_client_ca_file
    if settings.http_port < 0 or restricted or settings.http_allow_anonymous:
        return ""
    if is_loopback(settings.http_host):
        return ""
    problem = (
        f"setting 'http_host' ({settings.http_host}) lets other machines read: set "
        "'http_token_file' or 'http_tls_client_ca_file', or allow everybody with "
        "'http_allow_anonymous'"
    )
    return str(settings.error(problem))


# -- pushing ----------------------------------------------------------------------------------
# Settings -> what pushes metrics, where nobody can scrape.


def push_targets(settings: Settings) -> tuple[PushTarget, ...]:
    """The configured targets; nothing is sent yet.

    Raises:
        SettingsError: a URL, or a file of headers or credentials, cannot be used.

    """
    if settings.otlp_headers_file is not None and settings.otlp_endpoint is None:
        raise settings.error("setting 'otlp_headers_file' needs 'otlp_endpoint'")
    if settings.pushgateway_credentials_file is not None and settings.pushgateway_url is None:
        raise settings.error("setting 'pushgateway_credentials_file' needs 'pushgateway_url'")
    targets: list[PushTarget] = []
    if settings.pushgateway_url is not None:
        path = settings.pushgateway_credentials_file
        credentials = secret_in(path, "pushgateway_credentials_file", settings)
        poster = _poster("pushgateway_url", settings.pushgateway_url, settings, credentials)
        targets.append(push.Pushgateway(poster))
    if settings.otlp_endpoint is not None:
        poster = _poster("otlp_endpoint", settings.otlp_endpoint, settings)
        headers = secret_in(settings.otlp_headers_file, "otlp_headers_file", settings)
        if headers is not None:
            with as_settings_error(settings, "setting 'otlp_headers_file': "):
                parse_headers(headers.known)
        targets.append(push.Otlp(poster, headers))
    return tuple(targets)


def _poster(
    name: str, url: str, settings: Settings, credentials: Secret | None = None
) -> HttpPoster:
    with as_settings_error(settings):
        http = http_options(None, settings)
        return HttpPoster(Secret(url), setting=name, http=http, credentials=credentials)


# -- components -------------------------------------------------------------------------------


class Components:
    """What a sidecar is made of that needs no Spark: its settings are checked first.

    No thread runs yet.

    Raises:
        SettingsError: a limit, receiver, link, key, certificate or pattern cannot be used.

    """

    def __init__(self, settings: Settings, guard: Guard) -> None:
        self.settings = settings
        self.guard = guard
        self.guidance = guidance(settings)
        self.policy = make_policy(settings, probe_expected=True)
        self.receivers = make_receivers(settings)
        self.heartbeat = make_heartbeat(settings, guard)
        self.query_heartbeats = make_query_heartbeats(settings, guard)
        self.push_targets = push_targets(settings)
        self.token, self.tls = http_access(settings)
        self.redacting = make_redactor(settings)
        self.silencing = SilenceStore(settings.silence_file, guard)
