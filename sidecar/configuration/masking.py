"""Masks settings for display: no keys, no secret parts of URLs. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

import msgspec

from .receiver_settings import RECEIVER_TYPES

HIDDEN = "********"
SECRET = frozenset({"pagerduty_routing_key", "routing_key"})
URLS = frozenset(
    {
        "alertmanager_urls",
        "heartbeat_url",
        "pagerduty_url",
        "proxy_url",
        "slack_webhook_url",
        "url",
        "urls",
        "webhook_url",
    }
)
PATTERNS = frozenset({"redact_patterns"})
"""They may contain the very words that they hide."""
TABLES = frozenset({"receivers"})
QUERIES = "queries"
"""Tables by name pattern."""
LISTS = (list, tuple)
_FIELDS = {"type", *(name for kind in RECEIVER_TYPES for name in kind.__struct_fields__)}


def masked(name: str, value: object) -> object:
    """A setting's value in a form that may be shown, whatever type it has.

    Keys and redaction patterns are hidden. URLs are shortened to scheme and host, because the
    path of a webhook is its password. A receiver shows only fields with known names, each by
    the same rules.
    """
    if value is None:
        return None
    if name in SECRET:
        return HIDDEN
    if name in PATTERNS:
        return HIDDEN if value else value
    if name in URLS:
        return _masked_urls(value)
    if name in TABLES:
        return tuple(map(_masked_table, value)) if isinstance(value, LISTS) else HIDDEN
    return _masked_queries(value) if name == QUERIES else value


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


def _masked_queries(value: object) -> object:
    if not isinstance(value, Mapping):
        return HIDDEN if isinstance(value, (str, *LISTS)) else value
    return {str(pattern): masked_table(table) for pattern, table in value.items()}


def masked_table(table: object) -> object:
    """The settings of a name pattern, without the secret part of its URL."""
    if isinstance(table, msgspec.Struct):
        given = {name: getattr(table, name) for name in table.__struct_fields__}
        table = {name: value for name, value in given.items() if value is not None}
    if not isinstance(table, Mapping):
        return HIDDEN
    return {str(name): _masked_of_query(str(name), value) for name, value in table.items()}


def _masked_of_query(name: str, value: object) -> object:
    """Shows numbers and known names only: text under a misspelled name may be a secret URL."""
    known = name in URLS or name.endswith("_file") or isinstance(value, (int, float))
    return masked(name, value) if known or value is None else HIDDEN


def _masked_table(table: object) -> object:
    if isinstance(table, msgspec.Struct):
        table = _given(table)
    if not isinstance(table, Mapping):
        return HIDDEN
    return {str(name): _masked_field(str(name), value) for name, value in table.items()}


def _masked_field(name: str, value: object) -> object:
    shown = name in _FIELDS and not isinstance(value, Mapping)
    return masked(name, value) if shown else HIDDEN


def _given(record: msgspec.Struct) -> dict[str, object]:
    """The fields of a receiver that differ from their defaults, its type first."""
    fields = {field.name: field.default for field in msgspec.structs.fields(record)}
    values = {name: getattr(record, name) for name in fields}
    changed = {name: value for name, value in values.items() if value != fields[name]}
    return {"type": record.__struct_config__.tag, **changed}
