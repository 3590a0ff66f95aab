"""Reads checkpoints, and the logs of tables, through Hadoop's ``FileSystem`` in the JVM, and
writes files of ours.

It reads every storage that Spark can write to, and its cache returns the same file system, with
the same credentials, that the query opened.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from py4j.protocol import Py4JJavaError

from ...core.folders import FileEntry
from ...core.redaction import redact
from ..commit_log import SINK_LOG, FileTimes, StorageError
from ..offsets import by_topic
from .jvm import NETWORK_ERRORS, THROWN, active_runs, is_gone, java_errors, reason_of

_STATUS = re.compile(
    r"/(\d+)(?:\.compact)?; isDirectory=false; .*?modification_time=(\d+);", re.ASCII
)
"""``FileStatus.toString``, Hadoop 3; a sink's log has compacted files."""


def local_dirs(spark: Any) -> tuple[str, ...]:
    """The folders of ``spark.local.dir``, or what the cluster manager gives instead.

    ``Utils.getConfiguredLocalDirs``, private in Scala only. RocksDB's working files are there, too.

    Raises:
        Exception: Spark refuses to show them.

    """
    context = spark.sparkContext
    utils = getattr(context._jvm, "org.apache.spark.util.Utils")  # noqa: SLF001 - no public way
    return tuple(map(str, utils.getConfiguredLocalDirs(context._jsc.sc().conf())))  # noqa: SLF001


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
    """All storage that one Spark application can open; used by one thread.

    ``active`` has the active runs by query id, if not only those of this session's kind.
    """

    def __init__(self, spark: Any, active: Any = None) -> None:
        self._jvm = spark.sparkContext._jvm  # noqa: SLF001 - no public way to the JVM
        self._java_session = spark._jsparkSession  # noqa: SLF001 - no public way to its conf
        self._active = active_runs(spark) if active is None else active

    def release(self) -> None:
        """Release the session; nothing can be opened any more."""
        self._java_session = self._active = None

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
        identity = getattr(self._jvm, "java.util.UUID").fromString(query_id)
        execution = self._active.get(identity)
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


ABORTABLE = "fs.capability.outputstream.abortable"
"""``CommonPathCapabilities.ABORTABLE_STREAM``, of S3A: a file is there once its stream is closed.

Spark's ``AbortableStreamBasedCheckpointFileManager`` depends on it, too.
"""
_FILE = re.compile(
    r"path=[^;]*/(?P<name>[^;/]+); isDirectory=false; length=(?P<size>\d+); "
    r".*?modification_time=(?P<millis>\d+);",
    re.ASCII,
)
"""A file in a listing of ``FileStatus`` objects, as Scala prints them."""


class SparkFolder:
    """A ``Folder`` at any URI that the driver's Hadoop can write; any thread may use it.

    A file is written as a draft, and renamed as Spark renames its checkpoints
    (``FileContextBasedCheckpointFileManager``); or at once where no reader sees a part of it. The
    JVM is not called before the first use.
    """

    appends = False

    def __init__(self, spark: Any, uri: str) -> None:
        self._gateway = spark.sparkContext._gateway  # noqa: SLF001 - no public way to the JVM
        self._java_session = spark._jsparkSession  # noqa: SLF001 - no public way to its conf
        self._uri = uri
        self._conf: Any = None
        self._opened: _HadoopFiles | None = None
        self._is_lost = False
        """Whether the JVM has ended: it is not called again."""
        self.place = redact(uri)

    def make(self) -> None:
        """Make the folder, and those above it, for its owner where the store has owners."""
        with self._files() as files:
            files.make()

    def entries(self) -> dict[str, FileEntry]:
        """The files in it, by name, without hidden ones, as drafts are."""
        with self._files() as files:
            return files.entries()

    def read(self, name: str) -> bytes:
        """The content of a file."""
        with self._files() as files:
            return files.read(name)

    def write(self, name: str, content: bytes) -> None:
        """Write a file as a whole."""
        with self._files() as files:
            files.write(name, content)

    def append(self, name: str, content: bytes) -> None:
        """Refuse: object stores cannot."""
        raise OSError(errno.ENOTSUP, f"nothing of {len(content)} bytes is appended", name)

    def delete(self, name: str) -> None:
        """Delete a file; one that is not there is no error."""
        with self._files() as files:
            files.delete(name)

    @contextmanager
    def _files(self) -> Iterator[_HadoopFiles]:
        """Open the file system; an error of Java, or a JVM that has ended, is an ``OSError``."""
        if self._is_lost:
            raise OSError("the driver's JVM has ended")
        try:
            yield self._opened or self._open()
        except (*THROWN, *NETWORK_ERRORS) as error:
            self._is_lost = isinstance(error, NETWORK_ERRORS) and is_gone(self._gateway)
            reason = reason_of(error)
            if "FileNotFoundException" in reason:
                raise FileNotFoundError(reason) from None
            # The job may have closed it, "Filesystem closed": then Hadoop opens another.
            self._opened = None
            raise OSError(reason) from None

    def _open(self) -> _HadoopFiles:
        if self._conf is None:
            self._conf = self._java_session.sessionState().newHadoopConf()
            self._java_session = None  # it can be collected when the job has closed it
        opened = self._opened = _HadoopFiles(self._gateway, self._uri, self._conf)
        return opened


