"""The agent inside the driver: worker, threads and ``attach()``."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..alerting.alert import Alert
from ..core.installed import VERSION
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
_SPARK_PACKAGES = ("pyspark", "py4j")


def __getattr__(name: str) -> Any:
    if name not in _NEEDS_SPARK:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(_NEEDS_SPARK[name], __name__), name)
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] not in _SPARK_PACKAGES:
            raise
        message = f"{name} needs PySpark, the cluster's own or: pip install 'querypulse[spark]'"
        raise ImportError(message, name=error.name) from error


def __dir__() -> list[str]:
    return __all__
