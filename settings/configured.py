"""The configured receivers: short forms and full form as one list. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from ..alerting.receivers.declaration import ReceiverSettings, ReceiverType
from ..alerting.receivers.registry import RECEIVER_TYPES, type_of
from .settings import Settings, SettingsError

HEARTBEAT = "heartbeat"
"""The name under which heartbeat pings are counted."""


class Configured(msgspec.Struct, frozen=True):
    """One configured receiver, and whether it uses the short form."""

    given: ReceiverSettings
    is_short: bool = False

    @property
    def kind(self) -> ReceiverType:
        """Its kind."""
        return type_of(self.given)

    @property
    def place(self) -> str:
        """The start of a message about this receiver."""
        return "" if self.is_short else f"receiver {self.given.name!r}: "

    def called(self, field: str) -> str:
        """The name of the setting for a field, as the user wrote it."""
        return self.kind.short_form.get(field, field) if self.is_short else field

    def reworded(self, message: str) -> str:
        """A message about top-level settings, with the setting names of this receiver."""
        if not self.is_short:
            for field, name in _longest_first(self.kind.short_form):
                message = message.replace(name, field)
        return f"{self.place}{message}"


def configured(settings: Settings) -> tuple[Configured, ...]:
    """All configured receivers.

    Raises:
        SettingsError: they contradict each other, or a setting would have no effect.

    """
    found = (*_short_forms(settings), *(Configured(one) for one in settings.receivers))
    for one in found:
        _require_one_of_two(one)
    _require_own_names(found)
    _require_fallbacks(found)
    return found


def _short_forms(settings: Settings) -> Iterator[Configured]:
    for kind in RECEIVER_TYPES:
        given = _given(settings, kind)
        needed = kind.one_of or tuple(kind.short_form)
        if not given.keys().isdisjoint(needed):
            # mypy knows the fields of one kind only.
            made: Callable[..., ReceiverSettings] = kind.settings
            yield Configured(made(name=kind.name, **given), is_short=True)
        elif given:
            names = " or ".join(repr(kind.short_form[field]) for field in needed)
            raise SettingsError(f"setting {kind.short_form[min(given)]!r} needs {names}")


def _given(settings: Settings, kind: ReceiverType) -> dict[str, object]:
    """The fields of the receiver that top-level settings define; a single file is a list of one."""
    defaults = {field.name: field.default for field in msgspec.structs.fields(kind.settings)}
    found = {field: getattr(settings, name) for field, name in kind.short_form.items()}
    return {
        field: (value,) if defaults[field] == () and isinstance(value, str) else value
        for field, value in found.items()
        if value is not None and value != ()
    }


def _require_one_of_two(one: Configured) -> None:
    fields = one.kind.one_of
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
