"""At the start of Python: whether to attach in this process, and waiting for its SparkSession.

Every Python process of an environment may import this: it must stay cheap, and imports no PySpark.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, cast

from ..core import AUTO_ATTACH_VARIABLE

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
        if any(isinstance(finder, ImportHook) for finder in sys.meta_path):
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


# -- startup ----------------------------------------------------------------------------------


_ON = frozenset({"1", "true", "yes", "on"})
_WORKER_VARIABLES = ("PYTHON_WORKER_FACTORY_PORT", "PYTHON_WORKER_FACTORY_SECRET")
"""Spark sets one of them for the Python processes of executors (PythonWorkerFactory.scala)."""
_WITH_VALUE = "cmWX"
"""Options of Python that have a value."""


def start() -> None:
    """Wait for the SparkSession of this process, unless it is no driver; never raises."""
    try:
        if may_be_driver(sys.orig_argv, os.environ):
            ImportHook(
                {"pyspark.sql.session": _classic, "pyspark.sql.connect.session": _connect}
            ).install()
    except Exception as error:  # noqa: BLE001 - the job continues after any error
        sys.stderr.write(f"querypulse: not attached: {error}\n")


def start_if_asked() -> None:
    """The same where the environment asks for it; the ``.pth`` file calls this."""
    if is_asked(os.environ):
        start()


def is_asked(environment: Mapping[str, str]) -> bool:
    """Whether ``QUERYPULSE_AUTO_ATTACH`` is 1, true, yes or on."""
    return environment.get(AUTO_ATTACH_VARIABLE, "").strip().lower() in _ON


def may_be_driver(command: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Whether a Python process may create the SparkSession of a job.

    Not executors' Python workers, children of ``multiprocessing``, and pip.
    """
    if any(name in environment for name in _WORKER_VARIABLES):
        return False
    option, name = program(command)
    if option == "m":
        return not name.startswith("pyspark.") and name not in ("pip", "ensurepip", "venv")
    if option == "c":
        return not name.startswith("from multiprocessing.")
    base = os.path.basename(name)  # noqa: PTH119 - pathlib is costly
    return base.rstrip("0123456789.") != "pip"


def program(command: Sequence[str]) -> tuple[str, str]:
    """What Python runs: ``("m", module)``, ``("c", code)`` or ``("", script)``."""
    words = iter(command[1:])
    for word in words:
        if word.startswith("--"):
            next(words, "")
        elif not word.startswith("-") or word == "-":
            return "", word
        else:
            place = next(
                (at for at, letter in enumerate(word) if at and letter in _WITH_VALUE), None
            )
            if place is not None:
                value = word[place + 1 :] or next(words, "")
                if word[place] in "cm":
                    return word[place], value
    return "", ""


def _classic(module: ModuleType) -> None:
    import_module(".sessions", __package__).attach_to_classic(module)


def _connect(module: ModuleType) -> None:
    import_module(".sessions", __package__).attach_to_connect(module)
