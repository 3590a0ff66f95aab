"""Where Python's threads are right now: ``foreachBatch`` functions, and the job's main thread."""

from __future__ import annotations

import gc
import os
import re
import sys
import sysconfig
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

_LIBRARIES = tuple(
    sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib", "purelib")
)
_OURS = tuple(
    str(Path(__file__).parents[1] / name) + os.sep
    for name in ("alerting", "exporter", "listener", "sidecar")
)
# Spark ships its own copies: .../python/lib/pyspark.zip/..., .../py4j-0.10.9.9-src.zip/...
_SPARK = re.compile(r"[/\\](?:pyspark|py4j)[^/\\]*[/\\]")


class CodeLocation(NamedTuple):
    """One frame of a stack; ``owner`` is the class of a method, empty where it is not known."""

    file: str
    line: int
    function: str
    owner: str = ""


def current_frames() -> dict[int, FrameType]:
    """The innermost frame of every thread by its ident, found without freezing the interpreter.

    ``sys._current_frames()`` holds the lock on all threads while it makes the frames. Before
    Python 3.12 that may start a collection, and a ``threading.local`` that is collected waits for
    the very lock, with the GIL, for ever (python/cpython#106883).
    """
    if sys.version_info >= (3, 12) or not gc.isenabled():
        return sys._current_frames()  # noqa: SLF001 - the documented way
    gc.disable()
    try:
        return sys._current_frames()  # noqa: SLF001 - the documented way
    finally:
        gc.enable()


def is_running(code: CodeType) -> bool:
    """Whether any thread is inside that code right now."""
    return any(
        frame.f_code is code
        for innermost in current_frames().values()
        for frame in _outwards(innermost)
    )


def foreach_batch_calls() -> Iterator[tuple[Any, str]]:
    """Every ``foreachBatch`` call in progress: its JVM DataFrame and the line it stands at.

    PySpark's ``ForeachBatchFunction.call`` (``pyspark/sql/utils.py``) holds the frame's
    DataFrame as ``jdf``; the frames below it are the user's.
    """
    for innermost in current_frames().values():
        stack = list(_outwards(innermost))
        for index, frame in enumerate(stack):
            if _calls_foreach_batch(frame.f_code):
                yield frame.f_locals.get("jdf"), _user_line(stack[:index])


def main_thread() -> str:
    """Where the job's main thread is; empty where that says nothing of the job."""
    thread = threading.main_thread()
    if not thread.is_alive():
        return "has ended"
    innermost = current_frames().get(thread.ident or 0)
    return waits_in([_place(frame) for frame in _outwards(innermost)])


def waits_in(stack: Sequence[CodeLocation]) -> str:
    """Which call of the job's own code a stack is in, the innermost frame first.

    ``waits in StreamingQuery.awaitTermination(), job line /jobs/jobs.py:41 in main``; empty where
    no frame is the job's own (a notebook that waits for its next cell).
    """
    for index, place in enumerate(stack):
        if is_library(place.file) or place.file.startswith(("<frozen ", *_OURS)):
            continue
        line = f"job line {place.file}:{place.line} in {place.function}"
        if index == 0:
            return f"runs {line}"
        call = stack[index - 1]
        name = f"{call.owner}.{call.function}" if call.owner else call.function
        return f"waits in {name}(), {line}"
    return ""


def _calls_foreach_batch(code: CodeType) -> bool:
    """Whether it is PySpark's own; the locals of no other frame are read.

    Before Python 3.13 ``f_locals`` fills a dict that stays with the frame: it would keep what the
    job has deleted since.
    """
    is_call = code.co_name == "call" and "jdf" in code.co_varnames
    return is_call and _SPARK.search(code.co_filename) is not None


def _place(frame: FrameType) -> CodeLocation:
    code = frame.f_code
    return CodeLocation(code.co_filename, frame.f_lineno, code.co_name, _owner(code))


def _owner(code: CodeType) -> str:
    """The class that a function was defined in; empty in Python 3.10, which does not know it."""
    if sys.version_info < (3, 11):
        return ""
    owner = code.co_qualname.rpartition(".")[0].rpartition(".")[2]
    return "" if owner == "<locals>" else owner


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _user_line(inside: list[FrameType]) -> str:
    """The innermost line that is not a library's, else the innermost of all."""
    own = [frame for frame in inside if not is_library(frame.f_code.co_filename)]
    frame = next(iter(own or inside), None)
    if frame is None:
        return ""
    return f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"


def is_library(path: str) -> bool:
    """Whether a file is Python's, an installed package's or Spark's."""
    return path.startswith(_LIBRARIES) or _SPARK.search(path) is not None
