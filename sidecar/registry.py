"""Which watcher watches which SparkContext."""

from __future__ import annotations

import threading
import weakref
from typing import Any, Generic, Protocol, TypeVar


class Closable(Protocol):
    """Something that watches a SparkContext until it is closed."""

    @property
    def closed(self) -> bool:
        """Whether ``close`` has begun."""
        ...

    def close(self, timeout: float = ...) -> None:
        """Stop within ``timeout`` seconds."""
        ...


W = TypeVar("W", bound=Closable)


class Registry(Generic[W]):
    """At most one living watcher for each SparkContext."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        """Held from the search for a watcher until a new one is remembered."""
        self._watchers: weakref.WeakKeyDictionary[Any, W] = weakref.WeakKeyDictionary()

    def find(self, context: Any) -> W | None:
        """The living watcher of a SparkContext."""
        known = self._watchers.get(context)
        return None if known is None or known.closed else known

    def remember(self, context: Any, watcher: W) -> None:
        """Record the watcher of a SparkContext."""
        self._watchers[context] = watcher

    def forget(self, watcher: W) -> None:
        """Let go of a watcher, which holds its SparkContext."""
        for context, known in list(self._watchers.items()):
            if known is watcher:
                del self._watchers[context]

    def close_stale(self) -> None:
        """End watchers whose SparkContext the application has stopped.

        PySpark drops its Java context in ``SparkContext.stop()``. An old watcher would end
        by itself a moment later, but its port may be wanted now.
        """
        for context, old in list(self._watchers.items()):
            if context._jsc is None:  # noqa: SLF001 - no public way to ask
                old.close(timeout=2.0)
