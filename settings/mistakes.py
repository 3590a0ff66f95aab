"""What may be shown of settings and of mistakes in them: no keys, no secret parts of URLs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import isfinite
from typing import Any, Literal, get_args, get_origin, get_type_hints
from urllib.parse import urlsplit

import msgspec

from ..alerting.receivers import RECEIVER_TYPES
from ..core.secret import Holds, declared_in, holds
from ..core.text import encodable, suggest
from .allowed import allowed, assignment, example, is_allowed, meant, plain, toml

HIDDEN = "********"
TAGS = {kind.type_name(): kind for kind in RECEIVER_TYPES}
"""Receiver types by the value of ``type``."""
_SHORT_FORMS = {
    setting: field for kind in RECEIVER_TYPES for field, setting in kind.short_form.items()
}
"""The field of a receiver's table by the setting of the same meaning."""
_TYPE_NAME: Any = Literal.__getitem__(tuple(TAGS))
_PLAIN = re.compile(
    r"[+-]?(?:0x)?[\d.,_]*\s?(?:[A-Z]?[a-z_-]{0,12}|[A-Z]{1,2})%?|https?://[\w.:\[\]-]+/\.\.\."
)
"""A number, with a unit or without; a short word; a URL without its path."""
_PLAIN_NAME = re.compile(r"[a-z_.*-]{1,40}")
ALL_SETTINGS = "https://github.com/querypulse/querypulse/blob/main/docs/settings.md"


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
    return "a table" if isinstance(value, Mapping) else f"a {type(value).__name__}"


def unusable(value: object) -> str:
    """Why no setting can hold a value of any type; empty if one can.

    A text, also within lists, tables and records, is in UTF-8 and without NUL, which no path may
    hold; a number is finite and has a float. A list may contain itself.
    """
    pending = [value]
    seen: dict[int, object] = {}
    while pending:
        part = pending.pop()
        if wrong := _unusable_part(part):
            return wrong
        parts = _parts(part)
        if parts and id(part) not in seen:
            seen[id(part)] = part
            pending += parts
    return ""


def _unusable_part(part: object) -> str:
    if isinstance(part, str):
        if encodable(part) != part:
            return "a text in it is not UTF-8"
        return "a text in it has a NUL character" if "\0" in part else ""
    if isinstance(part, (int, float)):
        try:
            return "" if isfinite(part) else "a number in it is not finite"
        except OverflowError:
            return "a number in it has over 300 digits"
    return ""


def _parts(part: object) -> list[object]:
    """The keys and values of a table, the entries of a list, the fields of a record."""
    if isinstance(part, Mapping):
        return [*part.keys(), *part.values()]
    if isinstance(part, msgspec.Struct):
        return list(msgspec.structs.astuple(part))
    return list(part) if isinstance(part, (list, tuple, set, frozenset)) else []


class Mistake(msgspec.Struct, frozen=True):
    """The innermost part of a value that is not allowed."""

    path: str
    """Where it is: ``receivers[0].region``."""
    name: str
    """Its setting or field."""
    kind: Any
    value: object
    default: object = None
    why: str = ""
    """What is wrong if it is not the value: an unknown or a missing field."""
    unknown: str = ""
    """The unknown field, unless the table has it by another name."""

    def explained(self, origin: str) -> str:
        """What was given, what is allowed, and an example as the place writes it."""
        place = f"at {self.path}: " if self.path != self.name else ""
        if self.why:
            return place + self.why
        is_hidden = declared_in(self.kind) in (Holds.KEY, Holds.PATTERN)
        shown = HIDDEN if is_hidden else mask_mistake(self.value)
        guess = meant(self.kind, self.name, self.value) if shown == self.value else None
        right = guess if guess is not None else example(self.kind, self.name, self.default)
        is_entry = self.path.endswith("]") and not self.path.endswith("']")
        written = assignment(self.name, right, "file" if place else origin)
        written = toml(right) if is_entry else written
        what = shown if is_kind(shown) else repr(shown)
        words = allowed(self.kind, self.name)
        verb = "write" if guess is not None else "example:"
        return f"{place}{what} is not allowed; allowed: {words}; {verb} {written}"


