"""querypulse shows: the board -> Prometheus metrics, the status and an HTTP server."""

from __future__ import annotations

from .board import Board, Monitor
from .buckets import Buckets
from .server import HttpServer, Tls
from .status import Status, status

__all__ = ["Board", "Buckets", "HttpServer", "Monitor", "Status", "Tls", "status"]
