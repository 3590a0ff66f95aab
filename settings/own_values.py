"""The secrets in querypulse's own settings, which must not leave the driver in any text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from urllib.parse import unquote

import msgspec

from ..alerting.receivers.declaration import Holds, holds
from ..core.own_secrets import secrets_of_url
from ..core.secret import Secret
from ..exporter.push.otlp import parse_headers
from .configured import configured
from .settings import Settings

_VALUES = (Holds.KEY, Holds.URL, Holds.ADDRESS)


def own_secrets(settings: Settings) -> list[Secret]:
    """Every key, token and URL in the settings or in the files that they name.

    Raises:
        ValueError: a file cannot be read; the message names its setting.

    """
    found = list(_secrets_of(settings, str))
    for pattern, own in settings.queries.items():
        found += _secrets_of(own, f"queries.{pattern}.{{}}".format)
    for one in configured(settings):
        if not one.is_short:
            found += _secrets_of(one.given, one.called)
    return found


def secret_parts(value: str) -> set[str]:
    """The texts to hide: a key itself; the secret parts of a URL or of headers, also decoded."""
    headers = _header_values(value)
    if headers:
        return {value, *headers}
    if "://" not in value:
        return {value}
    try:
        parts = secrets_of_url(value)
    except ValueError:
        return {value}
    return {form for part in parts for form in (part, unquote(part))}


def _header_values(text: str) -> set[str]:
    """The values of headers, with and without a scheme such as ``Bearer``; none in other texts."""
    try:
        decoded = set(parse_headers(text).values())
    except ValueError:
        return set()
    written = {part.partition("=")[2].strip() for part in text.replace("\n", ",").split(",")}
    values = decoded | written
    return {form for value in values for form in (value, value.partition(" ")[2]) if form}


def _secrets_of(record: msgspec.Struct, called: Callable[[str], str]) -> Iterator[Secret]:
    for name, kind in holds(type(record)).items():
        given = getattr(record, name)
        texts = given if isinstance(given, tuple) else () if given is None else (given,)
        if kind in _VALUES:
            yield from map(Secret, texts)
        elif kind is Holds.SECRET_FILE:
            yield from (Secret.from_file(path, setting=called(name)) for path in texts)
