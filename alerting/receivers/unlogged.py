"""Keeps the requests of one thread out of urllib3's log."""

from __future__ import annotations

import logging
import threading


class Unlogged(logging.Filter):
    """While entered, keeps this thread's requests, paths included, out of urllib3's debug log."""

    def __enter__(self) -> None:
        self._thread = threading.get_ident()
        logging.getLogger("urllib3.connectionpool").addFilter(self)

    def __exit__(self, *_: object) -> None:
        logging.getLogger("urllib3.connectionpool").removeFilter(self)

    def filter(self, _: logging.LogRecord) -> bool:
        """Whether another thread wrote it."""
        return threading.get_ident() != self._thread
