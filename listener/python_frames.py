"""The current lines of Python's threads: ``foreachBatch`` functions and the job's main thread."""

from __future__ import annotations

import gc
import os
import re
import sys
import sysconfig
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from itertools import takewhile
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
_POOL, _EXECUTOR = "/multiprocessing/pool.py", "/concurrent/futures/thread.py"
_WAITING = ("/threading.py", "/concurrent/futures/_base.py", _EXECUTOR, _POOL)
# Spark ships its own copies: .../python/lib/pyspark.zip/..., .../py4j-0.10.9.9-src.zip/...
_SPARK = re.compile(r"[/\\](?:pyspark|py4j)[^/\\]*[/\\]")


class CodeLocation(NamedTuple):
    """One frame of a stack; ``owner`` is the class of a method, empty if unknown."""

    file: str
    line: int
    function: str
    owner: str = ""


def current_frames() -> dict[int, FrameType]:
    """The innermost frame of every thread by its ident, without freezing the interpreter.

    ``sys._current_frames()`` holds the lock on all threads while it creates the frames. Before
    Python 3.12 that may start a garbage collection, and a collected ``threading.local`` waits for
    the same lock forever while it holds the GIL (python/cpython#106883).
    """
    if sys.version_info >= (3, 12) or not gc.isenabled():
        return sys._current_frames()  # noqa: SLF001 - the documented way
    gc.disable()
    try:
        return sys._current_frames()  # noqa: SLF001 - the documented way
    finally:
        gc.enable()


def is_running(code: CodeType) -> bool:
    """Whether any thread is inside that code now."""
    return any(
        frame.f_code is code
        for innermost in current_frames().values()
        for frame in _outwards(innermost)
    )


class ForeachBatchCall(NamedTuple):
    """A ``foreachBatch`` call in progress: its JVM DataFrame, its current line, its CPU time.

    That includes the processes that its thread has started, and the threads that it waits for. It
    is None where the system does not say.
    """

    jdf: Any
    line: str
    cpu_seconds: float | None


def foreach_batch_calls() -> Iterator[ForeachBatchCall]:
    """Every ``foreachBatch`` call in progress.

    PySpark's ``ForeachBatchFunction.call`` (``pyspark/sql/utils.py``) holds the frame's
    DataFrame as ``jdf``; the frames below it are the user's.
    """
    for ident, innermost in current_frames().items():
        inside: list[FrameType] = []
        for frame in _outwards(innermost):
            if _calls_foreach_batch(frame.f_code):
                seconds = _cpu_seconds([ident, *_helpers(inside)])
                yield ForeachBatchCall(frame.f_locals.get("jdf"), _user_line(inside), seconds)
            inside.append(frame)


def _helpers(inside: list[FrameType]) -> set[int]:
    """The threads that a call waits for: it joins one, or waits for results of their pool.

    An executor numbers its threads; so its other threads work for the call as well.
    """
    awaited = _awaited(inside)
    working = [thread for thread in threading.enumerate() if thread in awaited]
    if any(isinstance(awaits, Future) for awaits in awaited):
        # Only then: to hold frames of a thread that ends is a risk (python/cpython#111363).
        frames = current_frames()
        working += [
            thread
            for thread in threading.enumerate()
            if _future(frames.get(thread.ident or 0)) in awaited
        ]
    pools = {_executor_of(thread) for thread in working} - {""}
    return {
        thread.ident or 0
        for thread in threading.enumerate()
        if thread in working or _executor_of(thread) in pools
    }


def _executor_of(thread: threading.Thread) -> str:
    """The name of the executor whose thread this is, as ``loader`` of ``loader_0``; else empty."""
    executor, _, number = thread.name.rpartition("_")
    return executor if number.isdecimal() else ""


def _awaited(inside: list[FrameType]) -> set[object]:
    """The threads and futures that a call waits for; none while it does not wait."""
    awaited: set[object] = set()
    for frame in takewhile(lambda frame: frame.f_code.co_filename.endswith(_WAITING), inside):
        waits_for, futures = frame.f_locals.get("self"), frame.f_locals.get("fs")
        awaited |= {waits_for, *(futures if isinstance(futures, (list, set)) else ())}
        if frame.f_code.co_filename.endswith(_POOL):
            pool = getattr(waits_for, "_pool", None)
            awaited.update(getattr(pool, "_pool", pool) or ())
    return awaited - {None}


def _future(innermost: FrameType | None) -> Future[object] | None:
    """The future that a thread of an executor works on."""
    for frame in _outwards(innermost):
        code = frame.f_code
        if code.co_name == "run" and code.co_filename.endswith(_EXECUTOR):
            return getattr(frame.f_locals.get("self"), "future", None)
    return None


def _cpu_seconds(idents: list[int]) -> float | None:
    """The CPU time of these threads, and of the processes that they started and that still run.

    By the Linux scheduler's own count.
    """
    natives = {thread.ident: thread.native_id for thread in threading.enumerate()}
    seconds = 0.0
    for native in filter(None, map(natives.get, idents)):
        task = Path(f"/proc/self/task/{native}")
        try:
            seconds += int((task / "schedstat").read_text().split()[0]) / 1e9
        except OSError:
            return None
        with suppress(OSError):
            for child in (task / "children").read_text().split():
                stat = Path(f"/proc/{child}/stat").read_text(errors="replace")
                # The name of the process, in parentheses, may hold spaces.
                fields = stat.rpartition(")")[2].split()
                seconds += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return seconds


def main_thread() -> str:
    """The line of the job's main thread; empty where that shows nothing about the job."""
    thread = threading.main_thread()
    if not thread.is_alive():
        return "has ended"
    innermost = current_frames().get(thread.ident or 0)
    return waits_in([_location(frame) for frame in _outwards(innermost)])


def waits_in(stack: Sequence[CodeLocation]) -> str:
    """The call of the job's own code that a stack is in; the innermost frame comes first.

    ``waits in StreamingQuery.awaitTermination(), job line /jobs/jobs.py:41 in main``; empty if no
    frame belongs to the job (a notebook that waits for its next cell).
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
    """Whether the code is PySpark's; no other frame's locals are read.

    Before Python 3.13 ``f_locals`` fills a dict that stays with the frame and would keep objects
    alive that the job has deleted.
    """
    is_call = code.co_name == "call" and "jdf" in code.co_varnames
    return is_call and _SPARK.search(code.co_filename) is not None


def _location(frame: FrameType) -> CodeLocation:
    code = frame.f_code
    # Python 3.10 does not record the class that defines a function.
    qualified: str = getattr(code, "co_qualname", "")
    owner = qualified.rpartition(".")[0].rpartition(".")[2].removesuffix("<locals>")
    return CodeLocation(code.co_filename, frame.f_lineno, code.co_name, owner)


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _user_line(inside: list[FrameType]) -> str:
    """The innermost line outside libraries, else the innermost line."""
    places = list(map(_location, inside))
    own = [place for place in places if not is_library(place.file)]
    for place in (own or places)[:1]:
        return f"{place.file}:{place.line} in {place.function}"
    return ""


def is_library(path: str) -> bool:
    """Whether a file belongs to Python, an installed package or Spark."""
    return path.startswith(_LIBRARIES) or _SPARK.search(path) is not None
