"""At the start of Python: whether to attach in this process, and waiting for its SparkSession.

Every Python process of an environment may import this: it must stay cheap, and imports no PySpark.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from types import ModuleType

from ..core.variables import AUTO_ATTACH_VARIABLE
from .import_hook import ImportHook

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
            place = next((at for at, one in enumerate(word) if at and one in _WITH_VALUE), None)
            if place is not None:
                value = word[place + 1 :] or next(words, "")
                if word[place] in "cm":
                    return word[place], value
    return "", ""


def _classic(module: ModuleType) -> None:
    import_module(".sessions", __package__).attach_to_classic(module)


def _connect(module: ModuleType) -> None:
    import_module(".sessions", __package__).attach_to_connect(module)
