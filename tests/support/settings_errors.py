"""Settings that must be rejected."""

from __future__ import annotations

from querypulse.settings.loading import load_settings
from querypulse.sidecar import SettingsError


def refused(arguments=None, environment=None, spark=None):
    """The error that these settings must raise, or the problem of a variable."""
    try:
        loaded = load_settings(arguments or {}, environment or {}, spark or {})
    except SettingsError as error:
        return str(error)
    assert loaded.problems, "these settings are accepted"
    return loaded.problems[0]
