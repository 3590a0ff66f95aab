"""What may be shown of settings and of mistakes in them: no keys, no secret parts of URLs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, get_args, get_origin, get_type_hints
from urllib.parse import urlsplit

import msgspec

from ..alerting.receivers import RECEIVER_TYPES
from ..core.secret import Holds, holds
from ..core.text import suggest

HIDDEN = "********"
TAGS = {kind.type_name(): kind for kind in RECEIVER_TYPES}
"""Receiver types by the value of ``type``."""
TABLES = {
    "labels": '{env = "prod"}',
    "queries": '{"nightly*" = {stall_floor_seconds = 3600}}',
}
"""How the settings that are tables are written."""
_PLAIN = re.compile(
    r"[+-]?(?:0x)?[\d.,_]*\s?(?:[A-Z]?[a-z_-]{0,12}|[A-Z]{1,2})%?|https?://[\w.:\[\]-]+/\.\.\."
)
"""A number, with a unit or without; a short word; a URL without its path."""
_PLAIN_NAME = re.compile(r"[a-z_.*-]{1,40}")
_PLACE = re.compile(r" - at `\$(?P<path>[^`]*)`$")
_UNKNOWN_FIELD = re.compile(r"(?s)Object contains unknown field `(?P<field>.*)`")
_INVALID = re.compile(
    r"(?s)(?P<what>Invalid (?:enum )?value) (?P<quote>['\"])(?P<value>.*)(?P=quote)"
)


def mask_value(kind: Holds | None, value: object) -> object:
    """A valid value that holds ``kind``, in a form that may be shown.

    Keys are hidden. URLs are shortened to scheme and host, because the path of a webhook is its
    password. Of a record that declares what its texts hold, the fields that differ from their
    defaults are shown.
    """
    if kind in (Holds.KEY, Holds.PATTERN):
        return HIDDEN if value is not None and value != () else value
    if isinstance(value, (list, tuple)):
        return tuple(mask_value(kind, entry) for entry in value)
    if isinstance(value, Mapping):
        return {name: mask_value(kind, entry) for name, entry in value.items()}
    if isinstance(value, msgspec.Struct) and holds(type(value)):
        return _masked_record(value)
    # A user name and password may also be where none is expected.
    is_address = kind in (Holds.URL, Holds.ADDRESS)
    is_hidden = isinstance(value, str) and (is_address or ("://" in value and "@" in value))
    return _without_path(str(value)) if is_hidden else value


def _masked_record(record: msgspec.Struct) -> dict[str, object]:
    declared, tag = holds(type(record)), record.__struct_config__.tag
    shown: dict[str, object] = {} if tag is None else {"type": tag}
    for field in msgspec.structs.fields(record):
        value, kind = getattr(record, field.name), declared.get(field.name)
        if value not in (field.default, {}):
            undeclared = kind is None and isinstance(value, str)
            shown[field.name] = HIDDEN if undeclared else mask_value(kind, value)
    return shown


def _without_path(text: str) -> str:
    try:
        url = urlsplit(text)
    except ValueError:
        return HIDDEN
    host = url.netloc.rpartition("@")[2]
    return f"{url.scheme}://{host}/..." if url.scheme and host else HIDDEN


def mask_mistake(value: object, *, shows_words: bool = True) -> object:
    """A value that is not allowed in its place, where a secret may be by mistake.

    Only numbers, short words and hosts of URLs remain, and of tables and lists the kind.
    """
    if isinstance(value, str):
        shown = _without_path(value) if "://" in value else value
        return shown if shows_words and _PLAIN.fullmatch(shown) else HIDDEN
    if value is None or isinstance(value, (bool, int, float)):
        return value
    return f"a {type(value).__name__}"


def _masked_name(unknown: re.Match[str]) -> str:
    name = unknown["field"]
    shown = name if _PLAIN_NAME.fullmatch(name) else HIDDEN
    return f"Object contains unknown field `{shown}`"


def explain(name: str, kind: Any, value: object, error: msgspec.ValidationError) -> str:
    """What is wrong with the ``value`` of setting ``name``, where in it, and what is allowed."""
    if get_origin(kind) is dict and not isinstance(value, Mapping):
        return f"write a table: {TABLES[name]}"
    if get_origin(kind) is dict and isinstance(value, Mapping):
        # msgspec does not name the key of the wrong entry.
        of_key, of_entry = get_args(kind)
        for key, entry in value.items():
            shown = HIDDEN if "://" in str(key) else str(key)
            if _mistake(of_key, key) is not None:
                allowed = of_key.__metadata__[0].description or "a text"
                return f"at {name}: the name {shown!r} is not allowed; allowed: {allowed}"
            wrong = _mistake(of_entry, entry)
            if wrong is not None:
                name, kind, value, error = f"{name}[{shown!r}]", of_entry, entry, wrong
                break
    text = str(error)
    at = _PLACE.search(text)
    path = at["path"] if at else ""
    text = text[: at.start()] if at else text
    allowed = _allowed(text, path, _record(kind, value, path))
    text = _UNKNOWN_FIELD.sub(_masked_name, text)
    text = _INVALID.sub(lambda wrong: f"{wrong['what']} {mask_mistake(wrong['value'])!r}", text)
    place = f"at {name}{path}: " if path or "[" in name else ""
    return f"{place}{text}{allowed}"


def _mistake(kind: Any, value: object) -> msgspec.ValidationError | None:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        return error
    return None


def _record(kind: Any, value: object, path: str) -> type[msgspec.Struct] | None:
    """The record that contains the mistake, if known."""
    position = re.match(r"\[(\d+)\]", path)
    if position is not None and isinstance(value, Sequence):
        kind, value = get_args(kind)[0], value[int(position[1])]
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind
    return TAGS.get(str(value.get("type"))) if isinstance(value, Mapping) else None


def _allowed(text: str, path: str, record: type[msgspec.Struct] | None) -> str:
    unknown = _UNKNOWN_FIELD.match(text)
    if unknown is not None and record is not None:
        fields = record.__struct_fields__
        return f"; {suggest(unknown['field'], fields) or _choices(fields)}"
    last = path.rpartition(".")[2].partition("[")[0]
    if last == "type" or "required field `type`" in text:
        return f"; {_choices(TAGS)}"
    words = _literals(get_type_hints(record).get(last)) if record is not None else []
    return f"; {_choices(words)}" if words else ""


def _choices(names: Iterable[str]) -> str:
    return f"allowed: {', '.join(names)}"


def _literals(kind: Any) -> list[str]:
    """The literal words anywhere in a type."""
    if get_origin(kind) is Literal:
        return [str(word) for word in get_args(kind)]
    return [word for part in get_args(kind) for word in _literals(part)]
