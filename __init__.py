"""querypulse: the health monitor for the queries of a Spark Structured Streaming job.

``attach(spark)`` watches all queries of a driver. ``docs/in-a-job.md`` has the other calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .sidecar import (
        Alert,
        QueryFailure,
        QueryStatus,
        Settings,
        SettingsError,
        Sidecar,
        Status,
        __version__,
        attach,
    )

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


def __getattr__(name: str) -> Any:
    # The parts must not pay for each other: `import querypulse.listener` loads no sidecar.
    if name in __all__:
        from .core.installed import explained_imports

        with explained_imports():
            from . import sidecar

            return getattr(sidecar, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
