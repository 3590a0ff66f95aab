"""Settings -> receivers, heartbeats, and who is notified."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from ..alerting.delivery.heartbeat import Heartbeat
from ..alerting.finding import WHOLE_DRIVER
from ..alerting.incidents.alert import CRITICAL, Incident, incident_labels
from ..alerting.receivers import RECEIVER_TYPES
from ..alerting.receivers.receiver import (
    HttpOptions,
    Receiver,
    ReceiverContext,
    ReceiverSettings,
    Route,
)
from ..core.guard import Guard
from ..core.secret import Secret
from .links import external_url
from .settings import QuerySettings, Settings, first_word

log = logging.getLogger("querypulse")

HEARTBEAT = "heartbeat"
"""The name under which heartbeat pings are counted."""


class Configured(msgspec.Struct, frozen=True):
    """One configured receiver, and whether it uses the short form."""

    given: ReceiverSettings
    is_short: bool = False

    @property
    def place(self) -> str:
        """The start of a message about this receiver."""
        return "" if self.is_short else f"receiver {self.given.name!r}: "

    def called(self, field: str) -> str:
        """The name of the setting for a field, as the user wrote it."""
        in_file = getattr(self.given, field, None) is None
        field = f"{field}_file" if in_file and getattr(self.given, f"{field}_file", None) else field
        return self.given.short_form.get(field, field) if self.is_short else field


def configured(settings: Settings) -> tuple[Configured, ...]:
    """All configured receivers.

    Raises:
        SettingsError: they contradict each other, or a setting would have no effect.

    """
    entries = (*_short_forms(settings), *(Configured(entry) for entry in settings.receivers))
    for entry in entries:
        if mistake := _missing_or_double(entry) or _contradiction(entry, entries):
            raise settings.error(mistake)
    return entries


def _short_forms(settings: Settings) -> Iterator[Configured]:
    """The receivers that top-level settings define; a single file is a list of one."""
    for kind in RECEIVER_TYPES:
        defaults = {field.name: field.default for field in msgspec.structs.fields(kind)}
        values = {field: getattr(settings, name) for field, name in kind.short_form.items()}
        given = {
            field: (value,) if defaults[field] == () and isinstance(value, str) else value
            for field, value in values.items()
            if value is not None and value != ()
        }
        needed = kind.one_of or tuple(kind.short_form)
        if not given.keys().isdisjoint(needed):
            # mypy knows the fields of one kind only.
            made: Callable[..., ReceiverSettings] = kind
            yield Configured(made(name=kind.type_name(), **given), is_short=True)
        elif given:
            names = " or ".join(repr(kind.short_form[field]) for field in needed)
            raise settings.error(f"setting {kind.short_form[min(given)]!r} needs {names}")


def _missing_or_double(entry: Configured) -> str:
    """Which setting a receiver needs, or has twice; empty if neither."""
    fields = entry.given.one_of
    given = [field for field in fields if getattr(entry.given, field) is not None]
    names = " or ".join(repr(entry.called(field)) for field in fields)
    if fields and not given:
        return f"{entry.place}needs {names}"
    return f"{entry.place}give {names}, not both" if len(given) > 1 else ""


def _contradiction(entry: Configured, entries: Sequence[Configured]) -> str:
    """How a receiver contradicts the others; empty if it does not."""
    given = entry.given
    namesakes = [other for other in entries if other.given.name == given.name]
    others = [other.given.name for other in entries if other.given.name != given.name]
    if given.name == HEARTBEAT:
        return f"setting 'receivers': the name {HEARTBEAT!r} is reserved"
    if len(namesakes) > 1:
        short = any(other.is_short for other in namesakes)
        hint = f"; the settings '{given.name}_...' make one of them" if short else ""
        return f"setting 'receivers': two are named {given.name!r}{hint}"
    if given.fallback is not None and given.fallback not in others:
        return (
            f"{entry.place}'fallback' {given.fallback!r} is not another receiver; "
            f"there are: {others}"
        )
    if not given.severities and all(other.given.fallback != given.name for other in entries):
        return (
            f"{entry.place}'severities' is empty and it is no receiver's fallback: "
            "it would never receive an alert"
        )
    return ""


# -- receivers from settings ------------------------------------------------------------------


def receivers(settings: Settings) -> list[Receiver]:
    """One receiver for each that the settings name.

    Raises:
        SettingsError: a URL, key, secret or certificate cannot be used, or the settings
            contradict each other.

    """
    return [_receiver(entry, settings) for entry in configured(settings)]


def routes(settings: Settings) -> dict[str, Route]:
    """Which alerts go to each receiver, by the receiver's name."""
    return {entry.given.name: entry.given for entry in configured(settings)}


