"""What a replay evaluates by: settings, some of them tried with ``--set NAME=VALUE``."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from ..alerting.incidents.lifecycle import LifecycleSettings
from ..recording.lines import Begin, SeenFrom
from ..settings.links import guidance
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
    return _terms(settings, probe_expected=False)


def recorded_terms(begin: Begin, chosen: Mapping[str, Any]) -> tuple[Terms, list[str]]:
    """The settings of a recording, overridden by those that are ``chosen``.

    Also the names of those that this version does not know, or does not allow: they are left out.

    Raises:
        SettingsError: the chosen ones cannot be used with the others.

    """
    usable = {name: value for name, value in begin.settings.items() if _is_usable(name, value)}
    settings = load_strictly(merged(usable, chosen), {})
    terms = _terms(settings, probe_expected=begin.seen_from is SeenFrom.DRIVER)
    unknown = sorted(begin.settings.keys() - usable.keys())
    return replace(terms, labels={**begin.labels, **settings.labels}), unknown


def _is_usable(name: str, value: object) -> bool:
    try:
        return name in TYPES and check_value(name, value, "the recording") is not None
    except SettingsError:
        return False


def _terms(settings: Settings, *, probe_expected: bool) -> Terms:
    return Terms(
        make_policy(settings, probe_expected=probe_expected),
        LifecycleSettings(settings.resolve_after_seconds, settings.repeat_interval_seconds),
        settings.app_name,
        settings.labels,
        guidance(settings),
    )
