"""The agent inside the driver: worker, threads and ``attach()``."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..core.installed import VERSION
from ..settings.settings import Settings, SettingsError
from .failure import QueryFailure

if TYPE_CHECKING:
    from .sidecar import Sidecar, attach

__all__ = ["QueryFailure", "Settings", "SettingsError", "Sidecar", "__version__", "attach"]

__version__ = VERSION

# The host provides pyspark. Names that need it are imported on first use, so that the
# command line works without it.
_NEEDS_SPARK = {"attach": ".sidecar", "Sidecar": ".sidecar"}


def __getattr__(name: str) -> Any:
    if name in _NEEDS_SPARK:
        return getattr(import_module(_NEEDS_SPARK[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
