"""Serves the published state as Prometheus metrics, as status and over HTTP."""

from __future__ import annotations

from .published_state import Buckets, Monitor, PublishedState
from .server import HttpServer, Tls
from .status import Status, status

__all__ = ["Buckets", "HttpServer", "Monitor", "PublishedState", "Status", "Tls", "status"]
