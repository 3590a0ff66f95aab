"""Which sidecar watches which SparkContext."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .sidecar import Sidecar

_sidecars: weakref.WeakKeyDictionary[Any, Sidecar] = weakref.WeakKeyDictionary()


def find(context: Any) -> Sidecar | None:
    """The living sidecar of a SparkContext."""
    known = _sidecars.get(context)
    return None if known is None or known.closed else known


def remember(context: Any, sidecar: Sidecar) -> None:
    """Record a sidecar, and end those whose SparkContext the application has stopped.

    PySpark drops its Java context in ``SparkContext.stop()``. The old sidecar would end by
    itself a moment later, but its port may be wanted now.
    """
    for other, old in list(_sidecars.items()):
        if other._jsc is None:  # noqa: SLF001 - no public way to ask
            old.close(timeout=2.0)
    _sidecars[context] = sidecar