def is_kind(shown: object) -> bool:
    """Whether ``mask_mistake`` has left only the kind of a value."""
    return isinstance(shown, str) and shown.startswith("a ")


def find_mistake(name: str, kind: Any, value: object, default: object = None) -> Mistake:
    """The innermost part of a wrong ``value`` that is not allowed.

    msgspec names no key of a table, and only types where people need words.
    """
    return _inside(Mistake(name, name, kind, value, default))


def _inside(outer: Mistake) -> Mistake:
    kind, value = plain(outer.kind), outer.value
    if get_origin(kind) is tuple and isinstance(value, (list, tuple)):
        entry_kind = get_args(kind)[0]
        for position, entry in enumerate(value):
            if not is_allowed(entry, entry_kind):
                return _inside(Mistake(f"{outer.path}[{position}]", outer.name, entry_kind, entry))
    if get_origin(kind) is dict and isinstance(value, Mapping):
        return _inside_table(outer, *get_args(kind))
    if isinstance(value, Mapping) and (record := _record(kind, value)) is not None:
        return _inside_record(outer, record, value)
    if isinstance(value, Mapping) and "type" not in value and _is_tagged(kind):
        why = f"the field 'type' is missing; allowed: {', '.join(TAGS)}; example: type = \"slack\""
        return Mistake(outer.path, "", kind, value, why=why)
    if isinstance(value, Mapping) and _is_tagged(kind):
        return Mistake(f"{outer.path}.type", "type", _TYPE_NAME, value["type"])
    return outer


def _inside_table(outer: Mistake, key_kind: Any, entry_kind: Any) -> Mistake:
    table: Any = outer.value
    for key, entry in table.items():
        shown = HIDDEN if "://" in str(key) else str(key)
        if not is_allowed(key, key_kind):
            words = allowed(key_kind)
            why = f"the name {shown!r} is not allowed; allowed: {words}"
            return Mistake(outer.path, "", key_kind, key, why=why)
        if not is_allowed(entry, entry_kind):
            return _inside(Mistake(f"{outer.path}[{shown!r}]", shown, entry_kind, entry))
    return outer


def _inside_record(
    outer: Mistake, record: type[msgspec.Struct], given: Mapping[Any, object]
) -> Mistake:
    tag = record.__struct_config__.tag
    fields = {field.name: field for field in msgspec.structs.fields(record)}
    kinds = get_type_hints(record, include_extras=True)
    for name, value in given.items():
        if name in fields and not is_allowed(value, kinds[name]):
            default = fields[name].default
            return _inside(Mistake(f"{outer.path}.{name}", name, kinds[name], value, default))
        if name not in fields and (name != "type" or tag is None):
            why = _unknown_field(str(name), record)
            unknown = "" if _SHORT_FORMS.get(name) in fields else str(name)
            return Mistake(outer.path, "", record, value, why=why, unknown=unknown)
    for name, field in fields.items():
        if field.required and name not in given:
            right = assignment(name, example(kinds[name], name), "file")
            why = (
                f"the field {name!r} is missing; allowed: {allowed(kinds[name])}; example: {right}"
            )
            return Mistake(outer.path, "", record, given, why=why)
    return outer


def _unknown_field(name: str, record: type[msgspec.Struct]) -> str:
    shown = name if _PLAIN_NAME.fullmatch(name) else HIDDEN
    fields = record.__struct_fields__
    if (field := _SHORT_FORMS.get(name)) in fields:
        hint = f"in a table it is {field!r}"
    else:
        hint = suggest(name, fields) or f"allowed: {', '.join(fields)}"
    return f"unknown field {shown!r}; {hint}"


def _is_tagged(kind: Any) -> bool:
    return set(get_args(kind)) == set(RECEIVER_TYPES)


def _record(kind: Any, value: Mapping[Any, object]) -> type[msgspec.Struct] | None:
    """The record that a table makes; None if it is none, or its ``type`` is unknown."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind
    return TAGS.get(str(value.get("type"))) if _is_tagged(kind) else None
