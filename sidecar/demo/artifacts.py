"""Maven artifacts, fetched by the client that Spark brings (Ivy) into a cache of their own.

Settings of ``spark-submit``: ``spark.jars.packages``, ``spark.jars.excludes``, ``spark.jars.ivy``.
What is being fetched, and from where, is told on standard error as it happens.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from ..configuration.settings_sources import ARTIFACTS_VARIABLE

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
"""What Spark has already, and would not take from a connector."""


class ArtifactsError(RuntimeError):
    """Something could not be had; the message says what, and what to do."""


class Packages(msgspec.Struct, frozen=True):
    """Maven coordinates (``group:artifact:version``) that are resolved together.

    ``excludes`` (``group:artifact``) are left out wherever they are asked for.
    """

    coordinates: tuple[str, ...]
    excludes: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """A name for these and no others."""
        return hashlib.sha256(repr(self).encode()).hexdigest()[:16]


def cache_folder() -> Path:
    """Where artifacts are kept: ``QUERYPULSE_ARTIFACTS``, else a folder of the user's cache."""
    named = os.environ.get(ARTIFACTS_VARIABLE)
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(named) if named else Path(cache) / "querypulse" / "artifacts"


def fetch(wanted: Sequence[Packages], folder: Path) -> list[Path]:
    """The jars of all packages, fetched into ``folder`` unless they lie there.

    Raises:
        ArtifactsError: an artifact cannot be had.

    """
    jars: dict[str, Path] = {}
    for packages in wanted:
        for jar in _cached(packages, folder) or _resolve(packages, folder):
            jars.setdefault(jar.name, jar)
    return list(jars.values())


def _cached(packages: Packages, folder: Path) -> list[Path]:
    """What an earlier call has fetched; nothing unless all of it is still there."""
    listing = folder / f"{packages.digest}.list"
    if not listing.exists():
        return []
    jars = [Path(line) for line in listing.read_text().splitlines()]
    return jars if all(jar.exists() for jar in jars) else []


def _resolve(packages: Packages, folder: Path) -> list[Path]:
    """A JVM that ``spark-submit`` prepares, without any Spark in it, knows the jars."""
    from pyspark import SparkConf
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    folder.mkdir(parents=True, exist_ok=True)
    coordinates = ",".join(packages.coordinates)
    sys.stderr.write(f"querypulse: fetching {coordinates}\n")
    conf = SparkConf(loadDefaults=False)
    conf.set("spark.jars.packages", coordinates)
    conf.set("spark.jars.ivy", str(folder))
    if packages.excludes:
        conf.set("spark.jars.excludes", ",".join(packages.excludes))
    try:
        gateway = launch_gateway(conf)
    except PySparkRuntimeError as error:
        raise ArtifactsError(
            f"cannot fetch {coordinates} from Maven Central into {folder} (see above): a "
            "registry that can be reached is needed, once"
        ) from error
    try:
        text = gateway.jvm.System.getProperty("spark.jars") or ""
    finally:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait()
    jars = [Path(uri.removeprefix("file://")) for uri in text.split(",") if uri]
    listing = folder / f"{packages.digest}.list"
    listing.write_text("".join(f"{jar}\n" for jar in jars))
    return jars
