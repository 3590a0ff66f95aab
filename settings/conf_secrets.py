"""Refuses secrets in the Spark conf, because event logs and the Spark UI show it. Pure."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ..alerting.receivers.declaration import Holds, holds
from .own_values import secret_parts
from .settings import HOLDS, TYPES, SettingsError

ELSEWHERE = "give it in the environment, or in the file that QUERYPULSE_CONFIG names"


def refuse_secret(name: str, value: object, origin: str) -> None:
    """Refuse a value that holds a key, or a URL with a secret part.

    Raises:
        SettingsError: it holds one; the message names the setting that takes a file instead.

    """
    if name == "receivers" and isinstance(value, tuple):
        for position, receiver in enumerate(value):
            _refuse_secrets_of(receiver, f"receivers[{position}].", origin)
    elif name == "queries" and isinstance(value, dict):
        for pattern, own in value.items():
            _refuse_secrets_of(own, f"queries.{pattern}.", origin)
    elif any(_is_secret(HOLDS.get(name), text) for text in _texts(value)):
        raise _refusal(name, name, origin, has_file=f"{name}_file" in TYPES)


def _refuse_secrets_of(record: msgspec.Struct, place: str, origin: str) -> None:
    for field, kind in holds(type(record)).items():
        if any(_is_secret(kind, text) for text in _texts(getattr(record, field))):
            has_file = f"{field}_file" in record.__struct_fields__
            raise _refusal(f"{place}{field}", field, origin, has_file=has_file)


def _refusal(place: str, field: str, origin: str, *, has_file: bool) -> SettingsError:
    instead = f"give {field + '_file'!r} instead" if has_file else ELSEWHERE
    return SettingsError(
        f"setting {place!r} from {origin} holds a secret, and event logs show the Spark conf: "
        f"{instead}"
    )


def _is_secret(kind: Holds | None, text: str) -> bool:
    if kind is Holds.ADDRESS:
        return "@" in text
    return kind is Holds.KEY or (kind is Holds.URL and bool(secret_parts(text)))


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, tuple):
        yield from (one for one in value if isinstance(one, str))
