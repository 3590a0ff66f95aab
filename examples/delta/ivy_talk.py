"""Reads Ivy's output during a fetch: reports each download as it begins, and keeps errors."""

from __future__ import annotations

import os
import re
import threading
from collections import deque
from collections.abc import Callable

LINES_KEPT = 500
_DOWNLOADING = re.compile(r"downloading \S+/(\S+) \.\.\.")
_TROUBLE = re.compile(
    r"\[(?:unresolved dependency|download failed): [^]]+\]"
    r"|Server access error at url \S+|Host \S+ not found"
)
_MAX_ERRORS = 3


class IvyTalk:
    """Reads the standard error of a JVM that is started with ``stderr``."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._lines: deque[str] = deque(maxlen=LINES_KEPT)
        self._reading, self.stderr = os.pipe()
        self._thread = threading.Thread(target=self._read, name="demo-ivy", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Read the rest, after the JVM has ended."""
        os.close(self.stderr)
        self._thread.join()

    @property
    def trouble(self) -> str:
        """The lines with errors, else the last line."""
        errors = dict.fromkeys(
            found.group() for found in map(_TROUBLE.search, self._lines) if found
        )
        return "; ".join(list(errors)[-_MAX_ERRORS:]) or (
            self._lines[-1] if self._lines else "there was no output"
        )

    def _read(self) -> None:
        with os.fdopen(self._reading, errors="replace") as talk:
            for line in talk:
                if line.strip():
                    self._lines.append(line.strip())
                download = _DOWNLOADING.match(line)
                if download is not None:
                    self._say(f"fetching {download.group(1)}")
