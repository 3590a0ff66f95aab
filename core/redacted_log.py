"""Redacts every record of our logger."""

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
        """Redact a record in place, fully formatted, so that handlers have nothing to add."""
        try:
            record.msg = self._redact(self._text(record))
        except Exception:  # noqa: BLE001 - a record that cannot be formatted must not pass
            record.msg = WITHHELD
        record.args, record.exc_info, record.exc_text, record.stack_info = (), None, None, None
        return True

    def _text(self, record: logging.LogRecord) -> str:
        """The message as logging prints it, with its traceback."""
        return logging.Formatter("%(message)s").format(record)
