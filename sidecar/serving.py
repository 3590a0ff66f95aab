"""Begins to serve, or says why not: a job goes on without."""

from __future__ import annotations

import logging

from ..exporter.server import HttpServer

log = logging.getLogger("querypulse")


def serves(server: HttpServer, where: str, *, is_alone: bool) -> bool:
    """Whether the server listens at ``where`` now; ``is_alone``: no other process may have it."""
    try:
        server.start()
    except OSError as error:
        if is_alone:
            log.error("querypulse: no server on %s: %s", where, error)  # noqa: TRY400 - one line
        else:
            log.info("querypulse: another process that watches this JVM serves %s", where)
        return False
    return True
