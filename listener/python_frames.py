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
from contextlib import contextmanager, suppress
from itertools import accumulate, chain, compress, repeat, starmap, takewhile
from operator import attrgetter, is_, itemgetter, methodcaller
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
_POOL = "/multiprocessing/pool.py"
_EXECUTOR = "/concurrent/futures/thread.py"
_WAITING = ("/threading.py", "/concurrent/futures/_base.py", _EXECUTOR, _POOL)
_OUTSIDE = ("/socket.py", "/ssl.py", "/subprocess.py", "/urllib3/util/connection.py")
# Spark ships its own copies: .../python/lib/pyspark.zip/..., .../py4j-0.10.9.9-src.zip/...
_SPARK = re.compile(r"[/\\](?:pyspark|py4j)[^/\\]*[/\\]")


class CodeLocation(NamedTuple):
    """One frame of a stack; ``owner`` is the class of a method, empty if unknown."""

    file: str
    line: int
    function: str
    owner: str = ""


# -- stacks -----------------------------------------------------------------------------------
# A frame object of a thread that runs on may refer to memory that is gone: reading it, or
# collecting garbage while it exists, can end the process (python/cpython#111363, 3.11 and 3.13). So
# Python code never holds a frame. Functions of C that call one another create, read and release the
# frames, and no other thread has a turn before they return.


Stack = list[tuple[CodeType, int]]
"""The code and the current line of each frame of a thread, innermost first."""
_CODE = attrgetter("f_code")
_CODE_AND_LINE = attrgetter("f_code", "f_lineno")
_without_collection = threading.Lock()


def _frames(ident: int) -> Iterator[FrameType]:
    """The frames of a thread, innermost first; lazy, and only for functions of C to iterate over.

    Raises:
        KeyError: no such thread, when iterated.

    """
    innermost = map(itemgetter(ident), starmap(sys._current_frames, [()]))  # noqa: SLF001 - the documented way
    return takewhile(bool, accumulate(chain(innermost, repeat("f_back")), getattr))


@contextmanager
def _frames_are_safe() -> Iterator[None]:
    """End without a result when the thread has ended; do not collect garbage meanwhile.

    ``sys._current_frames()`` holds the lock on all threads while it creates the frames. Before
    Python 3.12 that may start a garbage collection, which lets other threads run; and a collected
    ``threading.local`` waits for the same lock forever (python/cpython#106883).
    """
    with suppress(KeyError), _without_collection:
        collects = sys.version_info < (3, 12) and gc.isenabled()
        if collects:
            gc.disable()
        try:
            yield
        finally:
            if collects:
                gc.enable()


def _has_gil() -> bool:
    """Whether threads take turns; without, as Python 3.13t runs, no frame is safe to read."""
    return bool(getattr(sys, "_is_gil_enabled", lambda: True)())


def stack_of(ident: int | None) -> Stack:
    """The stack of a thread; empty if there is no such thread."""
    if ident is not None and _has_gil():
        with _frames_are_safe():
            return list(map(_CODE_AND_LINE, _frames(ident)))
    return []


def _local(ident: int, code: CodeType, name: str) -> Any:
    """A local variable of the innermost frame that runs ``code``; None if there is none."""
    with _frames_are_safe():
        # One expression: a name for a part of it would hold a frame until the function returns.
        return next(
            map(
                methodcaller("get", name),
                map(
                    attrgetter("f_locals"),
                    compress(_frames(ident), map(is_, map(_CODE, _frames(ident)), repeat(code))),
                ),
            ),
            None,
        )
    return None


def _stacks() -> dict[int, Stack]:
    """The stack of every thread by its ident."""
    idents = [thread.ident for thread in threading.enumerate()]
    return {ident: stack_of(ident) for ident in idents if ident is not None}


def is_running(code: CodeType) -> bool:
    """Whether any thread is inside that code now."""
    return any(running is code for stack in _stacks().values() for running, _ in stack)


# -- calls of foreachBatch --------------------------------------------------------------------


class ForeachBatchCall(NamedTuple):
    """A ``foreachBatch`` call in progress: its JVM DataFrame, its current line, its CPU time.

    That includes the processes that its thread has started, and the threads that it waits for. It
    is None where the system does not say.
    """

    jdf: Any
    line: str
    cpu_seconds: float | None
    waits_outside: bool
    """Whether it waits for a process, or in Python's sockets for another system than Spark."""


def foreach_batch_calls() -> Iterator[ForeachBatchCall]:
    """Every ``foreachBatch`` call in progress.

    PySpark's ``ForeachBatchFunction.call`` (``pyspark/sql/utils.py``) holds the frame's
    DataFrame as ``jdf``; the frames below it are the user's.
    """
    stacks = _stacks()
    for ident, stack in stacks.items():
        for depth, (code, _) in enumerate(stack):
            if _calls_foreach_batch(code):
                inside = stack[:depth]
                seconds = _cpu_seconds([ident, *_helpers(ident, inside, stacks)])
                jdf, line = _local(ident, code, "jdf"), _user_line(inside)
                yield ForeachBatchCall(jdf, line, seconds, _waits_outside(inside))


