"""Settings that must be refused."""

from __future__ import annotations

import pytest

from querypulse.sidecar import SettingsError
from querypulse.sidecar.configuration.settings_sources import load_settings


def refused(arguments=None, environment=None, spark=None):
    """The message of the refusal that these settings must meet."""
    with pytest.raises(SettingsError) as error:
        load_settings(arguments or {}, environment or {}, spark or {})
    return str(error.value)
