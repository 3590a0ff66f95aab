"""Starts the HTTP server, or logs why not: the job continues without it."""

from __future__ import annotations

import logging

from ..exporter.server import HttpServer

log = logging.getLogger("querypulse")


def serves(server: HttpServer, where: str, *, is_alone: bool) -> bool:
    """Whether the server listens at ``where`` now.

    Unless ``is_alone``, another process of the same JVM may hold the port.
    """
    try:
        server.start()
    except OSError as error:
        if is_alone:
            log.error("querypulse: no server on %s: %s", where, error)  # noqa: TRY400 - one line
        else:
            log.info("querypulse: another process that monitors this JVM serves %s", where)
        return False
    return True
