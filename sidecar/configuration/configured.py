"""The configured receivers: short forms and full form as one list. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from .receiver_settings import (
    AlertmanagerSettings,
    PagerDutySettings,
    ReceiverSettings,
    SlackSettings,
    WebhookSettings,
)
from .settings import Settings, SettingsError

SHORT_FORMS: dict[type, dict[str, str]] = {
    WebhookSettings: {
        "url": "webhook_url",
        "url_file": "webhook_url_file",
        "secret_files": "webhook_secret_file",
    },
    PagerDutySettings: {
        "routing_key": "pagerduty_routing_key",
        "routing_key_file": "pagerduty_routing_key_file",
        "url": "pagerduty_url",
    },
    AlertmanagerSettings: {"urls": "alertmanager_urls"},
    SlackSettings: {"url": "slack_webhook_url", "url_file": "slack_webhook_url_file"},
}
"""Field of a receiver's table -> the top-level setting for it."""

NEEDED = {
    WebhookSettings: ("url", "url_file"),
    PagerDutySettings: ("routing_key", "routing_key_file"),
    SlackSettings: ("url", "url_file"),
}
"""Exactly one of these two fields must be set."""


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
        return SHORT_FORMS[type(self.given)].get(field, field) if self.is_short else field

    def reworded(self, message: str) -> str:
        """A message about top-level settings, with the setting names of this receiver."""
        if not self.is_short:
            for field, name in _longest_first(SHORT_FORMS[type(self.given)]):
                message = message.replace(name, field)
        return f"{self.place}{message}"


def configured(settings: Settings) -> tuple[Configured, ...]:
    """All configured receivers.

    Raises:
        SettingsError: they contradict each other, or a setting would have no effect.

    """
    _refuse_orphans(settings)
    found = (*_short_forms(settings), *(Configured(one) for one in settings.receivers))
    for one in found:
        _require_one_of_two(one)
    _require_own_names(found)
    _require_fallbacks(found)
    return found


def _short_forms(settings: Settings) -> Iterator[Configured]:
    if settings.webhook_url is not None or settings.webhook_url_file is not None:
        secret = settings.webhook_secret_file
        yield _short(
            WebhookSettings(
                name="webhook",
                url=settings.webhook_url,
                url_file=settings.webhook_url_file,
                secret_files=() if secret is None else (secret,),
            )
        )
    if _has_routing_key(settings):
        yield _short(
            PagerDutySettings(
                name="pagerduty",
                routing_key=settings.pagerduty_routing_key,
                routing_key_file=settings.pagerduty_routing_key_file,
                url=settings.pagerduty_url,
            )
        )
    if settings.alertmanager_urls:
        yield _short(AlertmanagerSettings(name="alertmanager", urls=settings.alertmanager_urls))
    url, file = settings.slack_webhook_url, settings.slack_webhook_url_file
    if url is not None or file is not None:
        yield _short(SlackSettings(name="slack", url=url, url_file=file))


def _short(given: ReceiverSettings) -> Configured:
    return Configured(given, is_short=True)


def _has_routing_key(settings: Settings) -> bool:
    given = (settings.pagerduty_routing_key, settings.pagerduty_routing_key_file)
    return any(one is not None for one in given)


def _refuse_orphans(settings: Settings) -> None:
    has_webhook = settings.webhook_url is not None or settings.webhook_url_file is not None
    if settings.webhook_secret_file is not None and not has_webhook:
        raise SettingsError("setting 'webhook_secret_file' needs 'webhook_url'")
    if settings.pagerduty_url is not None and not _has_routing_key(settings):
        raise SettingsError("setting 'pagerduty_url' needs 'pagerduty_routing_key_file'")


def _require_one_of_two(one: Configured) -> None:
    fields = NEEDED.get(type(one.given), ())
    given = [field for field in fields if getattr(one.given, field) is not None]
    names = " or ".join(repr(one.called(field)) for field in fields)
    if fields and not given:
        raise SettingsError(f"{one.place}needs {names}")
    if len(given) > 1:
        raise SettingsError(f"{one.place}give {names}, not both")


def _require_own_names(found: Sequence[Configured]) -> None:
    counts = Counter(one.given.name for one in found)
    if HEARTBEAT in counts:
        raise SettingsError(f"setting 'receivers': the name {HEARTBEAT!r} is reserved")
    for one in found:
        if counts[one.given.name] > 1:
            short = any(two.is_short and two.given.name == one.given.name for two in found)
            hint = f"; the settings '{one.given.name}_...' make one of them" if short else ""
            raise SettingsError(f"setting 'receivers': two are named {one.given.name!r}{hint}")


def _require_fallbacks(found: Sequence[Configured]) -> None:
    names = [one.given.name for one in found]
    fallbacks = {one.given.fallback for one in found}
    for one in found:
        fallback = one.given.fallback
        others = [name for name in names if name != one.given.name]
        if fallback is not None and fallback not in others:
            raise SettingsError(
                f"{one.place}'fallback' {fallback!r} is not another receiver; there are: {others}"
            )
        if not one.given.severities and one.given.name not in fallbacks:
            raise SettingsError(
                f"{one.place}'severities' is empty and it is no receiver's fallback: "
                "it would never receive an alert"
            )


def _longest_first(names: Mapping[str, str]) -> list[tuple[str, str]]:
    return sorted(names.items(), key=lambda pair: -len(pair[1]))
