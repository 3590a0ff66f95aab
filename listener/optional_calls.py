"""Asks Spark for details that not every version, sink or moment has."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from py4j.protocol import Py4JNetworkError

from .jvm import NETWORK_ERRORS
from .redaction import redact

log = logging.getLogger("querypulse")

T = TypeVar("T")


class OptionalCalls:
    """Answers, or a default; ``missing`` names each detail Spark has refused, logged once."""

    def __init__(self) -> None:
        self.missing: set[str] = set()

    def ask(self, name: str, call: Callable[[], T], default: T) -> T:
        """Ask for one detail; whatever the call raises costs this detail only.

        Raises:
            Py4JNetworkError, ConnectionError, EOFError: not the detail is missing but the JVM.

        """
        try:
            return call()
        except Exception as error:
            if is_connection_lost(error):
                raise
            self.miss(name, _first_lines(error) or type(error).__name__)
            return default

    def miss(self, name: str, reason: str) -> None:
        """Take note of a detail that is not to be had."""
        if name not in self.missing:
            self.missing.add(name)
            log.warning("querypulse: Spark does not tell %s: %s", name, reason)


def is_connection_lost(error: Exception) -> bool:
    """Whether the JVM does not answer at all; else it, or PySpark, made something of one call."""
    if isinstance(error, Py4JNetworkError) and isinstance(error.cause, UnicodeDecodeError):
        # The answer came, and is no UTF-8.
        return False
    return isinstance(error, NETWORK_ERRORS)


def _first_lines(error: Exception) -> str:
    """What was called, and what the JVM said of it."""
    return redact(" ".join(str(error).splitlines()[:2]))[:300]
