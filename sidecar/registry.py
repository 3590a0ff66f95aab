"""Which sidecar watches which SparkContext."""

from __future__ import annotations

import threading
import weakref
from typing import Any, Generic, Protocol, TypeVar

from ..settings.settings import SettingsError
from .session import is_stopped


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
    """At most one open watcher for each SparkContext."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        """Held from the search for a watcher until a new one is recorded."""
        self._watchers: weakref.WeakKeyDictionary[Any, W] = weakref.WeakKeyDictionary()

    def find(self, context: Any) -> W | None:
        """The open watcher of a SparkContext."""
        known = self._watchers.get(context)
        return None if known is None or known.closed else known

    def require_none(self, context: Any) -> None:
        """Require that no open watcher has this SparkContext; close those of stopped ones.

        Raises:
            SettingsError: another one watches it.

        """
        if self.find(context) is not None:
            raise SettingsError("another sidecar watches this SparkContext: use or close that")
        self.close_stale()

    def remember(self, context: Any, watcher: W) -> None:
        """Record the watcher of a SparkContext."""
        self._watchers[context] = watcher

    def forget(self, watcher: W) -> None:
        """Remove a watcher, and with it the reference to its SparkContext."""
        for context, known in list(self._watchers.items()):
            if known is watcher:
                del self._watchers[context]

    def close_stale(self) -> None:
        """Close the watchers of SparkContexts that the application has stopped.

        An old watcher would close itself a moment later, but the new one may need its port now.
        """
        for context, old in list(self._watchers.items()):
            if is_stopped(context):
                old.close(timeout=2.0)
