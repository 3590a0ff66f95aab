"""Explains why a value is not allowed: names the place and the choices. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from ..alerting.receivers.registry import RECEIVER_TYPES
from .masking import mistaken, mistaken_name, shown_name
from .silence_settings import SilenceSettings

TAGS = {kind.name: kind.settings for kind in RECEIVER_TYPES}
"""Receiver types by the value of ``type``."""
_PLACE = re.compile(r" - at `\$(?P<path>[^`]*)`$")
_UNKNOWN_FIELD = re.compile(r"(?s)Object contains unknown field `(?P<field>.*)`")
_INVALID = re.compile(
    r"(?s)(?P<what>Invalid (?:enum )?value) (?P<quote>['\"])(?P<value>.*)(?P=quote)"
)
_STEP = re.compile(r"\[(?P<index>\d+)\]|\.(?P<field>\w+)")


def explained(name: str, kind: Any, value: object, error: msgspec.ValidationError) -> str:
    """What is wrong with the ``value`` of setting ``name``, where in it, and what is allowed."""
    if name == "queries" and isinstance(value, Mapping):
        name, kind, value, error = _in_table(name, kind, value, error)
    text = str(error)
    found = _PLACE.search(text)
    path = found.group("path") if found else ""
    text = text[: found.start()] if found else text
    place = f"at {name}{path}: " if path or "[" in name else ""
    allowed = _allowed(text, path, _struct(kind, value, path))
    return f"{place}{_INVALID.sub(_without_secret, _UNKNOWN_FIELD.sub(_name_alone, text))}{allowed}"


def _name_alone(unknown: re.Match[str]) -> str:
    return f"Object contains unknown field `{mistaken_name(unknown['field'])}`"


def _without_secret(invalid: re.Match[str]) -> str:
    return f"{invalid['what']} {mistaken(invalid['value'])!r}"


def _in_table(
    name: str, kind: Any, table: Mapping[Any, object], error: msgspec.ValidationError
) -> tuple[str, Any, object, msgspec.ValidationError]:
    """The first wrong entry and its key, which msgspec does not name."""
    own = get_args(kind)[1]
    for key, value in table.items():
        inner = _mistake(own, value)
        if inner is not None:
            return f"{name}[{shown_name(str(key))!r}]", own, value, inner
    return name, kind, table, error


def _mistake(kind: Any, value: object) -> msgspec.ValidationError | None:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        return error
    return None


def _struct(kind: Any, value: object, path: str) -> type[msgspec.Struct] | None:
    """The record that contains the mistake, if known."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind
    first = _STEP.match(path)
    if first is None or first.group("index") is None or not isinstance(value, Sequence):
        return None
    table = value[int(first.group("index"))]
    if SilenceSettings in get_args(kind):
        return SilenceSettings
    return TAGS.get(str(table.get("type"))) if isinstance(table, Mapping) else None


def _allowed(text: str, path: str, struct: type[msgspec.Struct] | None) -> str:
    unknown = _UNKNOWN_FIELD.match(text)
    if unknown is not None and struct is not None:
        fields = list(struct.__struct_fields__)
        return f"; {suggestion(unknown.group('field'), fields) or _choices(fields)}"
    last = path.rpartition(".")[2].partition("[")[0]
    if last == "type" or "required field `type`" in text:
        return f"; {_choices(TAGS)}"
    choices = _literals(get_type_hints(struct).get(last)) if struct is not None else []
    return f"; {_choices(choices)}" if choices else ""


def suggestion(word: str, known: Iterable[str]) -> str:
    """The likely meaning of a typo; empty if there is none."""
    close = difflib.get_close_matches(word, list(known), n=1)
    return f"did you mean {close[0]!r}?" if close else ""


def _choices(names: Iterable[str]) -> str:
    return f"allowed: {', '.join(names)}"


def _literals(kind: Any) -> list[str]:
    """The literal words anywhere in a type."""
    if get_origin(kind) is Literal:
        return [str(word) for word in get_args(kind)]
    return [word for part in get_args(kind) for word in _literals(part)]
