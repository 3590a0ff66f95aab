"""A forward proxy on loopback: it tunnels, or answers in place of the server."""

from __future__ import annotations

import socket
import threading
from base64 import b64encode
from contextlib import suppress

from .http_double import Answer, DoubleHandler, HttpDouble

PIECE = 65536


def tunnel(port: int) -> Answer:
    """A tunnel to ``port``, whatever name the client requested."""

    def answer(handler: DoubleHandler) -> None:
        with socket.create_connection(("127.0.0.1", port)) as target:
            handler.send_response(200)
            handler.end_headers()
            back = threading.Thread(target=_relay, args=(target, handler.connection))
            back.start()
            _relay(handler.connection, target)
            back.join()
        handler.close_connection = True

    return answer


def credentials(text: str) -> str:
    """The header that carries ``user:password`` to a proxy."""
    return f"Basic {b64encode(text.encode()).decode()}"


def port_of(double: HttpDouble) -> int:
    return double.server_address[1]


def _relay(source: socket.socket, sink: socket.socket) -> None:
    try:
        while data := source.recv(PIECE):
            sink.sendall(data)
    except OSError:
        return  # either end hung up
    finally:
        with suppress(OSError):  # it may be gone already
            socket.socket.shutdown(sink, socket.SHUT_WR)
