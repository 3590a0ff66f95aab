"""The threads that read files which may change: silences, secrets, certificates."""

from __future__ import annotations

import logging

from ..core.files import FileLoop
from ..core.guard import Guard
from ..exporter.server import HttpServer
from ..settings.wiring import Components, HttpAccess

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

    @property
    def problem(self) -> str:
        """Why the token or the certificate may be old; empty without a problem."""
        token = self._access.token
        return self._problem or (token.problem if token is not None else "")

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
        self._redacting = components.redacting
        self._rotation = None if server is None else _Rotation(components.access, server)
        self._loops: dict[str, FileLoop] = {}
        if self._redacting.reads_files:
            self._loops["secrets"] = FileLoop(
                "secret-files", self._redacting.refresh, READ_SECONDS, guard
            )
        if self._rotation is not None and components.access != HttpAccess():
            self._loops["http"] = FileLoop("http-files", self._rotation, READ_SECONDS, guard)

    @property
    def problems(self) -> dict[str, str]:
        """By what the files hold: why what was read last may be old. Reads no file."""
        read = {
            "silences": self._silencing.problem,
            "secrets": self._redacting.problem,
            "http": "" if self._rotation is None else self._rotation.problem,
        }
        hanging = {name: loop.problem for name, loop in self._loops.items()}
        found = {name: hanging.get(name) or problem for name, problem in read.items()}
        return {name: problem for name, problem in found.items() if problem}

    def start(self) -> None:
        """Start reading; the silences are known when this returns."""
        self._silencing.start()
        for loop in self._loops.values():
            loop.start()

    def stop(self) -> None:
        """Stop reading."""
        self._silencing.stop()
        for loop in self._loops.values():
            loop.end()
