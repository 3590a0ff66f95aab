"""Redacts what we log, whoever of us logs it."""

from __future__ import annotations

import logging
from collections.abc import Callable

from .redaction import WITHHELD


class RedactedLog(logging.Filter):
    """A filter for the logger ``querypulse``: messages and tracebacks pass through ``redact``."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        super().__init__()
        self._redact = redact

    def filter(self, record: logging.LogRecord) -> bool:
        """Redact a record in place; handlers get it with nothing left to format."""
        try:
            record.msg = self._redact(self._text(record))
        except Exception:  # noqa: BLE001 - a record that cannot be formatted must not leave as it is
            record.msg = WITHHELD
        record.args, record.exc_info, record.exc_text, record.stack_info = (), None, None, None
        return True

    def _text(self, record: logging.LogRecord) -> str:
        """The message as logging would print it, its traceback included."""
        return logging.Formatter("%(message)s").format(record)
