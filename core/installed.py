"""What is installed here: our own version, and what a command needs."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec

from . import CommandError

try:
    VERSION = version("querypulse")
except PackageNotFoundError:  # there is no metadata, as with --py-files
    VERSION = "unknown"


class NotInstalledError(CommandError):
    """A command needs something that is not installed here; the message says what."""


_REQUIREMENT = re.compile(r"(?P<name>[\w-]+)>=(?P<least>[\d.]+)(?P<marker>;.*)?")
_OF_SPARK = frozenset({"pyspark", "py4j"})


@contextmanager
def explained_imports() -> Iterator[None]:
    """Say which package is missing or too old, where importing our own parts fails because of it.

    Raises:
        ImportError: with that message, in place of the error of the import.

    """
    try:
        yield
    except Exception as error:
        if why := why_not_imported(getattr(error, "name", None) or ""):
            raise ImportError(why) from error
        raise


def why_not_imported(module: str) -> str:
    """What to install, after the import of ``module`` has failed; empty if nothing is known."""
    if module.partition(".")[0] in _OF_SPARK:
        return (
            f"querypulse needs PySpark, which this Python ({sys.executable}) does not have: "
            "install querypulse in the Python that runs the driver, or: pip install 'pyspark>=3.5'"
        )
    wrong = [text for text in map(_wrong_package, requires_of_ours()) if text]
    return f"{'; '.join(wrong)}: pip install --upgrade querypulse" if wrong else ""


def requires_of_ours() -> list[str]:
    """What the installed querypulse requires, as packages are named to pip."""
    try:
        return requires("querypulse") or []
    except PackageNotFoundError:
        return []


def _wrong_package(requirement: str) -> str:
    wanted = _REQUIREMENT.match(requirement)
    if wanted is None or wanted["marker"]:
        return ""
    name, least = wanted["name"], wanted["least"]
    try:
        there = version(name)
    except PackageNotFoundError:
        return f"querypulse needs {name} {least} or newer, which is not installed"
    if _numbers(there) < _numbers(least):
        return f"querypulse needs {name} {least} or newer, and {there} is installed"
    return ""


def _numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text)[:3]]


def require_spark(who: str = "the demo") -> None:
    """Check that Spark can be started here, because ``who`` needs it.

    Raises:
        NotInstalledError: there is no Java, or no PySpark.

    """
    if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        raise NotInstalledError(
            f"{who} needs Java (17 or newer for Spark 4): install it "
            "(Debian: openjdk-17-jre-headless) or set JAVA_HOME"
        )
    if find_spec("pyspark") is None:
        raise NotInstalledError(f"{who} needs PySpark: pip install pyspark")
