"""Opens checkpoints as Spark itself does: through the JVM's Hadoop ``FileSystem``.

It reads whatever Spark can write to, and its cache gives the very file system, with the
credentials, that the query opened.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException

from .checkpoint import StorageError, ids_in
from .redaction import redact

REASON_CHARACTERS = 200


class SparkStorage:
    """All storage that one Spark can open; used by one thread."""

    def __init__(self, spark: Any) -> None:
        jvm = spark.sparkContext._jvm  # noqa: SLF001 - no public way to the JVM
        self._java_session = spark._jsparkSession  # noqa: SLF001 - no public way to its conf
        self._path = getattr(jvm, "org.apache.hadoop.fs.Path")
        self._file_util = getattr(jvm, "org.apache.hadoop.fs.FileUtil")
        self._scala = getattr(jvm, "scala.runtime.ScalaRunTime")

    def open(self, location: str) -> SparkCheckpoint:
        """Open a checkpoint by ``StreamExecution.resolvedCheckpointRoot``; it need not exist.

        Raises:
            StorageError: no file system answers there.
            Py4JNetworkError: it is not the storage that is gone but the JVM.

        """
        with _refusals():
            root = self._path(location)
            conf = self._java_session.sessionState().newHadoopConf()
            return SparkCheckpoint(self, root, root.getFileSystem(conf))

    def path(self, root: Any, child: str) -> Any:
        """A ``Path`` below another."""
        return self._path(root, child)

    def text(self, statuses: Any) -> str:
        """A listing as text: two commands for all of it, not four for each file."""
        return str(self._scala.stringOf(self._file_util.stat2Paths(statuses)))


class SparkCheckpoint:
    """One checkpoint; a listing costs five Py4J commands, a look at one file two."""

    def __init__(self, storage: SparkStorage, root: Any, files: Any) -> None:
        self._storage = storage
        self._root = root
        self._files = files

    def ids(self, log: str) -> list[int]:
        """All batch ids in a log; none when its folder does not exist."""
        with _refusals():
            folder = self._storage.path(self._root, log)
            if not self._files.exists(folder):
                return []
            return ids_in(self._storage.text(self._files.listStatus(folder)), log)

    def has(self, log: str, batch_id: int) -> bool:
        """Whether a log holds that batch."""
        with _refusals():
            return bool(self._files.exists(self._storage.path(self._root, f"{log}/{batch_id}")))


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except Py4JNetworkError:
        raise
    # PySpark turns some Java exceptions, such as an IllegalArgumentException, into its own.
    except (Py4JError, PySparkException) as error:
        raise StorageError(short_reason(str(error))) from error


def short_reason(text: str) -> str:
    """The Java exception's own line out of what Py4J or PySpark make of it, redacted."""
    java = re.search(r"^: (.*)", text, re.MULTILINE)
    line = java.group(1) if java else text.partition("\n")[0]
    return redact(line)[:REASON_CHARACTERS]
