"""The configured receivers: how they contradict each other, and who is notified."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import msgspec

from ..alerting.alert import CRITICAL, Incident, incident_labels
from ..alerting.finding import WHOLE_DRIVER
from ..alerting.receivers import RECEIVER_TYPES
from ..alerting.receivers.receiver import (
    HttpOptions,
    HttpReceiverSettings,
    ReceiverSettings,
    Route,
)
from ..core.certificates import expiry
from .settings import Settings, first_word

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
            f"there {'are: ' + ', '.join(others) if others else 'is no other'}"
        )
    if not given.severities and all(other.given.fallback != given.name for other in entries):
        return (
            f"{entry.place}'severities' is empty and it is no receiver's fallback: "
            "it would never receive an alert"
        )
    return ""


def routes(settings: Settings) -> dict[str, Route]:
    """Which alerts go to each receiver, by the receiver's name."""
    return {entry.given.name: entry.given for entry in configured(settings)}


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
    if not settings.enabled:
        return str(settings.error("setting 'enabled' is false, so nothing is watched"))
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


def expired_certificates(settings: Settings) -> list[str]:
    """Which certificates of ours have expired: nobody trusts them, but the job may start."""
    files = {"http_tls_cert_file": settings.http_tls_cert_file}
    files |= {
        f"client_cert_file of receiver {receiver.name!r}": receiver.client_cert_file
        for receiver in settings.receivers
        if isinstance(receiver, HttpReceiverSettings)
    }
    files |= {"ca_file": settings.ca_file}
    notes = []
    for name, path in files.items():
        end = None if path is None else expiry(path)
        if end is not None and end.timestamp() < time.time():
            notes.append(f"{name} {path}: the certificate expired on {end:%Y-%m-%d %H:%M} UTC")
    return notes


def log_start(settings: Settings, app: str, status_page: str | None) -> None:
    """Log ``watching "orders": 2 receivers (oncall, team), status page at http://...``.

    It is followed by a warning when nobody would be notified.
    """
    where = f"status page at {status_page}" if status_page else "no status page"
    for note in expired_certificates(settings):
        log.warning("querypulse: %s", note)
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