class _HadoopFiles:
    """The calls of Java for one folder; its exceptions are passed on."""

    def __init__(self, gateway: Any, uri: str, conf: Any) -> None:
        jvm = gateway.jvm
        self._path = getattr(jvm, "org.apache.hadoop.fs.Path")
        self._permission = getattr(jvm, "org.apache.hadoop.fs.permission.FsPermission")
        self._streams = getattr(jvm, "org.apache.commons.io.IOUtils")
        self._to_text = getattr(jvm, "scala.runtime.ScalaRunTime").stringOf
        self._root = self._path(uri)
        self._files = self._root.getFileSystem(conf)
        self._is_atomic = False
        # Not every store answers for its own scheme.
        with suppress(*THROWN):
            self._is_atomic = bool(self._files.hasPathCapability(self._root, ABORTABLE))
        rename = getattr(jvm, "org.apache.hadoop.fs.Options").Rename
        self._overwriting = gateway.new_array(rename, 1)
        self._overwriting[0] = rename.OVERWRITE
        self._context: Any = None
        if not self._is_atomic:
            # UnsupportedFileSystemException: not every store is an ``AbstractFileSystem``.
            with suppress(Py4JJavaError):
                contexts = getattr(jvm, "org.apache.hadoop.fs.FileContext")
                self._context = contexts.getFileContext(self._root.toUri(), conf)

    def make(self) -> None:
        self._files.mkdirs(self._root, self._permission("700"))

    def entries(self) -> dict[str, FileEntry]:
        if not self._files.exists(self._root):
            return {}
        statuses = self._files.listStatus(self._root)
        listed = _FILE.finditer(str(self._to_text(statuses)))
        files = {
            file["name"]: FileEntry(int(file["size"]), int(file["millis"]) / 1000)
            for file in listed
        }
        if not files:
            # A file system may print its statuses in another form.
            files = dict(_entry(status) for status in statuses if status.isFile())
        return {name: entry for name, entry in files.items() if not name.startswith(".")}

    def read(self, name: str) -> bytes:
        path = self._path(self._root, name)
        draft = self._draft(name)
        if not self._is_atomic and not self._files.exists(path) and self._files.exists(draft):
            # Its process was killed between the deletion of the old file and the renaming.
            path = draft
        stream = self._files.open(path)
        try:
            return bytes(self._streams.toByteArray(stream))
        finally:
            stream.close()

    def write(self, name: str, content: bytes) -> None:
        path = self._path(self._root, name)
        if self._is_atomic:
            self._create(path, content)
            return
        draft = self._draft(name)
        self._create(draft, content)
        if self._context is not None:
            self._context.rename(draft, path, self._overwriting)
        elif not self._files.rename(draft, path):
            # As in Spark, it is not said why: mostly because the file is there.
            self._files.delete(path, False)
            if not self._files.rename(draft, path):
                raise OSError(f"{name} cannot be replaced")

    def delete(self, name: str) -> None:
        self._files.delete(self._path(self._root, name), False)
        if not self._is_atomic:
            self._files.delete(self._draft(name), False)

    def _create(self, path: Any, content: bytes) -> None:
        stream = self._files.create(path, True)
        try:
            if not self._is_atomic:
                # Some stores have no permissions.
                with suppress(Py4JJavaError):
                    self._files.setPermission(path, self._permission("600"))
            stream.write(content)
        except BaseException:
            with suppress(*THROWN):
                # What a closed stream has of an atomic file would replace the old one.
                stream.abort() if self._is_atomic else stream.close()
            raise
        stream.close()

    def _draft(self, name: str) -> Any:
        return self._path(self._root, f".{name}.draft")


def _entry(status: Any) -> tuple[str, FileEntry]:
    changed_at = float(status.getModificationTime()) / 1000
    return status.getPath().getName(), FileEntry(status.getLen(), changed_at)


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
