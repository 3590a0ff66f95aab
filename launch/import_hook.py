"""Calling a function with a module as soon as something has imported it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, cast

Action = Callable[[ModuleType], None]


class ImportHook:
    """A finder that finds nothing itself: it calls one action after the import of each module.

    A module that cannot be imported raises what it would raise without us.
    """

    def __init__(self, actions: Mapping[str, Action]) -> None:
        self._actions = actions
        self._finding: set[str] = set()

    def install(self) -> None:
        """Act at once on modules that are imported already, and on the others later.

        One hook is enough: while there is one, nothing happens.
        """
        if any(isinstance(one, ImportHook) for one in sys.meta_path):
            return
        for name, action in self._actions.items():
            if name in sys.modules:
                _act(action, sys.modules[name])
        sys.meta_path.insert(0, self)

    def find_spec(self, name: str, *_: Any) -> ModuleSpec | None:
        """What the other finders find; its loader calls our action."""
        action = self._actions.get(name)
        if action is None or name in self._finding:
            return None
        # Other hooks ask in the same way. Python holds the lock of this module meanwhile.
        self._finding.add(name)
        try:
            spec = import_module("importlib.util").find_spec(name)
        finally:
            self._finding.discard(name)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = _ActingLoader(spec.loader, action)
        return cast("ModuleSpec | None", spec)


class _ActingLoader:
    """Another loader, and an action after it; the module keeps the other loader."""

    def __init__(self, loader: Any, action: Action) -> None:
        self._loader = loader
        self._action = action

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def exec_module(self, module: ModuleType) -> None:
        """Execute the module, then act."""
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        _act(self._action, module)


def _act(action: Action, module: ModuleType) -> None:
    try:
        action(module)
    except Exception as error:  # noqa: BLE001 - the import must succeed after any error
        sys.stderr.write(f"querypulse: not attached to {module.__name__}: {error}\n")
