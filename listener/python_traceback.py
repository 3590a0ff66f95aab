"""Where a Python exception was raised, read from the traceback in Spark's exception text. Pure.

PySpark puts the traceback of a ``foreachBatch`` function or a Python UDF into the message of the
exception; the last of several tracebacks is the innermost.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from ..core.redaction import redact
from .python_frames import is_library

HEAD = "Traceback (most recent call last):"
MAX_LINES = 8
MAX_CHARACTERS = 1200
MAX_TEXT_CHARACTERS = 64 * 1024
"""Only the end of a longer text is read, where the innermost traceback is."""
_FRAME = re.compile(r'[ \t]*File "([^"\n]{1,500})", line ([0-9]{1,9}), in ([^\n]{1,200})')
# Executors have their own installations, in other places than the driver's.
_INSTALLED = re.compile(r"[/\\](?:site-packages|dist-packages|python3(?:\.\d+)?|pyspark|py4j)[/\\]")
_NOT_CODE = re.compile(r"[ \t]*[\^~][ \t^~]*$")


class RaisedAt(msgspec.Struct, frozen=True):
    """The innermost line of the user's code and the last lines of the traceback, redacted.

    The traceback omits library frames, unless there are no others.
    """

    line: str = ""
    """``/job.py:12 in write``."""
    traceback: str = ""


class _Frame(msgspec.Struct, frozen=True):
    path: str
    line: str
    text: Sequence[str]

    @property
    def is_users(self) -> bool:
        return not is_library(self.path) and _INSTALLED.search(self.path) is None


def raised_at(exception: str) -> RaisedAt:
    """Find the innermost traceback with a line of the user's code; empty if there is none."""
    last: list[_Frame] = []
    for text in reversed(exception[-MAX_TEXT_CHARACTERS:].split(HEAD)[1:]):
        frames = _frames(text)
        last = last or frames
        users = [frame for frame in frames if frame.is_users]
        if users:
            return RaisedAt(redact(users[-1].line), _shown(users))
    return RaisedAt("", _shown(last))


def _frames(text: str) -> list[_Frame]:
    """The frames at the start of a text, the innermost last."""
    frames: list[_Frame] = []
    lines: list[str] = []
    for line in text.splitlines()[1:]:
        match = _FRAME.match(line)
        if match is not None:
            path, number, name = match.groups()
            lines = [line.strip()]
            frames.append(_Frame(path, f"{path}:{number} in {name.strip()}", lines))
        elif not line[:1].isspace():
            break
        elif frames and _NOT_CODE.match(line) is None and line.strip():
            lines.append(f"  {line.strip()}")
    return frames


def _shown(frames: Sequence[_Frame]) -> str:
    """The last lines of the frames, bounded and redacted."""
    lines = [line for frame in frames for line in frame.text][-MAX_LINES:]
    return redact("\n".join(lines))[-MAX_CHARACTERS:]