def _waits_outside(inside: Stack) -> bool:
    files = [code.co_filename for code, _ in inside]
    asks_spark = any(map(_SPARK.search, files))
    # A process whose output is read is waited for in a selector.
    innermost = [file for file in files[:2] if not file.endswith("/selectors.py")][:1]
    return not asks_spark and any(file.endswith(_OUTSIDE) for file in innermost)


def _helpers(ident: int, inside: Stack, stacks: dict[int, Stack]) -> set[int]:
    """The threads that a call waits for: it joins one, or waits for results of their pool.

    An executor numbers its threads; so its other threads work for the call as well.
    """
    awaited = _awaited(ident, inside)
    threads = threading.enumerate()
    working = [thread for thread in threads if thread in awaited]
    if any(isinstance(awaits, Future) for awaits in awaited):
        working += [thread for thread in threads if _future(thread.ident or 0, stacks) in awaited]
    pools = {_executor_of(thread) for thread in working} - {""}
    return {
        thread.ident or 0
        for thread in threads
        if thread in working or _executor_of(thread) in pools
    }


def _executor_of(thread: threading.Thread) -> str:
    """The name of the executor whose thread this is, as ``loader`` of ``loader_0``; else empty."""
    executor, _, number = thread.name.rpartition("_")
    return executor if number.isdecimal() else ""


def _awaited(ident: int, inside: Stack) -> set[object]:
    """The threads and futures that a call waits for; none while it does not wait."""
    awaited: set[object] = set()
    for code, _ in takewhile(lambda entry: entry[0].co_filename.endswith(_WAITING), inside):
        waits_for = _local(ident, code, "self")
        futures = _local(ident, code, "fs")
        awaited |= {waits_for, *(futures if isinstance(futures, (list, set)) else ())}
        if code.co_filename.endswith(_POOL):
            pool = getattr(waits_for, "_pool", None)
            awaited.update(getattr(pool, "_pool", pool) or ())
    return awaited - {None}


def _future(ident: int, stacks: dict[int, Stack]) -> Future[object] | None:
    """The future that a thread of an executor works on."""
    for code, _ in stacks.get(ident, []):
        if code.co_name == "run" and code.co_filename.endswith(_EXECUTOR):
            return getattr(_local(ident, code, "self"), "future", None)
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


# -- lines ------------------------------------------------------------------------------------


class MainThread(NamedTuple):
    """The line of the job's main thread; empty where that shows nothing about the job.

    ``awaits_failure``: it is in ``await_any_failure``, which raises when a query fails.
    """

    text: str = ""
    awaits_failure: bool = False


def main_thread() -> MainThread:
    """Return where the job's main thread is."""
    thread = threading.main_thread()
    if not thread.is_alive():
        return MainThread("has ended")
    stack = _locations(stack_of(thread.ident))
    awaits = any(
        place.function == "await_any_failure" and place.file.startswith(_OURS) for place in stack
    )
    return MainThread(waits_in(stack), awaits)


def waits_for_one_query() -> str:
    """The job's line where the main thread waits in ``query.awaitTermination()``; else empty.

    Empty with a timeout, or while other threads wait for queries, too: such a program may look
    after its other queries.
    """
    ident = threading.main_thread().ident
    stack = stack_of(ident)
    waiting = next((code for code, _ in stack if _awaits_one_query(code)), None)
    if ident is None or waiting is None or _local(ident, waiting, "timeout") is not None:
        return ""
    others = (other for thread, other in _stacks().items() if thread != ident)
    if any(_awaits_queries(code) for other in others for code, _ in other):
        return ""
    still_waits = _local(ident, waiting, "self") is not None
    return waits_in(_locations(stack)).partition(", ")[2] if still_waits else ""


def _awaits_one_query(code: CodeType) -> bool:
    """Whether the code is PySpark's ``StreamingQuery.awaitTermination``."""
    return code.co_name == "awaitTermination" and _awaits_queries(code)


def _awaits_queries(code: CodeType) -> bool:
    """Whether the code is PySpark's, and waits for one query or for any."""
    is_spark = _SPARK.search(code.co_filename) is not None and "/sql/" in code.co_filename
    return code.co_name in ("awaitTermination", "awaitAnyTermination") and is_spark


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


def _locations(stack: Stack) -> list[CodeLocation]:
    return [_location(code, line) for code, line in stack]


def _location(code: CodeType, line: int) -> CodeLocation:
    # Python 3.10 does not record the class that defines a function.
    qualified: str = getattr(code, "co_qualname", "")
    owner = qualified.rpartition(".")[0].rpartition(".")[2].removesuffix("<locals>")
    return CodeLocation(code.co_filename, line, code.co_name, owner)


def _user_line(inside: Stack) -> str:
    """The innermost line outside libraries, else the innermost line."""
    places = _locations(inside)
    own = [place for place in places if not is_library(place.file)]
    for place in (own or places)[:1]:
        return f"{place.file}:{place.line} in {place.function}"
    return ""


def is_library(path: str) -> bool:
    """Whether a file belongs to Python, an installed package or Spark."""
    return path.startswith(_LIBRARIES) or _SPARK.search(path) is not None
