"""Starts the job's own Python, which imports ``launch/boot/sitecustomize.py`` at its start.

It replaces the present process, so exit code, output, signals and ``__main__`` are plain Python's.
spark-submit runs this file as a script: ``spark-submit $(querypulse launcher) job.py ARGS...``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import NoReturn

# As site.py writes the entries of sys.path, also inside an archive.
HERE = Path(os.path.abspath(__file__)).parent  # noqa: PTH100 - it must not resolve links
BOOT = str(HERE / "boot")
USAGE = "name it: job.py ARGS..., or -m MODULE ARGS..."


class LaunchError(Exception):  # as a script this file cannot import CommandError
    """The job cannot be started; the message says why."""


def run_job(arguments: Sequence[str]) -> NoReturn:
    """Become ``python ARGUMENTS``, which attaches to the job's SparkSession.

    Our folder is first on its ``PYTHONPATH``.

    Raises:
        LaunchError: ``arguments`` name no job, or Python cannot be started.

    """
    first, *others = arguments or [""]
    if not first or (first == "-m" and not others):
        raise LaunchError(f"the job is missing; {USAGE}")
    if first.startswith("-") and first != "-m":
        raise LaunchError(f"the job is missing before {first}; {USAGE}")
    if not sys.executable:
        raise LaunchError("this Python does not know its own program")
    path = os.environ.get("PYTHONPATH")
    environment = {**os.environ, "PYTHONPATH": f"{BOOT}{os.pathsep}{path}" if path else BOOT}
    command = [sys.executable, *arguments]
    try:
        os.execve(sys.executable, command, environment)  # noqa: S606 - no shell
    except OSError as error:
        raise LaunchError(f"cannot start {sys.executable}: {error.strerror}") from None


def launcher_script() -> Path:
    """The script for spark-submit.

    Raises:
        LaunchError: querypulse is imported from an archive, which spark-submit cannot run.

    """
    script = HERE / "launcher.py"
    if not script.is_file():
        raise LaunchError(f"{script} is not a file: install querypulse, or extract the archive")
    return script


def main() -> int:
    """Run the job that the arguments name; returns 2 if they name none."""
    # spark-submit runs this file, or a copy of it, as a script outside the package.
    ours = import_module("querypulse.launch.launcher")
    try:
        ours.run_job(sys.argv[1:])
    except ours.LaunchError as error:
        sys.stderr.write(f"querypulse: launcher: {error}\n")
    return 2


if __name__ == "__main__":
    sys.exit(main())
