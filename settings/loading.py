"""Where settings come from: arguments > environment > Spark conf > TOML file."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_origin

import msgspec

from ..alerting.receivers import RECEIVER_TYPES
from ..core import AUTO_ATTACH_VARIABLE, OFF, ON
from ..core.text import encodable, suggest
from .mistakes import ALL_SETTINGS
from .secrets import refuse_secret
from .settings import TYPES, QuerySettings, Settings, SettingsError, check_value

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ENVIRONMENT_PREFIX = "QUERYPULSE_"
CONFIG_VARIABLE = "QUERYPULSE_CONFIG"
ARTIFACTS_VARIABLE = "QUERYPULSE_ARTIFACTS"
NO_SETTINGS = frozenset({CONFIG_VARIABLE, ARTIFACTS_VARIABLE, AUTO_ATTACH_VARIABLE})
"""Our variables that are not settings: a file, a folder, and whether to attach by itself."""
SPARK_PREFIX = "spark.querypulse."
_SERVICE_LINK = re.compile(
    r"\w+_SERVICE_(?:HOST|PORT(?:_\w+)?)|\w+_PORT_\d+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?"
)
_SERVICE_ADDRESS = re.compile(r"(?:tcp|udp|sctp)://")
LISTS_OF_WORDS = frozenset({"expected_queries", "expected_errors", "alertmanager_urls"})
MOST_BYTES = 1_000_000
"""Of a file of settings; ``/dev/zero`` has no end."""
_PARTS: dict[str, tuple[type[msgspec.Struct], ...]] = {
    "receivers": RECEIVER_TYPES,
    "queries": (QuerySettings,),
}
"""The records in the tables of a setting."""
_PART_EXAMPLES = {
    "receivers": '[[receivers]] type = "slack", name = "team", ...',
    "queries": '[queries."nightly*"] ignore = true',
}
_Row = tuple[str, Any, str]
"""The name of a setting, what was given for it, and where."""


class Loaded(msgspec.Struct, frozen=True):
    """Settings in force.

    ``problems`` name environment variables that are unknown or not allowed; they are ignored.
    """

    settings: Settings
    problems: tuple[str, ...] = ()


def load_settings(
    arguments: Mapping[str, object],
    environment: Mapping[str, str],
    spark_conf: Mapping[str, str],
) -> Loaded:
    """Merge all sources; later ones override earlier ones.

    A foreign environment variable must not stop a job: it becomes one of ``problems``.

    Raises:
        SettingsError: a setting from elsewhere is unknown or not allowed, the Spark conf holds a
            secret, or the file cannot be read.

    """
    values: dict[str, object] = {}
    origins: dict[str, str] = {}
    problems = []

    def take(name: str, value: object, origin: str, *, is_text: bool = False) -> None:
        if name not in TYPES:
            raise SettingsError(f"unknown setting {name!r} from {origin}; {_place_of(name, value)}")
        values[name] = check_value(name, value, origin, is_text=is_text)
        origins[name] = origin

    for row in _from_file(environment.get(CONFIG_VARIABLE)):
        take(*row)
    for name, text, origin in _from_spark(spark_conf):
        take(name, text, origin, is_text=True)
        refuse_secret(name, values[name], origin)
    for row in _from_environment(environment):
        try:
            take(*row, is_text=True)
        except SettingsError as error:  # noqa: PERF203 - there are few of them
            problems.append(str(error))
    for name, value in arguments.items():
        take(name, value, f"argument {name}")
    settings = Settings(**values)  # type: ignore[arg-type] # checked one by one above
    msgspec.structs.force_setattr(settings, "origins", origins)
    return Loaded(settings, tuple(problems))


def load_strictly(arguments: Mapping[str, object], environment: Mapping[str, str]) -> Settings:
    """The settings of a command, which has no job to protect: problems are errors.

    Raises:
        SettingsError: a setting is unknown or not allowed, or the file cannot be read.

    """
    loaded = load_settings(arguments, environment, {})
    if loaded.problems:
        raise SettingsError("; ".join(loaded.problems))
    return loaded.settings


def parse_text(name: str, text: str) -> object:
    """Parse a setting's value from text: lists and tables as JSON or TOML.

    ``enabled`` takes more words than the others: a typo in it would notify people from a test.
    Lists of words may be words separated by commas, all or none of them in quotes;
    ``redact_patterns`` may be one pattern.
    """
    if name == "enabled":
        word = text.strip().lower()
        return word in ON if word in (*ON, *OFF) else text
    if get_origin(TYPES.get(name)) not in (tuple, dict):
        return text
    if name in LISTS_OF_WORDS and text.lstrip().startswith(("'", '"')):
        words = _parsed(f"[{text}]")
        return [word for word in words if word != ""] if isinstance(words, list) else text
    if name in LISTS_OF_WORDS and not text.lstrip().startswith(("[", "{")):
        return [word.strip() for word in text.split(",") if word.strip()]
    value = _parsed(text)
    return [value] if name == "redact_patterns" and isinstance(value, str) and value else value


def _parsed(text: str) -> object:
    """The value of JSON or TOML; the text itself if it is neither."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        # Python reads no number of thousands of digits: a plain ValueError.
        return text


