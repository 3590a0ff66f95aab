"""Reads checkpoints, and the logs of tables, through Hadoop's ``FileSystem`` in the JVM.

It reads every storage that Spark can write to, and its cache returns the same file system, with
the same credentials, that the query opened.
"""

from __future__ import annotations

import re
from typing import Any

from ...core.redaction import redact
from ..commit_log import SINK_LOG, FileTimes, StorageError
from ..offsets import by_topic
from .jvm import java_errors

_STATUS = re.compile(
    r"/(\d+)(?:\.compact)?; isDirectory=false; .*?modification_time=(\d+);", re.ASCII
)
"""``FileStatus.toString``, Hadoop 3; a sink's log has compacted files."""


MOST_BYTES = 1_000_000
"""Offsets of tens of thousands of partitions; the lists of file sources are larger."""


class HadoopFolder:
    """Reads names below ``root``, a Hadoop ``Path``; Java's exceptions are passed on.

    A listing costs five Py4J commands, a check of one file two.
    """

    def __init__(self, jvm: Any, root: Any, conf: Any) -> None:
        self._path = getattr(jvm, "org.apache.hadoop.fs.Path")
        self._to_paths = getattr(jvm, "org.apache.hadoop.fs.FileUtil").stat2Paths
        self._to_text = getattr(jvm, "scala.runtime.ScalaRunTime").stringOf
        self._jvm = jvm
        self._root = root
        self._files = root.getFileSystem(conf)

    def has(self, name: str = "") -> bool:
        """Whether a file or folder exists; without a name, this folder."""
        return bool(self._files.exists(self._at(name)))

    def is_folder(self) -> bool:
        """Whether this folder, which exists, is no file."""
        return bool(self._files.getFileStatus(self._root).isDirectory())

    def listing(self, name: str = "", *, times: bool = False) -> str | None:
        """The paths in a folder, or Hadoop's status of each file; None when it does not exist.

        As Scala prints an array: one command for all of it instead of four for each element.
        """
        if not self.has(name):
            return None
        statuses = self._files.listStatus(self._at(name))
        return str(self._to_text(statuses if times else self._to_paths(statuses)))

    def text(self, name: str, *, most_bytes: int) -> str | None:
        """A file's content as UTF-8; None if it is longer than that."""
        path = self._at(name)
        if self._files.getFileStatus(path).getLen() > most_bytes:
            return None
        streams = getattr(self._jvm, "org.apache.commons.io.IOUtils")
        stream = self._files.open(path)
        try:
            return str(streams.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def written_at(self, name: str) -> float:
        """Unix seconds of a file's last change, by the storage's clock."""
        return float(self._files.getFileStatus(self._at(name)).getModificationTime()) / 1000

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
            root = getattr(self._jvm, "org.apache.hadoop.fs.Path")(location)
            return SparkCheckpoint(self._jvm, root, conf)

    def _session_of(self, query_id: str) -> Any:
        if not query_id:
            return self._java_session
        active = self._java_session.sharedState().activeStreamingQueries()
        identity = getattr(self._jvm, "java.util.UUID").fromString(query_id)
        execution = active.get(identity)
        return self._java_session if execution is None else execution.sparkSession()


class SparkCheckpoint(HadoopFolder):
    """One checkpoint, or the folder of a file sink, which has a log like it."""

    def files(self, log: str) -> FileTimes:
        """All batches in a log; none when its folder does not exist.

        A run creates its checkpoint folder first. If that folder is not visible, for example a
        local one without permission, nothing is known about its logs. Spark keeps about the newest
        hundred files (``HDFSMetadataLog``, ``minBatchesToRetain``), so a listing is cheap.
        The folder of a file sink is created by its first batch.
        """
        with java_errors(StorageError):
            statuses = self.listing(log, times=True)
            if statuses is None and log != SINK_LOG and not self.has():
                raise StorageError(redact(f"{self._root.toString()} cannot be seen"))
            # A file system may print its statuses in another form.
            return times_in(statuses or "") or dict.fromkeys(ids_in(self.listing(log) or "", log))

    def begins(self) -> dict[int, dict[str, int]]:
        """By source index: where a source of Kafka began, which it writes once for a checkpoint.

        Into ``sources/N/0`` (``KafkaSourceInitialOffsetWriter``). Other sources write other things
        there, or nothing.
        """
        with java_errors(StorageError):
            indexes = source_indexes(self.listing("sources") or "")
            names = {index: f"sources/{index}/0" for index in indexes}
            texts = {
                index: self.text(name, most_bytes=MOST_BYTES) or ""
                for index, name in names.items()
                if self.has(name)
            }
            begins = {index: begin_in(text) for index, text in texts.items()}
            return {index: begin for index, begin in begins.items() if begin}


def source_indexes(listing: str) -> list[int]:
    """Read source indexes out of a listing, ``Array(file:/cp/sources/0, file:/cp/sources/1)``."""
    return [int(name) for name in re.findall(r"/sources/(\d+)(?=, |\)$)", listing, re.ASCII)]


def begin_in(text: str) -> dict[str, int]:
    """Offsets by partition in the file of a Kafka source; empty for any other file.

    A zero byte (for Spark 2.1), a line with the version, the offsets.
    """
    version, _, offsets = text.lstrip("\0").partition("\n")
    return by_topic(offsets) if version.startswith("v") else {}


def times_in(statuses: str) -> dict[int, float | None]:
    """Batch ids and Unix seconds from a listing of ``FileStatus`` objects, as Scala prints them."""
    return {int(name): int(millis) / 1000 for name, millis in _STATUS.findall(statuses)}


def ids_in(listing: str, log: str) -> list[int]:
    """Read batch ids out of a listing, ``Array(file:/cp/offsets/9, file:/cp/offsets/.9.crc)``.

    Skips checksums, temporary and foreign files: only a name of digits is a batch, and in the log
    of a sink also ``9.compact`` (``CompactibleFileStreamLog``). A listed batch file is complete
    (``CheckpointFileManager.createAtomic``).
    """
    compact = r"(?:\.compact)?" if log == SINK_LOG else ""
    names = re.findall(rf"/{log}/(\d+){compact}(?=, |\)$)", listing, re.ASCII)
    return [int(name) for name in names]
