"""querypulse assembles: settings, the worker, ``attach()``, the command line."""

from __future__ import annotations

from .attach import attach
from .failure import QueryFailure
from .settings import Settings, SettingsError
from .sidecar import Sidecar

__all__ = ["QueryFailure", "Settings", "SettingsError", "Sidecar", "attach"]