def _from_file(path: str | None) -> list[_Row]:
    if not path:
        return []
    origin = f"file {path}"
    try:
        content = tomllib.loads(_content(Path(path)))
    except (OSError, ValueError, RecursionError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise SettingsError(
            f"{origin}, named by {CONFIG_VARIABLE}: {why}; allowed: a file in TOML; example of a "
            "line: http_port = 9719"
        ) from None
    return [(name, value, origin) for name, value in content.items()]


def _content(path: Path) -> str:
    """The text of a file, with the byte-order mark that some editors write, or without.

    Raises:
        OSError: it cannot be read.
        ValueError: it is too large, or not UTF-8.

    """
    with path.open("rb") as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES} bytes")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not UTF-8 at byte {error.start}") from None


def _place_of(name: str, value: object) -> str:
    """Where an unknown setting belongs, or what it is called."""
    plain = re.sub(r"[.-]", "_", name.strip().lower())
    plain = plain.removeprefix("spark_").removeprefix("querypulse_")
    if plain in TYPES:
        return f"did you mean {plain!r}?"
    if isinstance(value, Mapping) and not TYPES.keys().isdisjoint(value):
        return "write settings at the top of the file, not in a table"
    for place, records in _PARTS.items():
        if any(plain in record.__struct_fields__ for record in records):
            return f"it belongs into a table of the setting {place!r}: {_PART_EXAMPLES[place]}"
    return suggest(plain, TYPES) or f"all settings: {ALL_SETTINGS}"


def _from_spark(conf: Mapping[str, str]) -> list[_Row]:
    return [
        (name := key.removeprefix(SPARK_PREFIX), parse_text(name, text), f"Spark conf {key}")
        for key, text in sorted(conf.items())
        if key.startswith(SPARK_PREFIX)
    ]


def _from_environment(environment: Mapping[str, str]) -> Iterator[_Row]:
    for key, text in sorted(environment.items()):
        ours = key.startswith(ENVIRONMENT_PREFIX) and key not in NO_SETTINGS
        if ours and not is_service_link(key, text):
            name = key.removeprefix(ENVIRONMENT_PREFIX).lower()
            origin = f"environment variable {encodable(key)}"
            yield encodable(name), parse_text(name, text), origin


def is_service_link(key: str, text: str) -> bool:
    """Whether Kubernetes has set this variable, for a Service named ``querypulse`` or similar.

    ``QUERYPULSE_HTTP_PORT`` is our setting; with a URL as its value it belongs to a Service
    named ``querypulse-http`` (kubernetes.io, "Accessing the Service": environment variables).
    """
    return bool(_SERVICE_LINK.fullmatch(key)) or bool(
        key.endswith("_PORT") and _SERVICE_ADDRESS.match(text)
    )
