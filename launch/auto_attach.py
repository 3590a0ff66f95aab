"""``querypulse auto-attach``: a ``.pth`` file that Python reads at the start of every process."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from ..core import AUTO_ATTACH_VARIABLE, CommandError
from .startup import is_asked, mistake

# Python reads these files in order, and that of an editable install must come first.
NAME = "querypulse_auto_attach.pth"
MARK = "# querypulse auto-attach"
_START = (
    "try:\n from querypulse.launch.startup import start_if_asked\n"
    " start_if_asked()\nexcept ImportError:\n pass"
)
CONTENT = f"""{MARK}, version 1; `querypulse auto-attach off` removes this file
import os; os.environ.get({AUTO_ATTACH_VARIABLE!r}) and exec({_START!r})
"""
"""Without querypulse every Python process would complain at its start, so that is silent."""


def site_packages() -> Path:
    """The folder of this environment's packages."""
    return Path(sysconfig.get_path("purelib"))


def switch(folder: Path, *, on: bool) -> None:
    """Write the file, also in place of one of another version, or remove it.

    Raises:
        CommandError: there is another file of this name, or the folder cannot be written to.

    """
    file = folder / NAME
    content = _content(file)
    if content is not None and not _is_ours(content):
        raise CommandError(f"{file} is not ours: move it away")
    try:
        if on:
            new = file.with_suffix(".new")
            new.write_text(CONTENT, encoding="utf-8")
            new.replace(file)
        else:
            file.unlink(missing_ok=True)
    except OSError as error:
        does = "write" if on else "remove"
        raise CommandError(f"cannot {does} {file}: {error.strerror}") from None


def status_lines(folder: Path, environment: Mapping[str, str]) -> list[str]:
    """What is in force: the file, the variable, PySpark, and what they mean together.

    Raises:
        CommandError: the file cannot be read.

    """
    content = _content(folder / NAME)
    variable = environment.get(AUTO_ATTACH_VARIABLE)
    if content is None:
        state = "off, there is no file"
    elif not _is_ours(content):
        state = "off, the file is not ours"
    else:
        state = "on"
        if content != CONTENT:
            state += ", of another version (`querypulse auto-attach on` renews it)"
    missing = [] if state.startswith("on") else ["run `querypulse auto-attach on`"]
    missing += [] if is_asked(environment) else [f"set {AUTO_ATTACH_VARIABLE}=1"]
    given = f"{AUTO_ATTACH_VARIABLE} is {'not set' if variable is None else repr(variable)}"
    pyspark = find_spec("pyspark")
    where = f"not found by {sys.executable}; spark-submit brings its own"
    if pyspark is not None:
        where = f"found in {Path(pyspark.origin or '').parent}"
    result = "drivers that start here are attached"
    if missing:
        result = f"nothing is attached; to attach, {' and '.join(missing)}"
    return [
        f"file      {state}: {folder / NAME}",
        f"variable  {mistake(environment) or given}",
        f"pyspark   {where}",
        f"result    {result}",
    ]


def _content(file: Path) -> str | None:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CommandError(f"cannot read {file}: {error.strerror}") from None


def _is_ours(content: str) -> bool:
    return content.startswith(MARK)
