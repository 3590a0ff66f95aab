"""What a replay evaluates by: settings, some of them tried with ``--set NAME=VALUE``."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from ..alerting.incidents.lifecycle import LifecycleSettings
from ..settings.loading import load_strictly, parse_text
from ..settings.settings import TYPES, Settings, SettingsError, check_value
from ..sidecar.assemble import make_policy
from .engine import Terms

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def parse_choices(choices: Iterable[str]) -> dict[str, Any]:
    """The settings in ``choices``, each ``NAME=VALUE`` as in TOML; a later one wins.

    Raises:
        SettingsError: a choice is not ``NAME=VALUE``.

    """
    values: dict[str, Any] = {}
    for choice in choices:
        name, equals, value = map(str.strip, choice.partition("="))
        if not equals or not name:
            raise SettingsError(f"--set {choice}: give NAME=VALUE, such as gone_grace_seconds=30")
        try:
            values = merged(values, tomllib.loads(choice))
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            if name in TYPES:
                check_value(name, parse_text(name, value), "--set", is_text=True)
            # It is a text, and lacks only its quotes.
            text = value.strip("\"'")
            raise SettingsError(
                f'--set {choice}: the value is not TOML ({error}); write a text as {name}="{text}"'
            ) from None
    return values


def merged(values: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """The values with ``more``, also in the tables of tables that both have."""
    result = dict(values)
    for name, value in more.items():
        earlier = result.get(name)
        if isinstance(earlier, dict) and isinstance(value, dict):
            result[name] = merged(earlier, value)
        else:
            result[name] = value
    return result


def chosen_settings(chosen: Mapping[str, Any]) -> Settings:
    """The settings in force, overridden by those that are ``chosen``.

    Raises:
        SettingsError: a setting is unknown or not allowed.

    """
    return load_strictly(chosen, os.environ)


def terms_of(settings: Settings) -> Terms:
    """What a replay with these settings evaluates by.

    Raises:
        SettingsError: a limit cannot be used.

    """
    lifecycle = LifecycleSettings(settings.resolve_after_seconds, settings.repeat_interval_seconds)
    return Terms(make_policy(settings), lifecycle, settings.app_name)
