"""querypulse shows: the board -> Prometheus metrics, the status and an HTTP server."""

from __future__ import annotations

from .buckets import Buckets
from .published_state import Monitor, PublishedState
from .server import HttpServer, Tls
from .status import Status, status

__all__ = ["Buckets", "HttpServer", "Monitor", "PublishedState", "Status", "Tls", "status"]
