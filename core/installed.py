"""What is installed here: our own version, and what a command needs."""

from __future__ import annotations

import os
import shutil
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from . import CommandError

try:
    VERSION = version("querypulse")
except PackageNotFoundError:  # there is no metadata, as with --py-files
    VERSION = "unknown"


class NotInstalledError(CommandError):
    """A command needs something that is not installed here; the message says what."""


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
