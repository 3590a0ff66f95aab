"""Applies a rotated token or certificate of the HTTP server without a restart."""

from __future__ import annotations

import logging

from ..exporter.server import HttpServer
from ..settings.wiring import HttpAccess

log = logging.getLogger("querypulse")


class Rotation:
    """Reads the files of the server's ``access`` again, each time it is called.

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
