"""At the start of Python: whether to attach in this process, and waiting for its SparkSession.

Every Python process of an environment may import this: it must stay cheap, and imports no PySpark.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, cast

from ..core import AUTO_ATTACH_VARIABLE, OFF, ON


class ImportHook:
    """A finder that finds nothing itself: ``action`` follows the import of each of the modules.

    A module that cannot be imported raises what it would raise without us.
    """

    def __init__(
        self,
        names: Collection[str],
        action: Callable[[ModuleType], None],
        *,
        gives_way: bool = False,
    ) -> None:
        self._names = names
        self._action = action
        self.gives_way = gives_way
        self._finding: set[str] = set()

    def install(self) -> None:
        """Act at once on modules that are imported already, and on the others later.

        One hook is enough: while there is one, nothing happens, unless that one gives way.
        """
        for other in [finder for finder in sys.meta_path if isinstance(finder, ImportHook)]:
            if self.gives_way or not other.gives_way:
                return
            sys.meta_path.remove(other)
        for name in self._names:
            if name in sys.modules:
                self._act(sys.modules[name])
        sys.meta_path.insert(0, self)

    def find_spec(self, name: str, *_: Any) -> ModuleSpec | None:
        """What the other finders find; after its loader has executed the module, we act."""
        if name not in self._names or name in self._finding:
            return None
        # Other hooks ask in the same way. Python holds the lock of this module meanwhile.
        self._finding.add(name)
        try:
            spec = import_module("importlib.util").find_spec(name)
        finally:
            self._finding.discard(name)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = _Follower(spec.loader, self._act)
        return cast("ModuleSpec | None", spec)

    def _act(self, module: ModuleType) -> None:
        try:
            self._action(module)
        except Exception as error:  # noqa: BLE001 - the import must succeed after any error
            sys.stderr.write(f"querypulse: not attached to {module.__name__}: {error}\n")


class _Follower:
    """Another loader, which may not be changed, and our action after it; the module keeps it."""

    def __init__(self, loader: Any, act: Callable[[ModuleType], None]) -> None:
        self._loader = loader
        self._act = act

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def exec_module(self, module: ModuleType) -> None:
        """Execute the module, then act."""
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._act(module)


SESSIONS = ("pyspark.sql.session", "pyspark.sql.connect.session")
_WORKER_VARIABLES = ("PYTHON_WORKER_FACTORY_PORT", "PYTHON_WORKER_FACTORY_SECRET")
"""Spark sets one of them for the Python processes of executors (PythonWorkerFactory.scala)."""
_WITHOUT_VALUE = "bBdEhiIOPqRsStuvVx?"
"""Options of Python that have no value; the others are ``c``, ``m``, ``W`` and ``X``."""


def start() -> None:
    """Wait for the SparkSession of this process, unless it is no driver; never raises."""
    _follow_pyspark(lambda module: _sessions().attach_to_sessions(module))


def start_if_asked() -> None:
    """The same where the environment asks for it; the ``.pth`` file calls this.

    Only where PySpark is imported, the log says that its value is not understood.
    """
    if is_asked(os.environ):
        start()
    elif problem := mistake(os.environ):
        # The launcher, which comes later, attaches all the same.
        _follow_pyspark(lambda _: _sessions().warn_once(problem), gives_way=True)


def _follow_pyspark(action: Callable[[ModuleType], None], *, gives_way: bool = False) -> None:
    try:
        if may_be_driver(sys.orig_argv, os.environ):
            ImportHook(SESSIONS, action, gives_way=gives_way).install()
    except Exception as error:  # noqa: BLE001 - the job continues after any error
        sys.stderr.write(f"querypulse: not attached: {error}\n")


def _sessions() -> Any:
    """The module that needs more than this one; it is imported late."""
    return import_module(".sessions", __package__)


def is_asked(environment: Mapping[str, str]) -> bool:
    """Whether ``QUERYPULSE_AUTO_ATTACH`` is 1, true, yes or on."""
    return environment.get(AUTO_ATTACH_VARIABLE, "").strip().lower() in ON


def mistake(environment: Mapping[str, str]) -> str:
    """What is wrong with ``QUERYPULSE_AUTO_ATTACH``; empty if it is a yes, a no or not set."""
    value = environment.get(AUTO_ATTACH_VARIABLE, "")
    if value.strip().lower() in (*ON, *OFF, ""):
        return ""
    allowed = f"{', '.join(ON)}; or {', '.join(OFF)}"
    return f"{AUTO_ATTACH_VARIABLE} is {value[:40]!r}; allowed: {allowed}"


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
            continue
        if not word.startswith("-") or word == "-":
            return "", word
        letters = word[1:].lstrip(_WITHOUT_VALUE)
        if letters:
            value = letters[1:] or next(words, "")
            if letters[0] in "cm":
                return letters[0], value
    return "", ""
