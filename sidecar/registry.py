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
        self._yielding: weakref.WeakSet[W] = weakref.WeakSet()

    def find(self, context: Any) -> W | None:
        """The open watcher of a SparkContext."""
        known = self._watchers.get(context)
        return None if known is None or known.closed else known

    def require_none(self, context: Any) -> None:
        """Require that no open watcher has this SparkContext; close those of stopped ones.

        One that yields is closed.

        Raises:
            SettingsError: another one watches it.

        """
        known = self.find(context)
        if known is not None and not self.make_way(known):
            raise SettingsError("another sidecar watches this SparkContext: use or close that")
        self.close_stale()

    def remember(self, context: Any, watcher: W) -> None:
        """Record the watcher of a SparkContext."""
        self._watchers[context] = watcher

    def let_yield(self, watcher: W) -> None:
        """From now on, a watcher that the application starts takes this one's place."""
        self._yielding.add(watcher)

    def keep(self, watcher: W) -> None:
        """From now on, this watcher is the application's, and yields no more."""
        self._yielding.discard(watcher)

    def make_way(self, watcher: W) -> bool:
        """Close a watcher that yields; False if it does not."""
        if watcher in self._yielding:
            watcher.close()
        return watcher in self._yielding

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
