"""The threads of a sidecar that read files which may change: silences, secrets, certificates."""

from __future__ import annotations

from ..exporter.server import HttpServer
from ..listener.guard import Guard
from .configuration.components import Components
from .configuration.wiring import HttpAccess
from .file_loop import end_file_loop, file_loop
from .rotation import Rotation

READ_SECONDS = 1.0


class FileReaders:
    """One thread for each kind of file, where there is one: on a mount that hangs, a read hangs."""

    def __init__(self, outfit: Components, server: HttpServer | None, guard: Guard) -> None:
        self._silencing = outfit.silencing
        self._loops = []
        if outfit.redacting.reads_files:
            read = outfit.redacting.refresh
            self._loops.append(file_loop("secret-files", read, READ_SECONDS, guard))
        if server is not None and outfit.access != HttpAccess():
            rotation = Rotation(outfit.access, server)
            self._loops.append(file_loop("http-files", rotation, READ_SECONDS, guard))

    def start(self) -> None:
        """Begin to read; what is silenced is known when this returns."""
        self._silencing.start()
        for loop in self._loops:
            loop.start()

    def stop(self) -> None:
        """Read no more."""
        self._silencing.stop()
        for loop in self._loops:
            end_file_loop(loop)
