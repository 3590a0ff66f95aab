"""Settings -> the components of a sidecar."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from ..alerting.delivery.deliveries import Delivery, Notifier
from ..alerting.delivery.heartbeat import Heartbeat, QueryHeartbeats
from ..alerting.delivery.spool import Spool
from ..alerting.incidents.alert import Incident
from ..alerting.policy import Limits, LimitSettings, Policy
from ..alerting.receivers.http import HttpPoster
from ..alerting.receivers.receiver import Receiver, is_loopback
from ..alerting.redaction import EvaluationRedactor
from ..alerting.silences import SilenceStore
from ..core.guard import Guard
from ..core.redaction import unusable
from ..core.secret import Secret, parse_headers
from ..exporter import push
from ..exporter.push import PushTarget
from ..exporter.server import Tls
from ..listener.prober import CALM_SECONDS
from ..listener.state.flow import TABLE, TOPIC, Dataset, Declared, brokers_of, path_dataset
from . import receivers as receivers_from_settings
from .links import guidance
from .receivers import as_settings_error, http_options
from .secrets import own_secrets
from .settings import QuerySettings, Settings

# -- declared places --------------------------------------------------------------------------
# The places that the settings declare: what queries read and write where Spark does not show it.
#
# Forms: a URI or absolute path, as such or after ``path:``, ``delta:`` or ``parquet:``
# (``delta:/lake/bronze``, ``s3://lake/bronze``); ``kafka:TOPIC`` or ``kafka://BROKERS/TOPIC``;
# ``table:CATALOG.DB.TABLE``, ``iceberg:...``. Without a file system or brokers a place matches any.

_PATHS = ("path:", "delta:", "parquet:")
_TABLES = ("table:", "iceberg:")
_KAFKA = "kafka:"
_FILE_SYSTEMS = frozenset(
    {
        *("file", "hdfs", "viewfs", "webhdfs", "swebhdfs", "ofs", "o3fs", "maprfs", "alluxio"),
        *("s3", "gs", "abfss", "wasb", "wasbs", "adl", "dbfs", "oss", "obs", "cosn", "lakefs"),
    }
)
"""Hadoop's names for them, as ``Dataset.owners`` has them; of others, declare the path alone."""
ALLOWED = (
    "'delta:/lake/bronze', 's3://lake/bronze', 'kafka:orders', 'kafka://broker:9092/orders' or "
    "'iceberg:catalog.db.orders'"
)


def _declared(queries: Mapping[str, QuerySettings]) -> tuple[Declared, ...]:
    declarations = []
    for pattern, own in queries.items():
        reads = tuple(_datasets(pattern, "reads", own.reads or ()))
        writes = tuple(_datasets(pattern, "writes", own.writes or ()))
        if reads or writes:
            declarations.append(Declared(pattern, reads, writes))
    return tuple(declarations)


def _datasets(pattern: str, side: str, texts: Sequence[str]) -> Iterator[Dataset]:
    for text in texts:
        if not pattern.strip():
            raise ValueError("setting 'queries': an empty name pattern matches no query")
        if (dataset := _parsed(text.strip())) is None:
            raise ValueError(
                f"setting 'queries', {side!r} of {pattern!r}: {text!r} could never match; write "
                f"{ALLOWED}"
            )
        yield dataset


def _parsed(text: str) -> Dataset | None:
    if text.startswith(_KAFKA):
        return _topic(text.removeprefix(_KAFKA))
    for prefix in _TABLES:
        if text.startswith(prefix):
            name = text.removeprefix(prefix)
            return Dataset(TABLE, name) if all(name.split(".")) and "." in name else None
    for prefix in _PATHS:
        text = text.removeprefix(prefix)
    dataset = path_dataset(text)
    schemes = set() if dataset is None else {owner.partition("://")[0] for owner in dataset.owners}
    return dataset if schemes <= _FILE_SYSTEMS else None


def _topic(text: str) -> Dataset | None:
    brokers: tuple[str, ...] = ()
    if text.startswith("//"):
        servers, _, text = text.removeprefix("//").partition("/")
        brokers = brokers_of(servers)
        if not brokers:
            return None
    return Dataset(TOPIC, text, brokers) if text and "/" not in text else None


