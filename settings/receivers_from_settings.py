"""Settings -> receivers and heartbeats, with their secrets and HTTP options."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from ..alerting.outbox.routing import Route
from ..alerting.receivers.declaration import ReceiverContext, ReceiverSettings
from ..alerting.receivers.heartbeat import Heartbeat
from ..alerting.receivers.http_options import HttpOptions
from ..alerting.receivers.receiver import Receiver
from ..core.guard import Guard
from ..core.secret import Secret
from .configured import HEARTBEAT, Configured, configured
from .links import external_url
from .settings import QuerySettings, Settings, SettingsError

QUERY_HEARTBEAT_SECONDS = 60.0
"""The shortest time between two pings of a query's heartbeat."""


def receivers(settings: Settings) -> list[Receiver]:
    """One receiver for each that the settings name.

    Raises:
        SettingsError: a URL, key, secret or certificate cannot be used, or the settings
            contradict each other.

    """
    return [_receiver(one, settings) for one in configured(settings)]


def routes(settings: Settings) -> dict[str, Route]:
    """Which alerts go to each receiver, by the receiver's name."""
    return {one.given.name: _route(one.given) for one in configured(settings)}


def heartbeat(settings: Settings, guard: Guard) -> Heartbeat | None:
    """The heartbeat of the driver; None if not configured.

    Raises:
        SettingsError: its URL cannot be used.

    """
    http = http_options(None, settings)
    with as_settings_error():
        secret = _heartbeat_url(settings)
        if secret is None:
            return None
        http.check()
        interval = settings.heartbeat_interval_seconds
        return Heartbeat(secret, guard, interval_seconds=interval, http=http)


def query_heartbeats(settings: Settings, guard: Guard) -> dict[str, Heartbeat]:
    """By name pattern: the heartbeats pinged when such a query commits or completes.

    Raises:
        SettingsError: a URL cannot be used.

    """
    made = {}
    http = http_options(None, settings)
    for pattern, own in settings.queries.items():
        with as_settings_error(f"queries {pattern!r}: "):
            secret = _heartbeat_url(own)
            if secret is None:
                continue
            http.check()
            made[pattern] = Heartbeat(
                secret,
                guard,
                name=f"{HEARTBEAT} {pattern}",
                first=None,
                parting=None,
                interval_seconds=QUERY_HEARTBEAT_SECONDS,
                http=http,
            )
    return made


def _heartbeat_url(given: Settings | QuerySettings) -> Secret | None:
    url, file = given.heartbeat_url, given.heartbeat_url_file
    if url is not None and file is not None:
        raise ValueError("give 'heartbeat_url' or 'heartbeat_url_file', not both")
    return None if url is None and file is None else _secret(url, file, "heartbeat_url_file")


def _receiver(one: Configured, settings: Settings) -> Receiver:
    with as_settings_error(one):
        http = http_options(one.given, settings)
        http.check()
    context = ReceiverContext(
        http, external_url(settings), partial(_secret_of, one), partial(_secrets_of, one)
    )
    with as_settings_error(one):
        return one.kind.make(one.given, context)


def _secret_of(one: Configured, field: str) -> Secret:
    value, file = getattr(one.given, field), getattr(one.given, f"{field}_file")
    with as_settings_error(one.place):
        return _secret(value, file, one.called(f"{field}_file"))


def _secrets_of(one: Configured, field: str) -> list[Secret]:
    paths = getattr(one.given, field)
    with as_settings_error(one.place):
        return [Secret.from_file(path, setting=one.called(field)) for path in paths]


def _secret(value: str | None, file: str | None, setting: str) -> Secret:
    return Secret(value) if value is not None else Secret.from_file(file or "", setting=setting)


def http_options(given: ReceiverSettings | None, settings: Settings) -> HttpOptions:
    """A receiver's own HTTP options; where it has none, the top-level settings."""
    options = {}
    for name in HttpOptions.__struct_fields__:
        own = getattr(given, name, None)
        options[name] = own if own is not None else getattr(settings, name)
    return HttpOptions(**options)


def _route(given: ReceiverSettings) -> Route:
    return Route(
        severities=given.severities,
        queries=given.queries,
        fallback=given.fallback,
        fallback_after_seconds=given.fallback_after_seconds,
    )


@contextmanager
def as_settings_error(one: Configured | str = "") -> Iterator[None]:
    """Turn a constructor's ``ValueError`` into a ``SettingsError`` that names the setting."""
    try:
        yield
    except SettingsError:
        raise
    except ValueError as error:
        message = one.reworded(str(error)) if isinstance(one, Configured) else f"{one}{error}"
        raise SettingsError(message) from None
