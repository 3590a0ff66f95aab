"""The secrets in querypulse's own settings, which must not leave the driver in any text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from urllib.parse import unquote

from ...alerting.receivers.secret import Secret
from ...listener.own_secrets import secrets_of_url
from .configured import configured
from .settings import Settings

VALUES = ("url", "routing_key", "proxy_url", "heartbeat_url")
LISTS = ("urls",)
FILES = ("url_file", "routing_key_file", "heartbeat_url_file", "http_token_file")
LISTS_OF_FILES = ("secret_files",)


def own_secrets(settings: Settings) -> list[Secret]:
    """Every key, token and URL in the settings or in the files that they name.

    Raises:
        ValueError: a file cannot be read; the message names its setting.

    """
    found = list(_secrets_of(settings, str))
    for pattern, own in settings.queries.items():
        found += _secrets_of(own, f"queries.{pattern}.{{}}".format)
    for one in configured(settings):
        found += _secrets_of(one.given, one.called)
    return found


def secret_parts(value: str) -> set[str]:
    """The texts to hide: a key itself; the secret parts of a URL, percent-encoded and decoded."""
    if "://" not in value:
        return {value}
    try:
        parts = secrets_of_url(value)
    except ValueError:
        return {value}
    return {form for part in parts for form in (part, unquote(part))}


def _secrets_of(holder: object, called: Callable[[str], str]) -> Iterator[Secret]:
    for value in (*_of(holder, VALUES), *_in_lists(holder, LISTS)):
        yield Secret(value)
    for name in FILES:
        for path in _of(holder, (name,)):
            yield Secret.from_file(path, setting=called(name))
    for path in _in_lists(holder, LISTS_OF_FILES):
        yield Secret.from_file(path, setting=called("secret_files"))


def _of(holder: object, names: tuple[str, ...]) -> list[str]:
    given = [getattr(holder, name, None) for name in names]
    return [value for value in given if value is not None]


def _in_lists(holder: object, names: tuple[str, ...]) -> list[str]:
    return [value for name in names for value in getattr(holder, name, ())]
