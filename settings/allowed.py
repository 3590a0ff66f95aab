"""What a setting allows, in words; what a wrong value probably means; how each place writes it."""

from __future__ import annotations

import json
import re
import types
from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
from msgspec import Meta

from ..core import OFF, ON

WORDS = {bool: "`true`, `false`", str: "text", int: "a whole number", float: "a number"}
_SIGNS = (("gt", "above {}"), ("ge", "{} or more"), ("lt", "below {}"), ("le", "at most {}"))
_EXAMPLES: dict[str, object] = {
    "enabled": False,
    "alertmanager_urls": ["https://alertmanager-0:9093"],
    "complete_by": "mon-fri 06:00 Europe/Berlin",
    "expected_errors": ["UNKNOWN_FIELD_EXCEPTION*"],
    "labels": {"env": "prod"},
    "match": {"team": "payments"},
    "pagerduty_routing_key": "0123456789abcdef" * 2,
    "routing_key": "0123456789abcdef" * 2,
    "port": 587,
    "proxy_url": "http://proxy.example.com:3128",
    "queries": {"nightly*": {"stall_floor_seconds": 3600}},
    "reads": ["kafka:orders"],
    "writes": ["delta:/lake/bronze"],
    "restart_hint": "kubectl -n streaming rollout restart deploy/orders",
    "host": "mail.example.com",
    "sender": "querypulse@example.com",
    "to": ["oncall@example.com"],
    "receivers": [{"type": "slack", "name": "team", "url_file": "/run/secrets/slack"}],
    "redact_patterns": ["customer-[0-9]+"],
}
"""By the name of a setting or field, where it has this type; others are made of their type."""
_OF_A_FORM = re.compile(
    r".*(_files?|_by|_dir|host|key|password|urls?|_endpoint)|reads|writes|sender|to"
)
"""Names of texts that a number, or a word, cannot be."""
_DURATION = re.compile(
    r"(?P<count>\d+(?:\.\d+)?)\s*(?P<unit>ms|milli\w*|s|sec\w*|m|min\w*|h|hours?|d|days?)",
    re.IGNORECASE,
)
_UNITS = {"ms": 0.001, "mil": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_YES = frozenset({*ON, "t", "y"})
_NO = frozenset({*OFF, "f", "n"})
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def plain(kind: Any) -> Any:
    """The type without None."""
    if get_origin(kind) in (Union, types.UnionType):
        parts = [part for part in get_args(kind) if part is not types.NoneType]
        return parts[0] if len(parts) == 1 else kind
    return kind


def allowed(kind: Any, name: str = "") -> str:
    """What a type allows, in words; ``name`` is that of its setting or field.

    It may be None, too, which is not said.
    """
    kind = plain(kind)
    if get_origin(kind) is Annotated:
        bare, *metas = get_args(kind)
        limits = [limit for meta in metas if isinstance(meta, Meta) for limit in _limits(meta)]
        return ", ".join([allowed(bare, name), *limits])
    if get_origin(kind) is Literal:
        return ", ".join(map(str, get_args(kind)))
    if get_origin(kind) is tuple:
        return _allowed_list(get_args(kind)[0], name)
    if get_origin(kind) is dict:
        return "a table"
    if kind in (int, float) and name.endswith("_seconds"):
        return f"{WORDS[kind]} of seconds without a unit"
    return WORDS.get(kind, "a table")


def _allowed_list(entry: Any, name: str) -> str:
    words = allowed(entry)
    if words == "a table":
        return f"a list of tables, in a file [[{name}]]" if name else "a list of tables"
    return "a list of texts" if words.startswith(WORDS[str]) else f"a list of {words}"


def _limits(meta: Meta) -> Iterator[str]:
    if meta.description is not None:
        yield meta.description
    elif meta.pattern is not None:
        yield f"which matches {meta.pattern}"
    for sign, words in _SIGNS:
        if (bound := getattr(meta, sign)) is not None:
            yield words.format(bound)
    if meta.max_length is not None:
        yield f"at most {meta.max_length} characters"


def example(kind: Any, name: str, default: object = None) -> object:
    """A value that is allowed; ``default`` if it says something."""
    kind = plain(kind)
    named = _EXAMPLES.get(name)
    candidates = [named, *(named if isinstance(named, list) else ())]
    if default is not msgspec.NODEFAULT and default not in (None, (), "", False):
        candidates.append(default)
    for candidate in candidates:
        if candidate is not None and is_allowed(candidate, kind):
            return candidate
    return _example_of(kind, name)


def is_allowed(value: object, kind: Any) -> bool:
    """Whether a type allows a value."""
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    return True


def _example_of(kind: Any, name: str) -> object:
    inner = get_args(kind)
    if get_origin(kind) is Annotated:
        return _example_number(kind) if inner[0] in (int, float) else _example_of(inner[0], name)
    if get_origin(kind) is Literal:
        return inner[0]
    if get_origin(kind) is tuple:
        return [example(inner[0], name.removesuffix("s"))]
    if get_origin(kind) is dict:
        return {"name": example(inner[1], name)}
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        field = msgspec.structs.fields(kind)[0]
        return {field.name: example(field.type, field.name)}
    return True if kind is bool else _example_text(name)


def _example_number(kind: Any) -> float:
    for number in (300, 1, 0.5):
        if is_allowed(number, kind):
            return number
    return 0


def _example_text(name: str) -> str:
    """A text as a setting of this name holds it."""
    if name.endswith("_file"):
        return f"/run/secrets/{name.removesuffix('_file')}"
    if name.endswith(("url", "_endpoint")):
        return "https://example.com/x"
    return "orders"


def meant(kind: Any, name: str, value: object) -> object:
    """What a value of a wrong type probably means; None if that is not known."""
    kind = plain(kind)
    bare = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    if bare is bool:
        word = str(value).strip().lower()
        return word in _YES if word in _YES | _NO else None
    if isinstance(value, bool):
        return None
    guess: object = None
    if bare in (int, float):
        guess = _number(value, is_duration=name.endswith("_seconds"), is_share=_is_share(kind))
    elif not _OF_A_FORM.fullmatch(name):
        guess = _text_or_texts(bare, value)
    return guess if guess is not None and is_allowed(guess, kind) else None


def _text_or_texts(kind: Any, value: object) -> object:
    if kind is str:
        return str(value) if isinstance(value, (int, float)) else None
    if get_origin(kind) is tuple and isinstance(value, (str, int)):
        return [word.strip() for word in str(value).split(",") if word.strip()] or None
    return None


def _is_share(kind: Any) -> bool:
    """Whether a type is a number of at most 1."""
    bounds = [meta.le for meta in get_args(kind)[1:] if isinstance(meta, Meta)]
    return any(bound is not None and bound <= 1 for bound in bounds)


def _number(value: object, *, is_duration: bool, is_share: bool) -> float | None:
    """Of ``60s``, ``5 minutes``, ``"30"``; of 70 and ``70%`` where a share is meant, 0.7."""
    if isinstance(value, (int, float)):
        return value / 100 if is_share else None
    text = str(value).strip()
    scale = 1.0
    if duration := _DURATION.fullmatch(text) if is_duration else None:
        unit = duration["unit"].lower()
        scale = _UNITS.get(unit) or _UNITS.get(unit[:3]) or _UNITS[unit[0]]
        text = duration["count"]
    elif is_share and text.endswith("%"):
        scale = 0.01
        text = text.removesuffix("%")
    try:
        number = round(float(text) * scale, 9)
    except ValueError:
        return None
    return _whole(number) if isfinite(number) else None


def _whole(number: float) -> float:
    return int(number) if number.is_integer() else number


# -- how a place writes a value -----------------------------------------------------------------


def assignment(name: str, value: object, origin: str) -> str:
    """A setting as the place ``origin`` gives it: ``http_port = 9719`` in a file."""
    kind, _, key = origin.partition(" ")
    if kind == "file":
        return f"{_key(name)} = {toml(value)}"
    if kind == "--set":
        return f"--set {name}={toml(value)}"
    if kind in ("argument", "an"):
        return f"{name}={value!r}"
    text = value if isinstance(value, str) else toml(value)
    quoted = f"'{text}'" if re.search(r"[\s\"*?\[{]", text) else text
    return f"{key.rpartition(' ')[2]}={quoted}"


def toml(value: object) -> str:
    """A value as TOML writes it; a table in one line."""
    if isinstance(value, Mapping):
        pairs = (f"{_key(str(key))} = {toml(entry)}" for key, entry in value.items())
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"[{', '.join(map(toml, value))}]"
    return json.dumps(value).removesuffix(".0")


def _key(text: str) -> str:
    return text if _BARE_KEY.fullmatch(text) else json.dumps(text)
