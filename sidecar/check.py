"""``querypulse check``: the settings in force and where each came from."""

from __future__ import annotations

import sys
from collections.abc import Mapping

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
        value = masked(name, getattr(loaded.settings, name))
        origin = loaded.origins.get(name, "default")
        sys.stdout.write(f"{name:<{width}}  {value!r:<40}  {origin}\n")
    return 0
