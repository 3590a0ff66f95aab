"""``querypulse check``: the settings in force and where each came from."""

from __future__ import annotations

import sys
from collections.abc import Mapping

import msgspec

from . import wiring
from .settings import TYPES, masked
from .settings_sources import load_settings


def check(environment: Mapping[str, str]) -> int:
    """Print every setting, secrets masked; 0 when all of them can be used.

    Spark's conf is known inside a job only: here settings come from environment and file.

    Raises:
        SettingsError: a setting is unknown, not allowed, or names what cannot be used.

    """
    loaded = load_settings({}, environment, {})
    wiring.receivers(loaded.settings)
    wiring.http_access(loaded.settings)
    width = max(map(len, TYPES))
    for name in TYPES:
        value = _text(masked(name, getattr(loaded.settings, name)))
        origin = loaded.origins.get(name, "default")
        sys.stdout.write(f"{name:<{width}}  {value:<34}  {origin}\n")
    return 0


def _text(value: object) -> str:
    """A value as one would write it in JSON or TOML; a dash where there is none."""
    return "-" if value is None else msgspec.json.encode(value).decode()