def heartbeat(settings: Settings, guard: Guard) -> Heartbeat | None:
    """The heartbeat of the driver; None if not configured.

    Raises:
        SettingsError: its URL cannot be used.

    """
    with as_settings_error(settings):
        return _heartbeat(settings, settings, guard)


def query_heartbeats(settings: Settings, guard: Guard) -> dict[str, Heartbeat]:
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
    url, file = given.heartbeat_url, given.heartbeat_url_file
    if url is not None and file is not None:
        raise ValueError("give 'heartbeat_url' or 'heartbeat_url_file', not both")
    if url is None and file is None:
        return None
    secret = _secret(url, file, "heartbeat_url_file")
    return Heartbeat(secret, guard, http=http_options(None, settings), **options)


def _receiver(entry: Configured, settings: Settings) -> Receiver:
    def secret(field: str) -> Secret:
        value, file = getattr(entry.given, field), getattr(entry.given, f"{field}_file")
        return _secret(value, file, f"{field}_file")

    def secrets(field: str) -> list[Secret]:
        return [Secret.from_file(path, setting=field) for path in getattr(entry.given, field)]

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


@contextmanager
def as_settings_error(
    settings: Settings, place: str = "", entry: Configured | None = None
) -> Iterator[None]:
    """Turn a constructor's ``ValueError`` into a ``SettingsError`` with its setting and origin.

    ``place`` is the start of the message, except about a setting of all connections.
    """
    try:
        yield
    except ValueError as error:
        message = str(error)
        field = first_word(message)
        is_own = getattr(entry and entry.given, field, None) is not None
        if is_own or field not in HttpOptions.__struct_fields__:
            called = entry.called(field) if entry is not None else field
            message = f"{place}{called}{message.removeprefix(field)}"
        raise settings.error(message) from None


# -- start lines ------------------------------------------------------------------------------

NOBODY = (
    "no receiver is configured, so nobody is notified of alerts; set one of "
    "pagerduty_routing_key_file, alertmanager_urls, slack_webhook_url_file, webhook_url, receivers"
)
OTHER_QUERY = "?"
"""The query that nobody names: any whose name the settings do not say."""


def find_gap(settings: Settings, app: str) -> str:
    """Of which critical incidents of this job nobody would be notified; empty if there are none."""
    if not configured(settings):
        return NOBODY
    queries = (WHOLE_DRIVER, *(settings.expected_queries or (OTHER_QUERY,)))
    job = incident_labels(app, WHOLE_DRIVER, settings.labels)
    lost = [query for query in queries if not is_taken(settings, {**job, "query": query})]
    if not lost:
        return ""
    which = f"the queries {', '.join(lost)}: see `queries`"
    if OTHER_QUERY in lost:
        which = "queries that no `queries` names"
    if WHOLE_DRIVER in lost:
        shown = ", ".join(f"{name}={value}" for name, value in job.items() if name != "query")
        which = f"this job ({shown}): see `match` and `severities`"
    return f"no receiver takes critical incidents of {which}; nobody is notified of them"


def is_taken(settings: Settings, labels: dict[str, str]) -> bool:
    """Whether a receiver takes a critical incident with these labels."""
    incident = Incident("", labels, CRITICAL, ())
    return any(route.takes(incident) for route in routes(settings).values())


def log_start(settings: Settings, app: str, status_page: str | None) -> None:
    """Log ``watching "orders": 2 receivers (oncall, team), status page at http://...``.

    It is followed by a warning when nobody would be notified.
    """
    where = f"status page at {status_page}" if status_page else "no status page"
    log.info('querypulse: watching "%s": %s, %s', app, receivers_text(settings), where)
    if gap := find_gap(settings, app):
        log.warning("querypulse: %s", gap)


def receivers_text(settings: Settings) -> str:
    """The number of receivers, and their names."""
    names = [entry.given.name for entry in configured(settings)]
    if not names:
        return "no receiver"
    count = "1 receiver" if len(names) == 1 else f"{len(names)} receivers"
    return f"{count} ({', '.join(names)})"
