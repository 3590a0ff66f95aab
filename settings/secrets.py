"""The secrets in querypulse's own settings: they must not leave the driver in any text, and not be
in the Spark conf, which event logs and the Spark UI show.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from ..core.secret import Holds, Secret, holds, secret_parts
from .settings import Settings, SettingsError

ELSEWHERE = "give it in the environment, or in the file that QUERYPULSE_CONFIG names"


def _declared_texts(settings: Settings) -> Iterator[tuple[str, Holds, str, str]]:
    """Each declared text: its setting, what it holds, the text, and what to do in place of it."""
    records: dict[str, msgspec.Struct] = {"": settings}
    records |= {f"queries.{pattern}.": own for pattern, own in settings.queries.items()}
    records |= {f"receivers[{number}].": own for number, own in enumerate(settings.receivers)}
    for place, record in records.items():
        for field, kind in holds(type(record)).items():
            has_file = f"{field}_file" in record.__struct_fields__
            instead = f"give '{field}_file' instead" if has_file else ELSEWHERE
            value = getattr(record, field)
            for text in value if isinstance(value, tuple) else (value,):
                if isinstance(text, str):
                    yield place + field, kind, text, instead


def own_secrets(settings: Settings) -> list[Secret]:
    """Every key, token and URL in the settings or in the files that they name.

    Raises:
        ValueError: a file cannot be read; the message names its setting.

    """
    secrets = []
    for setting, kind, text, _ in _declared_texts(settings):
        if kind in (Holds.KEY, Holds.URL, Holds.ADDRESS):
            secrets.append(Secret(text))
        elif kind is Holds.SECRET_FILE:
            secrets.append(Secret.from_file(text, setting=setting))
    return secrets


def refuse_secret(name: str, value: object, origin: str) -> None:
    """Refuse a value of the Spark conf that holds a key, or a URL with a secret part.

    Raises:
        SettingsError: it holds one; the message names the setting that takes a file instead.

    """
    given: dict[str, Any] = {name: value}
    for setting, kind, text, instead in _declared_texts(Settings(**given)):
        is_url = kind is Holds.URL and bool(secret_parts(text))
        if kind is Holds.KEY or is_url or (kind is Holds.ADDRESS and "@" in text):
            raise SettingsError(
                f"setting {setting!r} from {origin} holds a secret, and event logs show the "
                f"Spark conf: {instead}"
            )
