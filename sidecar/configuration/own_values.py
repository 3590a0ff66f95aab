"""Our own secrets, which must not leave the driver in anybody's text."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import parse_qsl, unquote, urlsplit

from ...alerting.receivers.secret import Secret
from .configured import configured
from .settings import Settings

MIN_CHARACTERS = 16
"""Shorter parts of a URL are words; the tokens in the URLs of webhooks are longer."""

VALUES = ("url", "routing_key", "proxy_url", "heartbeat_url")
LISTS = ("urls",)
FILES = ("url_file", "routing_key_file", "heartbeat_url_file", "http_token_file")
LISTS_OF_FILES = ("secret_files",)


def own_secrets(settings: Settings) -> list[Secret]:
    """Every key, token and URL that the settings hold, or name the file of.

    Raises:
        ValueError: a file cannot be read.

    """
    holders = [settings, *(one.given for one in configured(settings))]
    return [secret for holder in holders for secret in _secrets_of(holder)]


def secret_parts(value: str) -> Iterator[str]:
    """What must be shown nowhere: a key as it is; of a URL its password and its long parts."""
    if "://" not in value:
        yield value
        return
    try:
        url = urlsplit(value)
    except ValueError:
        yield value
        return
    if url.password:
        yield from {url.password, unquote(url.password)}
    path = f"{url.path}?{url.query}" if url.query else url.path
    words = [path, *url.path.split("/"), *(text for _, text in parse_qsl(url.query))]
    for word in words:
        if len(word) >= MIN_CHARACTERS:
            yield from {word, unquote(word)}


def _secrets_of(holder: object) -> Iterator[Secret]:
    for value in (*_of(holder, VALUES), *_in_lists(holder, LISTS)):
        yield Secret(value)
    for name in FILES:
        for path in _of(holder, (name,)):
            yield Secret.from_file(path, setting=name)
    for path in _in_lists(holder, LISTS_OF_FILES):
        yield Secret.from_file(path, setting="secret_files")


def _of(holder: object, names: tuple[str, ...]) -> list[str]:
    given = [getattr(holder, name, None) for name in names]
    return [value for value in given if value is not None]


def _in_lists(holder: object, names: tuple[str, ...]) -> list[str]:
    return [value for name in names for value in getattr(holder, name, ())]
