"""The HTTP connections of a receiver: every request has a deadline and can be aborted."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from http.client import HTTPResponse
from typing import Any

from requests.adapters import HTTPAdapter
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from ...core.socket_deadline import SocketDeadline

PIECE_BYTES = 16 * 1024


class DeadlineAdapter(SocketDeadline, HTTPAdapter):
    """A transport of requests whose exchanges end by ``deadline``, in the head as in the body."""

    def __init__(self) -> None:
        SocketDeadline.__init__(self)
        HTTPAdapter.__init__(self, max_retries=0)

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        """Make pools whose answers are read through this adapter."""
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = self._pools()

    def proxy_manager_for(self, *args: Any, **kwargs: Any) -> Any:
        """Make the pools behind a proxy likewise."""
        manager = super().proxy_manager_for(*args, **kwargs)
        manager.pool_classes_by_scheme = self._pools()
        return manager

    def _pools(self) -> dict[str, type[HTTPConnectionPool]]:
        return {"http": self._pool(HTTPConnectionPool), "https": self._pool(HTTPSConnectionPool)}

    def _pool(self, base: type[HTTPConnectionPool]) -> type[HTTPConnectionPool]:
        adapter: DeadlineAdapter = self
        plain: Any = base.ConnectionCls

        class Connection(plain):  # type: ignore[misc]  # its base is a value, chosen by scheme
            response_class = adapter._response

            def send(self, data: Any) -> None:
                for piece in _pieces(data):
                    if self.sock is not None:
                        adapter.limit(self.sock)
                    super().send(piece)

        class Pool(base):  # type: ignore[misc,valid-type]  # as above
            ConnectionCls = Connection

        return Pool

    def _response(self, sock: socket.socket, *args: Any, **kwargs: Any) -> HTTPResponse:
        response = HTTPResponse(sock, *args, **kwargs)
        unbounded = response.fp
        response.fp = self.reader(sock)
        unbounded.close()
        return response


def _pieces(data: Any) -> Iterator[Any]:
    """``data`` in the size of a TLS record: what a whole SSL socket's limit counts for."""
    if not isinstance(data, bytes):
        yield data
        return
    for start in range(0, len(data), PIECE_BYTES):
        yield data[start : start + PIECE_BYTES]
