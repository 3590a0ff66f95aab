"""Opens checkpoints as Spark does, through Hadoop's ``FileSystem`` in the JVM.

It reads every storage that Spark can write to, and its cache returns the same file system, with
the same credentials, that the query opened.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..commit_log import StorageError, ids_in, short_reason, times_in
from .jvm import java_errors


class HadoopFolder:
    """Reads names below ``root``, a Hadoop ``Path``; Java's exceptions are passed on.

    A listing costs five Py4J commands, a check of one file two.
    """

    def __init__(self, jvm: Any, root: Any, conf: Any) -> None:
        self._path = getattr(jvm, "org.apache.hadoop.fs.Path")
        self._to_paths = getattr(jvm, "org.apache.hadoop.fs.FileUtil").stat2Paths
        self._to_text = getattr(jvm, "scala.runtime.ScalaRunTime").stringOf
        self._root = root
        self._files = root.getFileSystem(conf)

    def has(self, name: str = "") -> bool:
        """Whether a file or folder exists; without a name, this folder."""
        return bool(self._files.exists(self._at(name)))

    def listing(self, name: str = "") -> str | None:
        """The paths in a folder, as Scala prints an array; None when it does not exist."""
        return self._list(name, self._to_paths)

    def statuses(self, name: str = "") -> str | None:
        """The same with Hadoop's status of each file, its modification time included."""
        return self._list(name, lambda files: files)

    def written_at(self, name: str) -> float:
        """Unix seconds of a file's last change, by the storage's clock."""
        return float(self._files.getFileStatus(self._at(name)).getModificationTime()) / 1000

    def _list(self, name: str, to_printed: Callable[[Any], Any]) -> str | None:
        folder = self._at(name)
        if not self._files.exists(folder):
            return None
        # One command for the whole array instead of four for each element.
        return str(self._to_text(to_printed(self._files.listStatus(folder))))

    def _at(self, name: str) -> Any:
        return self._path(self._root, name) if name else self._root


class SparkStorage:
    """All storage that one Spark application can open; used by one thread."""

    def __init__(self, spark: Any) -> None:
        self._jvm = spark.sparkContext._jvm  # noqa: SLF001 - no public way to the JVM
        self._java_session = spark._jsparkSession  # noqa: SLF001 - no public way to its conf

    def release(self) -> None:
        """Release the session; nothing can be opened any more."""
        self._java_session = None

    def open(self, location: str, query_id: str = "") -> SparkCheckpoint:
        """Open a checkpoint by ``StreamExecution.resolvedCheckpointRoot``; it need not exist.

        Uses the settings of the query's own session: only they may hold the credentials, and a
        file system opened without them would stay in Hadoop's cache, also for the job.

        Raises:
            StorageError: no file system answers at that location.

        """
        with java_errors(StorageError):
            conf = self._session_of(query_id).sessionState().newHadoopConf()
            return SparkCheckpoint(self._jvm, location, conf)

    def _session_of(self, query_id: str) -> Any:
        if not query_id:
            return self._java_session
        active = self._java_session.sharedState().activeStreamingQueries()
        identity = getattr(self._jvm, "java.util.UUID").fromString(query_id)
        execution = active.get(identity)
        return self._java_session if execution is None else execution.sparkSession()


class SparkCheckpoint:
    """One checkpoint."""

    def __init__(self, jvm: Any, location: str, conf: Any) -> None:
        self._location = location
        root = getattr(jvm, "org.apache.hadoop.fs.Path")(location)
        self._folder = HadoopFolder(jvm, root, conf)

    def ids(self, log: str) -> list[int]:
        """All batch ids in a log; none when its folder does not exist.

        A run creates its checkpoint folder first. If that folder is not visible, for example a
        local one without permission, nothing is known about its logs.
        """
        with java_errors(StorageError):
            listing = self._folder.listing(log)
            return self._nothing() if listing is None else ids_in(listing, log)

    def times(self, log: str) -> dict[int, float | None]:
        """All batch ids in a log with the Unix seconds of their files.

        If the storage prints a file's status in another format, only the newest file has a time.
        """
        with java_errors(StorageError):
            listing = self._folder.statuses(log)
            times = times_in(listing) if listing is not None else {}
            ids = [] if times else self.ids(log)
            newest = sorted(ids)[-1:]
            written = {batch: self._folder.written_at(f"{log}/{batch}") for batch in newest}
            return {**dict.fromkeys(ids), **times, **written}

    def _nothing(self) -> list[int]:
        """An empty log, if the checkpoint folder is visible; otherwise an error."""
        if self._folder.has():
            return []
        raise StorageError(short_reason(f"{self._location} cannot be seen"))