# -- wiring -----------------------------------------------------------------------------------

SLOW_POLL_SECONDS = 3.0


def policy(settings: Settings, *, probe_expected: bool = False) -> Policy:
    """The expected queries and the limits.

    Raises:
        SettingsError: a declared place could never match.

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
        declared = _declared(settings.queries)
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


def shortest_floor_seconds(settings: Settings) -> float:
    """The shortest ``stall_floor_seconds`` of any query."""
    own = (getattr(query, "stall_floor_seconds", None) for query in settings.queries.values())
    floors: list[float | None] = [settings.stall_floor_seconds, *own]
    return min(filter(None, floors))


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
) -> Notifier:
    """The unstarted notifier; ``restore`` gets what an earlier process of ``app`` left open."""
    spool = Spool(Path(settings.spool_dir), app, guard) if settings.spool_dir is not None else None
    routes = receivers_from_settings.routes(settings)
    return Notifier(
        [
            Delivery(receiver, guard, route=routes[receiver.name], spool=spool)
            for receiver in receivers
        ],
        spool,
        heartbeat=heartbeat,
        query_heartbeats=QueryHeartbeats(query_heartbeats or {}),
        restore=restore,
        redact=redact,
    )


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
    cert, key = settings.http_tls_cert_file, settings.http_tls_key_file
    if (cert is None) != (key is None):
        raise settings.error("settings 'http_tls_cert_file' and 'http_tls_key_file' go together")
    if settings.http_tls_client_ca_file is not None and cert is None:
        raise settings.error("setting 'http_tls_client_ca_file' needs 'http_tls_cert_file'")
    token = secret_in(settings.http_token_file, "setting 'http_token_file'", settings)
    if cert is None or key is None:
        return token, None
    tls = Tls(cert, key, settings.http_tls_client_ca_file)
    try:
        tls.context()
    except OSError as error:
        raise settings.error(
            "settings 'http_tls_cert_file', 'http_tls_key_file' and 'http_tls_client_ca_file': "
            f"{error}"
        ) from None
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
        SettingsError: a URL or a file of headers cannot be used, or a package is not installed.

    """
    if settings.otlp_headers_file is not None and settings.otlp_endpoint is None:
        raise settings.error("setting 'otlp_headers_file' needs 'otlp_endpoint'")
    if settings.otlp_endpoint is not None and not push.is_installed():
        raise settings.error(f"setting 'otlp_endpoint' needs: pip install {push.PACKAGE}")
    targets: list[PushTarget] = []
    if settings.pushgateway_url is not None:
        poster = _poster("pushgateway_url", settings.pushgateway_url, settings)
        targets.append(push.Pushgateway(poster))
    if settings.otlp_endpoint is not None:
        poster = _poster("otlp_endpoint", settings.otlp_endpoint, settings)
        headers = secret_in(settings.otlp_headers_file, "otlp_headers_file", settings)
        if headers is not None:
            with as_settings_error(settings, "setting 'otlp_headers_file': "):
                parse_headers(headers.known)
        targets.append(push.Otlp(poster, headers))
    return tuple(targets)


def _poster(name: str, url: str, settings: Settings) -> HttpPoster:
    with as_settings_error(settings):
        return HttpPoster(Secret(url), setting=name, http=http_options(None, settings))


# -- components -------------------------------------------------------------------------------


class Components:
    """What a sidecar is made of that needs no Spark: its settings are checked first.

    No thread runs yet.

    Raises:
        SettingsError: a limit, receiver, link, key, certificate or pattern cannot be used.

    """

    def __init__(self, settings: Settings, guard: Guard) -> None:
        self.settings, self.guard = settings, guard
        self.guidance = guidance(settings)
        self.policy = policy(settings, probe_expected=True)
        self.receivers = receivers_from_settings.receivers(settings)
        self.heartbeat = receivers_from_settings.heartbeat(settings, guard)
        self.query_heartbeats = receivers_from_settings.query_heartbeats(settings, guard)
        self.push_targets = push_targets(settings)
        self.token, self.tls = http_access(settings)
        self.redacting = make_redactor(settings)
        self.silencing = SilenceStore(settings.silence_file, guard)
