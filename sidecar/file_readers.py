"""The threads that read files which may change: silences, secrets, certificates."""

from __future__ import annotations

import logging

from ..core.guard import Guard
from ..core.loop import end_file_loop, file_loop
from ..exporter.server import HttpServer
from ..settings.components import Components
from ..settings.wiring import HttpAccess

log = logging.getLogger("querypulse")

READ_SECONDS = 1.0


class _Rotation:
    """Reads a rotated token or certificate of the HTTP server, each time it is called.

    A file that cannot be read, or does not match the others yet, is logged once, and the
    previous content holds: a rotation may be half done.
    """

    def __init__(self, access: HttpAccess, server: HttpServer) -> None:
        self._access = access
        self._server = server
        self._problem = ""

    def __call__(self) -> None:
        """Read the files that have changed; for a separate thread."""
        if self._access.token is not None:
            self._access.token.reveal()
        try:
            if self._server.renew():
                log.info("querypulse: the HTTP server has a new certificate")
            self._problem = ""
        except OSError as error:
            if str(error) != self._problem:
                self._problem = str(error)
                log.warning("querypulse: the HTTP server keeps its certificate: %s", error)


class FileReaders:
    """One thread per kind of file that is configured: on a hanging mount, a read hangs."""

    def __init__(self, components: Components, server: HttpServer | None, guard: Guard) -> None:
        self._silencing = components.silencing
        self._loops = []
        if components.redacting.reads_files:
            read = components.redacting.refresh
            self._loops.append(file_loop("secret-files", read, READ_SECONDS, guard))
        if server is not None and components.access != HttpAccess():
            rotation = _Rotation(components.access, server)
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
