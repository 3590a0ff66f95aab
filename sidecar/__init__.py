"""The agent inside the driver: worker, threads and ``attach()``."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..alerting.alert import Alert
from ..core.installed import VERSION, explained_imports
from ..exporter.status import QueryStatus, Status
from ..settings.settings import Settings, SettingsError
from .failure import QueryFailure

if TYPE_CHECKING:
    from .sidecar import Sidecar, attach

__all__ = [
    "Alert",
    "QueryFailure",
    "QueryStatus",
    "Settings",
    "SettingsError",
    "Sidecar",
    "Status",
    "__version__",
    "attach",
]

__version__ = VERSION

# The host provides pyspark. Names that need it are imported on first use, so that the
# command line works without it.
_NEEDS_SPARK = {"attach": ".sidecar", "Sidecar": ".sidecar"}


def __getattr__(name: str) -> Any:
    if name not in _NEEDS_SPARK:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with explained_imports():
        return getattr(import_module(_NEEDS_SPARK[name], __name__), name)


def __dir__() -> list[str]:
    return __all__
