"""Polls whether the folder that a file source reads is still there.

Spark lists a folder that does not exist as an empty one, so a query whose input was moved away, or
is not mounted any more, idles for ever (``FileStreamSource``, Spark 3.5 to 4.3).
"""

from __future__ import annotations

import os
import re
import time
from typing import Any

from ...core.redaction import redact
from ..offsets import committed_in
from ..source_polls import SourceError, SourcePoll
from ..spark.jvm import java_errors
from ..spark.storage import HadoopFolder

_DESCRIBED = re.compile(r"FileStreamSource\[(.+)\]", re.DOTALL)
_WILDCARD = re.compile(r"[*?\[\]{}\\\\]")
"""What Spark and Hadoop take for a pattern (``SparkHadoopUtil.isGlobPath``)."""
_ROOT = re.compile(r"[\w+.-]+:(?://[^/]*)?")
REAL_FOLDERS = re.compile(r"(?:file|hdfs|viewfs|webhdfs|swebhdfs|maprfs):")
"""Where a folder without files exists. In an object store it is gone with its last file."""


def fixed_part(path: str) -> str:
    """The folder above the first part of a path that is a pattern; else the path."""
    wildcard = _WILDCARD.search(path)
    if wildcard is None:
        return path
    folder = path[: wildcard.start()].rpartition("/")[0]
    return f"{folder}/" if _ROOT.fullmatch(folder) else folder


def folder_of(description: str) -> str:
    """The folder of a ``FileStreamSource`` whose existence shows something; empty without one."""
    described = _DESCRIBED.fullmatch(description)
    path = described.group(1) if described is not None else ""
    return fixed_part(path) if REAL_FOLDERS.match(path) else ""


class FolderSource:
    """The folder of one file source of one run; used by one thread.

    A poll costs a Py4J command while the folder is there.
    """

    def __init__(self, jvm: Any, execution: Any, stream: Any, path: str) -> None:
        self.address = path
        """The folder; while its store hangs, nothing else there is polled."""
        self._jvm = jvm
        self._execution = execution
        self._stream = stream
        self._description = redact(str(stream.toString()))
        self._opened: HadoopFolder | None = None
        self._was_there = False
        self._was_mounted = False

    def poll(self) -> SourcePoll:
        """Look whether the folder is there.

        Raises:
            SourceError: the storage refused.

        """
        with java_errors(SourceError):
            is_gone = self._look()
        missing = redact(self.address) if is_gone else ""
        return SourcePoll(
            self._description,
            {},
            {},
            {},
            at=time.monotonic(),
            wall=time.time(),
            missing_folder=missing,
        )

    def close(self) -> None:
        """Do nothing: file systems are shared with Spark."""

    def _look(self) -> bool:
        """Note what is there; return whether what was a folder, or a mounted one, is gone."""
        if self._opened is None:
            conf = self._execution.sparkSession().sessionState().newHadoopConf()
            root = getattr(self._jvm, "org.apache.hadoop.fs.Path")(self.address)
            self._opened = HadoopFolder(self._jvm, root, conf)
        is_there = self._opened.has()
        if is_there and not self._was_there:
            self._was_there = self._opened.is_folder()
        if not is_there and not self._was_there:
            # A restarted query may never find it again, and has read from it before.
            self._was_there = bool(committed_in(self._execution, self._stream))
        is_mounted = is_there and _is_mounted(self.address)
        was_mounted = self._was_mounted
        self._was_mounted = self._was_mounted or is_mounted
        return self._was_there and (not is_there or (was_mounted and not is_mounted))


def _is_mounted(path: str) -> bool:
    """Whether it is where a file system is mounted; without that one, an empty folder is left."""
    local = re.sub(r"^file:/+", "/", path)
    return local != path and os.path.ismount(local)
