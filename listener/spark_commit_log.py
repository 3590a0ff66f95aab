"""Opens checkpoints as Spark itself does: through the JVM's Hadoop ``FileSystem``.

It reads whatever Spark can write to, and its cache gives the very file system, with the
credentials, that the query opened.
"""

from __future__ import annotations

from typing import Any

from .checkpoint import StorageError, ids_in, short_reason
from .hadoop_folder import HadoopFolder
from .java_errors import java_errors
from .starting_point import times_in


class SparkStorage:
    """All storage that one Spark can open; used by one thread."""

    def __init__(self, spark: Any) -> None:
        self._jvm = spark.sparkContext._jvm  # noqa: SLF001 - no public way to the JVM
        self._java_session = spark._jsparkSession  # noqa: SLF001 - no public way to its conf

    def open(self, location: str, query_id: str = "") -> SparkCheckpoint:
        """Open a checkpoint by ``StreamExecution.resolvedCheckpointRoot``; it need not exist.

        With the settings of the query's own session: credentials may be there only, and a file
        system that was opened without them would stay in Hadoop's cache, for the job too.

        Raises:
            StorageError: no file system answers there.

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

        A run makes the checkpoint itself before anything else: where that is not to be seen, as a
        local one without permission, nothing is known of its logs.
        """
        with java_errors(StorageError):
            listing = self._folder.listing(log)
            return self._nothing() if listing is None else ids_in(listing, log)

    def times(self, log: str) -> dict[int, float | None]:
        """All batch ids in a log, and the Unix seconds of their files.

        Where the storage prints a file's status in a way of its own, only the newest is asked.
        """
        with java_errors(StorageError):
            listing = self._folder.statuses(log)
            times = times_in(listing) if listing is not None else {}
            ids = self.ids(log) if not times else []
            known: dict[int, float | None] = {**dict.fromkeys(ids), **times}
            return known | {
                one: self._folder.written_at(f"{log}/{one}") for one in sorted(ids)[-1:]
            }

    def _nothing(self) -> list[int]:
        """A log without a folder is empty, where the checkpoint can be seen at all."""
        if self._folder.has():
            return []
        raise StorageError(short_reason(f"{self._location} cannot be seen"))

    def has(self, log: str, batch_id: int) -> bool:
        """Whether a log holds that batch."""
        with java_errors(StorageError):
            return self._folder.has(f"{log}/{batch_id}")
