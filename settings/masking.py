"""Masks settings for display: no keys, no secret parts of URLs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

import msgspec

from ..alerting.receivers import registry
from ..alerting.receivers.receiver import Holds, holds

HIDDEN = "********"
LISTS = (list, tuple)
_HIDDEN = (Holds.KEY, Holds.PATTERN)
_ADDRESSES = (Holds.URL, Holds.ADDRESS)
_PLAIN = re.compile(
    r"[+-]?(?:0x)?[\d.,_]*\s?(?:[A-Z]?[a-z_-]{0,12}|[A-Z]{1,2})%?|https?://[\w.:\[\]-]+/\.\.\."
)
"""A number, with a unit or without; a short word; a URL without its path."""
MAX_DEPTH = 4
"""No setting is nested deeper; a hostile one may be, by thousands."""
_PLAIN_NAME = re.compile(r"[a-z_.*-]{1,40}")


def masked(kind: Holds | None, value: object) -> object:
    """A text, or a list of texts, in a form that may be shown, whatever type it has.

    Keys are hidden. URLs are shortened to scheme and host, because the path of a webhook is its
    password.
    """
    if value is None or value == ():
        return value
    if kind in _HIDDEN:
        return HIDDEN
    return _masked_urls(value) if kind in _ADDRESSES or _has_login(value) else value


def mistaken(value: object, depth: int = MAX_DEPTH) -> object:
    """A masked value that is not allowed in its place, where a secret may be by mistake.

    Only numbers, short words and hosts of URLs remain, down to ``depth`` tables and lists.
    """
    if isinstance(value, str):
        return value if _PLAIN.fullmatch(value) else HIDDEN
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if depth and isinstance(value, Mapping):
        return {mistaken_name(str(key)): mistaken(one, depth - 1) for key, one in value.items()}
    if depth and isinstance(value, LISTS):
        return tuple(mistaken(one, depth - 1) for one in value)
    return HIDDEN


def shown_name(name: str) -> str:
    """A name pattern of queries, unless it may be a URL with a secret."""
    return HIDDEN if "://" in name else name


def mistaken_name(name: str) -> str:
    """A name of a field that is not allowed, if it looks like one."""
    return name if _PLAIN_NAME.fullmatch(name) else HIDDEN


def _has_login(value: object) -> bool:
    """Whether it is a URL with a user name or password, in a place where none is expected."""
    return isinstance(value, str) and "://" in value and "@" in value


def masked_receivers(value: object) -> object:
    """The tables of receivers: only fields with known names, each masked."""
    return tuple(map(_masked_receiver, value)) if isinstance(value, LISTS) else HIDDEN


def masked_queries(value: object, record: type[msgspec.Struct]) -> object:
    """The tables by name pattern, whose fields are those of ``record``."""
    if not isinstance(value, Mapping):
        return HIDDEN if isinstance(value, (str, *LISTS)) else value
    return {str(pattern): masked_table(table, record) for pattern, table in value.items()}


def masked_table(table: object, record: type[msgspec.Struct]) -> object:
    """The settings of one name pattern: numbers, and fields with known names, each masked.

    Text under a misspelled name may be a secret URL.
    """
    if isinstance(table, msgspec.Struct):
        given = {name: getattr(table, name) for name in table.__struct_fields__}
        table = {name: value for name, value in given.items() if value is not None}
    return _masked_fields(table, holds(record))


def _masked_receiver(table: object) -> object:
    if isinstance(table, msgspec.Struct):
        table = _given(table)
    return _masked_fields(table, registry.fields())


def _masked_fields(table: object, known: Mapping[str, Holds | None]) -> object:
    if not isinstance(table, Mapping):
        return HIDDEN
    return {str(name): _masked_field(known.get(str(name)), value) for name, value in table.items()}


def _masked_field(kind: Holds | None, value: object) -> object:
    if value is None or isinstance(value, (int, float)):
        return masked(kind, value)
    if kind is not None and isinstance(value, LISTS):
        return tuple(_masked_field(kind, one) for one in value)
    return masked(kind, value) if kind is not None and isinstance(value, str) else HIDDEN


def _masked_urls(value: object) -> object:
    if isinstance(value, str):
        return _place(value)
    if isinstance(value, LISTS):
        return tuple(map(_masked_urls, value))
    return value if isinstance(value, (int, float)) else HIDDEN


def _place(text: str) -> str:
    try:
        url = urlsplit(text)
    except ValueError:
        return HIDDEN
    host = url.netloc.rpartition("@")[2]
    return f"{url.scheme}://{host}/..." if url.scheme and host else HIDDEN


def _given(record: msgspec.Struct) -> dict[str, object]:
    """The fields of a receiver that differ from their defaults, its type first."""
    fields = {field.name: field.default for field in msgspec.structs.fields(record)}
    values = {name: getattr(record, name) for name in fields}
    changed = {name: value for name, value in values.items() if value != fields[name]}
    return {"type": record.__struct_config__.tag, **changed}
