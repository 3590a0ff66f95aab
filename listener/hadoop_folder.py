"""A folder on any storage that Spark can open, through Hadoop's ``FileSystem`` in the JVM."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


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
