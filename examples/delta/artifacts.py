"""Maven artifacts, fetched by Ivy, the client that Spark contains, into a cache of their own.

Settings of ``spark-submit``: ``spark.jars.packages``, ``spark.jars.excludes``, ``spark.jars.ivy``.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ...core import CommandError
from ...settings.loading import ARTIFACTS_VARIABLE

# -- ivy talk ---------------------------------------------------------------------------------
# Reads Ivy's output during a fetch: reports each download as it begins, and keeps errors.


LINES_KEPT = 500
_DOWNLOADING = re.compile(r"downloading \S+/(\S+) \.\.\.")
_TROUBLE = re.compile(
    r"\[(?:unresolved dependency|download failed): [^]]+\]"
    r"|Server access error at url \S+|Host \S+ not found"
)
_MAX_ERRORS = 3


class IvyTalk:
    """Reads the standard error of a JVM that is started with ``stderr``."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._lines: deque[str] = deque(maxlen=LINES_KEPT)
        self._reading, self.stderr = os.pipe()
        self._thread = threading.Thread(target=self._read, name="demo-ivy", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Read the rest, after the JVM has ended."""
        os.close(self.stderr)
        self._thread.join()

    @property
    def trouble(self) -> str:
        """The lines with errors, else the last line."""
        errors = dict.fromkeys(
            match.group() for match in map(_TROUBLE.search, self._lines) if match
        )
        return "; ".join(list(errors)[-_MAX_ERRORS:]) or (
            self._lines[-1] if self._lines else "there was no output"
        )

    def _read(self) -> None:
        with os.fdopen(self._reading, errors="replace") as talk:
            for line in talk:
                if line.strip():
                    self._lines.append(line.strip())
                download = _DOWNLOADING.match(line)
                if download is not None:
                    self._say(f"fetching {download.group(1)}")


# -- artifacts --------------------------------------------------------------------------------


IN_SPARK = (
    "com.fasterxml.jackson.core:*",
    "com.fasterxml.jackson.datatype:*",
    "com.github.luben:*",
    "org.apache.hadoop:*",
    "org.apache.logging.log4j:*",
    "org.apache.parquet:*",
    "org.roaringbitmap:*",
    "org.slf4j:*",
    "org.xerial.snappy:*",
)
"""Libraries that Spark contains and so must not take from a connector."""


class ArtifactsError(CommandError):
    """An artifact could not be fetched; the message says which, and what to do."""


class Packages(msgspec.Struct, frozen=True):
    """Maven coordinates (``group:artifact:version``) that are resolved together.

    ``excludes`` (``group:artifact``) are left out wherever they are required.
    """

    coordinates: tuple[str, ...]
    excludes: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """A unique name for this set of packages."""
        return hashlib.sha256(repr(self).encode()).hexdigest()[:16]


def cache_folder() -> Path:
    """The folder for artifacts: ``QUERYPULSE_ARTIFACTS``, else one in the user's cache."""
    named = os.environ.get(ARTIFACTS_VARIABLE)
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(named) if named else Path(cache) / "querypulse" / "artifacts"


def fetch(
    wanted: Sequence[Packages], folder: Path, say: Callable[[str], None] | None = None
) -> list[Path]:
    """The jars of all packages, fetched into ``folder`` unless they are there.

    ``say`` receives a line for each download as it begins; the default is standard error.

    Raises:
        ArtifactsError: an artifact cannot be fetched.

    """
    jars: dict[str, Path] = {}
    for packages in wanted:
        for jar in _cached(packages, folder) or _fetch(packages, folder, say or _report):
            jars.setdefault(jar.name, jar)
    return list(jars.values())


def _cached(packages: Packages, folder: Path) -> list[Path]:
    """The jars that an earlier call fetched; empty unless all still exist."""
    listing = folder / f"{packages.digest}.list"
    if not listing.exists():
        return []
    jars = [Path(line) for line in listing.read_text().splitlines()]
    return jars if all(jar.exists() for jar in jars) else []


def _fetch(packages: Packages, folder: Path, say: Callable[[str], None]) -> list[Path]:
    """Resolve packages while no other process does: two that share a folder damage Ivy's files."""
    _make(folder)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _cached(packages, folder) or _resolve(packages, folder, say)


def _resolve(packages: Packages, folder: Path, say: Callable[[str], None]) -> list[Path]:
    from pyspark.errors import PySparkRuntimeError

    coordinates = ",".join(packages.coordinates)
    say(f"fetching {coordinates} from Maven Central")
    talk = IvyTalk(say)
    trouble: Exception | None = None
    try:
        jars = _jars_of_jvm(_conf(packages, folder), talk.stderr)
    except PySparkRuntimeError as error:
        trouble = error
    finally:
        talk.close()
    if trouble is not None:
        raise ArtifactsError(
            f"cannot fetch {coordinates} from Maven Central into {folder}: {talk.trouble}. "
            "The first run needs access to a registry"
        ) from trouble
    listing = folder / f"{packages.digest}.list"
    listing.write_text("".join(f"{jar}\n" for jar in jars))
    return jars


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArtifactsError(
            f"artifacts cannot be kept in {folder} ({error.strerror}); {ARTIFACTS_VARIABLE} may "
            "name another folder"
        ) from error


def _conf(packages: Packages, folder: Path) -> dict[str, str]:
    conf = {
        "spark.jars.packages": ",".join(packages.coordinates),
        "spark.jars.ivy": str(folder),
    }
    if packages.excludes:
        conf["spark.jars.excludes"] = ",".join(packages.excludes)
    return conf


def _jars_of_jvm(settings: dict[str, str], stderr: int) -> list[Path]:
    """Read the jars from a JVM that ``spark-submit`` prepares, without starting Spark in it."""
    from pyspark import SparkConf
    from pyspark.java_gateway import launch_gateway

    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    launch: Callable[..., Any] = launch_gateway
    gateway = launch(conf, {"stderr": stderr})
    try:
        text = gateway.jvm.System.getProperty("spark.jars") or ""
    finally:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait()
    return [Path(uri.removeprefix("file://")) for uri in text.split(",") if uri]


def _report(text: str) -> None:
    sys.stderr.write(f"querypulse: {text}\n")
