"""querypulse assembles: settings, the worker, ``attach()``, the command line."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..listener.version import VERSION
from .configuration.settings import Settings, SettingsError
from .failure import QueryFailure

if TYPE_CHECKING:
    from .attachment import attach
    from .sidecar import Sidecar

__all__ = ["QueryFailure", "Settings", "SettingsError", "Sidecar", "__version__", "attach"]

__version__ = VERSION

# pyspark is the host's: what needs it is imported when it is asked for, so that the
# command line works without it.
_NEEDS_SPARK = {"attach": ".attachment", "Sidecar": ".sidecar"}


def __getattr__(name: str) -> Any:
    if name in _NEEDS_SPARK:
        return getattr(import_module(_NEEDS_SPARK[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
