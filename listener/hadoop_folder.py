"""A folder on any storage that Spark can open, through the JVM's Hadoop ``FileSystem``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class HadoopFolder:
    """Answers by names below ``root``, a Hadoop ``Path``; whatever Java throws goes through.

    A listing costs five Py4J commands, a look at one file two.
    """

    def __init__(self, jvm: Any, root: Any, conf: Any) -> None:
        self._path = getattr(jvm, "org.apache.hadoop.fs.Path")
        self._to_paths = getattr(jvm, "org.apache.hadoop.fs.FileUtil").stat2Paths
        self._to_text = getattr(jvm, "scala.runtime.ScalaRunTime").stringOf
        self._root = root
        self._files = root.getFileSystem(conf)

    def has(self, name: str = "") -> bool:
        """Whether a file or folder is there; without a name, this folder itself."""
        return bool(self._files.exists(self._at(name)))

    def listing(self, name: str = "") -> str | None:
        """What lies in a folder, as Scala prints an array of paths; None where it is not there."""
        return self._list(name, self._to_paths)

    def statuses(self, name: str = "") -> str | None:
        """The same with all that Hadoop knows of each file, its time of modification too."""
        return self._list(name, lambda files: files)

    def written_at(self, name: str) -> float:
        """Unix seconds of a file's last change, as the storage has them."""
        return float(self._files.getFileStatus(self._at(name)).getModificationTime()) / 1000

    def _list(self, name: str, to_printed: Callable[[Any], Any]) -> str | None:
        folder = self._at(name)
        if not self._files.exists(folder):
            return None
        # One text for the whole array, not four commands for each of its elements.
        return str(self._to_text(to_printed(self._files.listStatus(folder))))

    def _at(self, name: str) -> Any:
        return self._path(self._root, name) if name else self._root
