"""Makes and starts the HTTP server, or logs why not: the job continues without it."""

from __future__ import annotations

import logging
from urllib.parse import urlsplit

from ..core.guard import Guard
from ..exporter.server import Content, HttpServer
from ..settings.links import external_url
from ..settings.settings import Settings
from ..settings.wiring import HttpAccess, refused_address

log = logging.getLogger("querypulse")


def make_server(
    settings: Settings, access: HttpAccess, content: Content, guard: Guard
) -> HttpServer | None:
    """The HTTP server, not started; None if it is off or its address is refused."""
    refused = refused_address(settings)
    if refused:
        log.error("querypulse: no HTTP server: %s", refused)
    if settings.http_port < 0 or refused:
        return None
    token = access.token
    return HttpServer(
        settings.http_host,
        settings.http_port,
        content,
        guard,
        token=lambda: token.known if token is not None else None,
        tls=access.tls,
        external_name=urlsplit(external_url(settings)).hostname,
    )


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
