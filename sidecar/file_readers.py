"""The threads that read files which may change: silences, secrets, certificates."""

from __future__ import annotations

from ..core.file_loop import end_file_loop, file_loop
from ..core.guard import Guard
from ..exporter.server import HttpServer
from ..settings.components import Components
from ..settings.wiring import HttpAccess
from .rotation import Rotation

READ_SECONDS = 1.0


class FileReaders:
    """One thread per kind of file that is configured: on a hanging mount, a read hangs."""

    def __init__(self, components: Components, server: HttpServer | None, guard: Guard) -> None:
        self._silencing = components.silencing
        self._loops = []
        if components.redacting.reads_files:
            read = components.redacting.refresh
            self._loops.append(file_loop("secret-files", read, READ_SECONDS, guard))
        if server is not None and components.access != HttpAccess():
            rotation = Rotation(components.access, server)
            self._loops.append(file_loop("http-files", rotation, READ_SECONDS, guard))

    def start(self) -> None:
        """Start reading; the silences are known when this returns."""
        self._silencing.start()
        for loop in self._loops:
            loop.start()

    def stop(self) -> None:
        """Stop reading."""
        self._silencing.stop()
        for loop in self._loops:
            end_file_loop(loop)
