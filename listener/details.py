"""Asks Spark for details that not every version, sink or moment has."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from py4j.protocol import Py4JError, Py4JNetworkError

from .redaction import redact

log = logging.getLogger("querypulse")

T = TypeVar("T")


class Details:
    """Answers, or a default; ``missing`` names each detail Spark has refused, logged once."""

    def __init__(self) -> None:
        self.missing: set[str] = set()

    def ask(self, name: str, call: Callable[[], T], default: T) -> T:
        """Ask for one detail.

        Raises:
            Py4JNetworkError: it is not the detail that is missing but the JVM.

        """
        try:
            return call()
        except Py4JNetworkError:
            raise
        except Py4JError as error:
            if name not in self.missing:
                self.missing.add(name)
                log.warning("querypulse: Spark does not tell %s: %s", name, _first_lines(error))
            return default


def _first_lines(error: Exception) -> str:
    """What was called, and what the JVM said of it."""
    return redact(" ".join(str(error).splitlines()[:2]))[:300]
