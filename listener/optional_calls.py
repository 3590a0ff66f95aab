"""Calls Spark for details that are not available in every version, sink or state."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from py4j.protocol import Py4JNetworkError

from ..core.redaction import redact
from .jvm import NETWORK_ERRORS

log = logging.getLogger("querypulse")

T = TypeVar("T")


class OptionalCalls:
    """Returns an answer or a default; ``missing`` names each refused detail, logged once."""

    def __init__(self) -> None:
        self.missing: set[str] = set()

    def ask(self, name: str, call: Callable[[], T], default: T) -> T:
        """Return one detail; an error in the call affects only this detail.

        Raises:
            Py4JNetworkError, ConnectionError, EOFError: the JVM does not answer.

        """
        try:
            return call()
        except Exception as error:
            if is_connection_lost(error):
                raise
            self.miss(name, _first_lines(error) or type(error).__name__)
            return default

    def miss(self, name: str, reason: str) -> None:
        """Record that a detail is not available."""
        if name not in self.missing:
            self.missing.add(name)
            log.warning("querypulse: Spark does not report %s: %s", name, reason)


def is_connection_lost(error: Exception) -> bool:
    """Whether the JVM does not answer at all, as opposed to one call that failed."""
    if isinstance(error, Py4JNetworkError) and isinstance(error.cause, UnicodeDecodeError):
        # The JVM answered, but not in UTF-8.
        return False
    return isinstance(error, NETWORK_ERRORS)


def _first_lines(error: Exception) -> str:
    """The failed call and the JVM's error, redacted."""
    return redact(" ".join(str(error).splitlines()[:2]))[:300]
