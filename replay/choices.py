"""``--set NAME=VALUE``: settings to try, with the value as in TOML."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import Any

from ..settings.settings import Settings, SettingsError
from ..settings.settings_sources import load_strictly

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def chosen_settings(choices: Iterable[str]) -> Settings:
    """The settings in force, overridden by ``choices``; a later one wins.

    Raises:
        SettingsError: a choice is not ``NAME=VALUE``, or its setting is unknown or not allowed.

    """
    values: dict[str, Any] = {}
    for choice in choices:
        _merge(values, _parsed(choice))
    return load_strictly(values, os.environ).settings


def _parsed(choice: str) -> dict[str, Any]:
    name, equals, value = choice.partition("=")
    if not equals or not name.strip():
        raise SettingsError(f"--set {choice}: give NAME=VALUE, such as gone_grace_seconds=30")
    try:
        return tomllib.loads(choice)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise SettingsError(
            f"--set {choice}: the value is not TOML ({error}); "
            f"write a text as {name}={_quoted(value)}"
        ) from None


def _quoted(value: str) -> str:
    return '"' + value.strip().strip("\"'") + '"'


def _merge(values: dict[str, Any], more: dict[str, Any]) -> None:
    """Merge tables recursively, so that ``queries."a".ignore=true`` and ``queries."b"...`` add."""
    for name, value in more.items():
        known = values.get(name)
        if isinstance(known, dict) and isinstance(value, dict):
            _merge(known, value)
        else:
            values[name] = value
