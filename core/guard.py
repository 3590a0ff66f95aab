"""Contains our errors at the entry points of the host's threads and of ours."""

from __future__ import annotations

import logging
import time
import traceback
from collections import Counter
from collections.abc import Callable
from typing import TypeVar, overload

from .redaction import WITHHELD, redact

log = logging.getLogger("querypulse")

BURST_SECONDS = 60.0

T = TypeVar("T")
D = TypeVar("D")


class Guard:
    """Counts contained errors by place and logs each burst once."""

    def __init__(self) -> None:
        self.errors: Counter[str] = Counter()
        self._quiet_until: dict[str, float] = {}

    @overload
    def attempt(self, where: str, action: Callable[[], T]) -> T | None: ...

    @overload
    def attempt(self, where: str, action: Callable[[], T], default: D) -> T | D: ...

    def attempt(self, where: str, action: Callable[[], object], default: object = None) -> object:
        """What ``action`` returns, or ``default`` if it raises: our errors never break the job."""
        try:
            return action()
        except Exception as error:  # noqa: BLE001 - the project's one boundary for errors
            self.report(where, error)
            return default

    def report(self, where: str, error: Exception) -> None:
        """Count an error and log it, unless the same place logged one in the last minute."""
        self.errors[where] += 1
        now = time.monotonic()
        if now >= self._quiet_until.get(where, 0.0):
            self._quiet_until[where] = now + BURST_SECONDS
            kind = type(error).__name__
            log.error("querypulse: contained error in %s: %s\n%s", where, kind, _traceback(error))


class Problem:
    """What is wrong now, logged when it is new; the last ``%s`` of ``message`` is for it."""

    def __init__(self, message: str, *arguments: object) -> None:
        self.text = ""
        self._message = message
        self._arguments = arguments

    def note(self, text: str) -> None:
        """Remember the problem, empty when it is over."""
        is_new = text != self.text
        self.text = text
        if text and is_new:
            log.warning(self._message, *self._arguments, text)


def _traceback(error: Exception) -> str:
    """The redacted traceback; errors of Spark and of HTTP clients quote secrets."""
    try:
        return redact("".join(traceback.format_exception(error)).rstrip())
    except Exception:  # noqa: BLE001 - an unprintable error must not escape either
        return WITHHELD
