"""Finds a hung Python ``foreachBatch`` and the line of user code it hangs in."""

from __future__ import annotations

import asyncio
import gc
import socket
import subprocess
import sys
import sysconfig
import threading
import weakref
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from functools import partial
from multiprocessing.pool import ThreadPool
from types import SimpleNamespace

import pytest
from pyspark.sql.utils import ForeachBatchFunction
from support.patience import PATIENCE_SECONDS, until

from querypulse.listener.python_frames import (
    CodeLocation,
    foreach_batch_calls,
    main_thread,
    stack_of,
    waits_in,
)

LIBRARY = sysconfig.get_path("purelib")
JOB = "/jobs/etl/job.py"


class HeldCode:
    """Blocks the user's code until ``free`` is set."""

    def __init__(self):
        self.there = threading.Semaphore(0)
        self.free = threading.Event()

    def wait(self):
        self.there.release()
        assert self.free.wait(PATIENCE_SECONDS)


class JavaDataFrame:
    """The JVM DataFrame of one batch."""

    def sparkSession(self):
        return None


@pytest.fixture
def running(monkeypatch):
    """Call a function as PySpark calls ``foreachBatch`` functions; returns the batch."""
    monkeypatch.setattr("pyspark.sql.session.SparkSession", lambda *_: None)
    monkeypatch.setattr("pyspark.sql.dataframe.DataFrame", lambda jdf, _: jdf)
    held, threads = HeldCode(), []

    def run(function):
        batch = JavaDataFrame()
        session = SimpleNamespace(sparkContext=None)
        call = ForeachBatchFunction(session, lambda df, _: function(held)).call
        threads.append(threading.Thread(target=call, args=(batch, 0)))
        threads[-1].start()
        assert held.there.acquire(timeout=PATIENCE_SECONDS)
        return batch

    run.held, run.threads = held, threads
    yield run
    held.free.set()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)


def code(filename, body):
    """The function ``f(inner)`` of a file with that name; its body starts in line 2."""
    names = {}
    exec(compile(f"def f(inner):\n    {body}\n", filename, "exec"), names)
    return names["f"]


def through(*files):
    """Code that calls through these files, the outermost first, and blocks in the last."""
    functions = [code(file, "return inner()") for file in reversed(files)]

    def enter(held):
        step = held.wait
        for function in functions:
            step = lambda function=function, inner=step: function(inner)
        return step()

    return enter


def stop_at(held):
    held.wait()


def test_each_batch_is_found_with_its_line_while_it_runs(running):
    assert list(foreach_batch_calls()) == []
    batches = [running(stop_at), running(stop_at)]
    calls = list(foreach_batch_calls())

    assert {call.jdf for call in calls} == set(batches)
    assert {call.line.rpartition(":")[0] for call in calls} == {__file__}
    assert all(call.line.endswith("in wait") for call in calls)

    running.held.free.set()
    for thread in running.threads:
        thread.join(PATIENCE_SECONDS)
    assert list(foreach_batch_calls()) == []


@pytest.mark.parametrize(
    ("files", "line"),
    [
        ([JOB, f"{LIBRARY}/delta/tables.py", f"{LIBRARY}/requests/api.py"], JOB),
        ([JOB, "/jobs/etl/merge.py", f"{LIBRARY}/requests/api.py"], "/jobs/etl/merge.py"),
        # A job may be installed as a package.
        ([f"{LIBRARY}/etl/job.py"], ""),
        # spark-submit takes PySpark and Py4J from SPARK_HOME, not from site-packages.
        ([JOB, "/opt/spark/python/lib/py4j-0.10.9.9-src.zip/py4j/clientserver.py"], JOB),
        ([JOB, "/opt/spark/python/lib/pyspark.zip/pyspark/sql/readwriter.py"], JOB),
        ([JOB, "/opt/spark/python/pyspark/sql/readwriter.py"], JOB),
        ([JOB, "/databricks/spark/python/pyspark/sql/connect/client/core.py"], JOB),
    ],
)
def test_innermost_line_of_the_user_is_reported_below_frames_of_libraries(
    running, monkeypatch, files, line
):
    # This file counts as a library, so that its helpers are not user code.
    ours = (LIBRARY, __file__, *map(sysconfig.get_path, ("stdlib", "platstdlib")))
    monkeypatch.setattr("querypulse.listener.python_frames._LIBRARIES", ours)
    running(through(*files))
    (call,) = foreach_batch_calls()

    assert call.line == f"{line}:2 in f" if line else call.line


def answer_of(connection):
    """Read as HTTP clients and Py4J do."""
    return connection.makefile("rb").read(1)


def ask_a_service(connection):
    answer_of(connection)


def ask_spark(connection):
    ask = code("/opt/spark/python/lib/py4j-0.10.9.9-src.zip/py4j/clientserver.py", "return inner()")
    ask(lambda: answer_of(connection))


def read_by_itself(connection):
    connection.recv(1)


def wait_for_a_process(connection):
    subprocess.Popen(["cat"], stdin=connection.fileno(), stdout=subprocess.DEVNULL).wait()


def wait_for_output(connection):
    subprocess.run(["cat"], stdin=connection.fileno(), capture_output=True)


def wait_for_a_loop(connection):
    """A thread of its executor may run jobs."""

    async def read():
        await asyncio.get_running_loop().run_in_executor(None, answer_of, connection)

    asyncio.run(read())


def wait_for_an_event(connection):
    """Another thread may set it, after its jobs."""
    over = threading.Event()
    threading.Thread(target=lambda: answer_of(connection) or over.set()).start()
    over.wait()


def wait_for_a_pool(connection):
    with ThreadPool(1) as pool:
        pool.map(answer_of, [connection])


@pytest.mark.parametrize(
    ("wait", "file", "waits_outside"),
    [
        (ask_a_service, "/socket.py", True),
        (wait_for_a_process, "/subprocess.py", True),
        (wait_for_output, "/selectors.py", True),
        (wait_for_a_loop, "/selectors.py", False),
        (ask_spark, "/socket.py", False),
        (read_by_itself, __file__, False),
        (wait_for_an_event, "/threading.py", False),
        (wait_for_a_pool, "/threading.py", False),
    ],
)
def test_call_waits_outside_in_a_connection_or_process_but_not_for_threads_or_spark(
    running, wait, file, waits_outside
):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        running(lambda held: held.there.release() or wait(ours))
        ident = running.threads[-1].ident
        until(lambda: stack_of(ident)[0][0].co_filename.endswith(file), "it waits")
        (call,) = foreach_batch_calls()
        theirs.shutdown(socket.SHUT_RDWR)
        running.threads[-1].join(PATIENCE_SECONDS)

    assert call.waits_outside is waits_outside


def test_user_function_named_call_is_not_a_batch_whatever_its_argument():
    held = HeldCode()

    def call(jdf):
        held.wait()

    other = threading.Thread(target=call, args=(JavaDataFrame(),))
    other.start()
    assert held.there.acquire(timeout=PATIENCE_SECONDS)
    found = list(foreach_batch_calls())
    held.free.set()
    other.join(PATIENCE_SECONDS)

    assert found == []


COLLECTING = """
import gc, threading
from querypulse.listener.python_frames import stack_of

gc.disable()
for _ in range(1000):
    here = threading.local()
    here.itself = here
del here
free = threading.Event()
threads = [threading.Thread(target=free.wait) for _ in range(200)]
for thread in threads:
    thread.start()
# Due when half of the frames are made.
gc.set_threshold(gc.get_count()[0] + 100)
gc.enable()
assert stack_of(threading.get_ident())
free.set()
"""


def test_garbage_collection_during_frame_inspection_does_not_deadlock():
    done = subprocess.run([sys.executable, "-c", COLLECTING], timeout=PATIENCE_SECONDS, check=False)

    assert done.returncode == 0


@pytest.mark.parametrize("collects", [True, False])
def test_garbage_collection_setting_is_restored(collects):
    assert gc.isenabled()
    if not collects:
        gc.disable()
    try:
        assert stack_of(threading.get_ident())
        assert gc.isenabled() is collects
    finally:
        gc.enable()


BUSY = """
import gc, sys, threading
from concurrent.futures import ThreadPoolExecutor
from querypulse.listener.python_frames import foreach_batch_calls, is_running, main_thread

enough = threading.Event()
exec(compile("def call(jdf, function): return function()", "/pyspark/sql/utils.py", "exec"))


class Released:
    def __del__(self):
        work(2)


def work(depth):
    released = [Released()] if depth == 20 else []
    released.append(released)
    return work(depth - 1) if depth else sorted(range(20), key=lambda value: -value)


def lines():
    for number in range(4):
        yield work(number)


def short():
    try:
        rest = lines()
        next(rest)
        work(30)
        raise ValueError
    except ValueError as error:
        last = error


def starts():
    while not enough.is_set():
        threads = [threading.Thread(target=call, args=(None, short)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def pools():
    while not enough.is_set():
        with ThreadPoolExecutor(4) as pool:
            call(None, lambda: list(pool.map(lambda _: short(), range(8))))


def inspects():
    for _ in range(LOOKS):
        main_thread(), is_running(main_thread.__code__), list(foreach_batch_calls())


sys.setswitchinterval(1e-6)
gc.set_threshold(50, 2, 2)
hosts = [threading.Thread(target=target) for target in (starts, starts, pools)]
ours = [threading.Thread(target=inspects) for _ in range(3)]
for thread in hosts + ours:
    thread.start()
for thread in ours:
    thread.join()
enough.set()
for thread in hosts:
    thread.join()
print("lives")
"""


@pytest.mark.nightly
def test_process_survives_inspections_of_threads_that_end():
    # Where Python code holds frames, CPython 3.11 mostly crashes within so many rounds.
    command = [sys.executable, "-X", "faulthandler", "-c", f"LOOKS = 10_000\n{BUSY}"]
    run = partial(subprocess.run, capture_output=True, text=True, check=False)
    done = run(command, timeout=8 * PATIENCE_SECONDS)

    assert (done.returncode, done.stdout) == (0, "lives\n"), done.stderr[:2000]


# -- the job's main thread ----------------------------------------------------------------------

PYSPARK = f"{LIBRARY}/pyspark/sql/streaming/query.py"
SOCKET = f"{LIBRARY}/py4j/java_gateway.py"
AWAITS = CodeLocation(PYSPARK, 221, "awaitTermination", "StreamingQuery")
OWN = CodeLocation(JOB, 41, "main")
OURS = CodeLocation(main_thread.__code__.co_filename, 7, "await_any_failure", "Sidecar")


@pytest.mark.parametrize(
    ("stack", "reported"),
    [
        (
            [CodeLocation(SOCKET, 9, "send", "Connection"), AWAITS, OWN],
            f"waits in StreamingQuery.awaitTermination(), job line {JOB}:41 in main",
        ),
        (
            [CodeLocation(SOCKET, 9, "send_command"), OWN],
            f"waits in send_command(), job line {JOB}:41 in main",
        ),
        ([OURS, OWN], f"waits in Sidecar.await_any_failure(), job line {JOB}:41 in main"),
        ([OWN, CodeLocation(JOB, 90, "<module>")], f"runs job line {JOB}:41 in main"),
        (
            [AWAITS, CodeLocation("<stdin>", 1, "<module>")],
            "waits in StreamingQuery.awaitTermination(), job line <stdin>:1 in <module>",
        ),
        ([AWAITS, CodeLocation("<frozen runpy>", 88, "_run_code")], ""),
        ([CodeLocation(f"{LIBRARY}/ipykernel/kernel.py", 3, "wait"), AWAITS], ""),
        ([], ""),
    ],
    ids=[
        "in spark",
        "in a function",
        "in querypulse",
        "in user code",
        "typed in",
        "no user code",
        "notebook",
        "empty",
    ],
)
def test_stack_names_the_call_and_the_job_line(stack, reported):
    assert waits_in(stack) == reported


def printed(tmp_path, script):
    """What a job prints."""
    job = tmp_path / "job.py"
    job.write_text(script)
    command = [sys.executable, "-I", str(job)]
    run = partial(subprocess.run, capture_output=True, text=True, check=True)
    return run(command, timeout=PATIENCE_SECONDS).stdout.replace(str(job), "job.py")


FOUND = """
import threading
from querypulse.listener.python_frames import main_thread
done = threading.Event()
def report():
    text = ''
    while not ('in main' in text and text.startswith('waits')): text = main_thread().text
    print(text); done.set()
threading.Thread(target=report).start()
def main():
    done.wait()
main()
"""
ENDED = """
import threading, time
from querypulse.listener.python_frames import main_thread
def report():
    while threading.main_thread().is_alive(): time.sleep(0.01)
    print(main_thread().text)
threading.Thread(target=report).start()
"""


def test_main_thread_is_found_from_another_thread(tmp_path):
    call = "Event.wait" if sys.version_info >= (3, 11) else "wait"

    assert printed(tmp_path, FOUND) == f"waits in {call}(), job line job.py:11 in main\n"
    assert printed(tmp_path, ENDED) == "has ended\n"


class Large:
    """An object that a job wants to free."""


class CallInJob:
    """Calls ``between``, then deletes an object and returns whether it is still alive."""

    def run(self, between):
        large = Large()
        held = weakref.ref(large)
        between()
        del large
        gc.collect()
        return held() is not None


def from_another_thread(function):
    results = []
    thread = threading.Thread(target=lambda: results.append(function()))
    thread.start()
    thread.join(PATIENCE_SECONDS)
    return results[0]


def test_finding_the_main_thread_keeps_no_deleted_object_alive():
    assert threading.current_thread() is threading.main_thread()
    results = []

    assert not CallInJob().run(lambda: results.append(from_another_thread(main_thread)))
    assert results[0].text


@pytest.mark.skipif(sys.version_info < (3, 11), reason="3.10 does not know a function's class")
def test_method_is_reported_with_the_class_that_defines_it(monkeypatch):
    monkeypatch.setattr("querypulse.listener.python_frames._OURS", (__file__,))

    def plain(between):
        return between()

    class Inner:
        def run(self, between):
            return between()

    def call(function):
        job = code(JOB, "return inner()")
        return job(partial(function, partial(from_another_thread, main_thread))).text

    assert call(Inner().run).startswith("waits in Inner.run(), job line /jobs/etl/job.py:2 in f")
    assert call(plain).startswith("waits in plain(), job line /jobs/etl/job.py:2 in f")


# -- CPU time ---------------------------------------------------------------------------------


def cpu_seconds_by_batch():
    return {call.jdf: call.cpu_seconds for call in foreach_batch_calls()}


def cpu_seconds():
    return sum(cpu_seconds_by_batch().values())


def in_the_call(work):
    work()


def in_executor(work):
    with ThreadPoolExecutor(1) as pool:
        list(pool.map(lambda _: work(), [0]))


def as_futures_complete(work):
    with ThreadPoolExecutor(2) as pool:
        for future in as_completed([pool.submit(work), pool.submit(int)]):
            future.result()


def behind_a_blocked_future(work):
    """Its pool goes on."""
    over = threading.Event()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(over.wait)
        pool.submit(work).add_done_callback(lambda _: over.set())
        first.result()


def at_the_end_of_an_executor(work):
    with ThreadPoolExecutor(1) as pool:
        pool.submit(work)


def in_thread_pool(work):
    with ThreadPool(1) as pool:
        pool.map(lambda _: work(), [0])


def in_thread(work):
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def in_process(work):
    work.held.wait()
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as child:
        work.ends.wait()
        child.kill()


CALLS = [
    in_the_call,
    in_executor,
    as_futures_complete,
    behind_a_blocked_future,
    at_the_end_of_an_executor,
    in_thread_pool,
    in_thread,
    in_process,
]


class Work:
    """Waits until the code is no longer held, and then uses CPU time until it ends."""

    def __init__(self, held):
        self.held, self.ends = held, threading.Event()

    def __call__(self):
        self.held.wait()
        while not self.ends.is_set():
            sum(range(1000))


@pytest.fixture
def work(running):
    work = Work(running.held)
    yield work
    work.ends.set()


linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux counts it")


@linux
@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)
def test_work_of_a_call_and_of_what_it_waits_for_is_cpu_time_and_a_wait_is_none(
    running, work, call
):
    running(lambda _: call(work))
    until(lambda: len({cpu_seconds() for _ in range(20)}) == 1, "it waits, and uses none")
    before = cpu_seconds()
    running.held.free.set()

    until(lambda: cpu_seconds() >= before + 0.05, "it uses CPU time")


@linux
def test_work_of_a_pool_that_a_call_does_not_wait_for_is_none_of_its_cpu_time(running, work):
    deadlock = Future()
    hung = running(lambda held: held.there.release() or deadlock.result())
    working = running(lambda _: in_executor(work))
    with ThreadPoolExecutor(1) as other:
        other.submit(work)
        before = cpu_seconds_by_batch()
        running.held.free.set()
        until(lambda: cpu_seconds_by_batch()[working] >= before[working] + 0.2, "one works")
        after = cpu_seconds_by_batch()
        deadlock.set_result(None)
        work.ends.set()

    # The thread that hangs may not have reached its wait before.
    assert after[hung] < before[hung] + 0.05


@linux
def test_thread_whose_name_only_begins_like_that_of_the_awaited_one_works_for_others(running, work):
    over = threading.Event()
    loader = threading.Thread(target=over.wait, args=(PATIENCE_SECONDS,), name="etl_loader")
    clock = threading.Thread(target=work, name="etl_clock")
    for thread in (loader, clock):
        thread.start()
    hung = running(lambda held: held.there.release() or loader.join())
    working = running(lambda held: held.there.release() or clock.join())
    until(lambda: cpu_seconds() == cpu_seconds(), "both wait")
    before = cpu_seconds_by_batch()
    running.held.free.set()
    until(lambda: cpu_seconds_by_batch()[working] >= before[working] + 0.2, "one works")
    after = cpu_seconds_by_batch()
    over.set()
    work.ends.set()

    # The thread that hangs may not have reached its wait before.
    assert after[hung] < before[hung] + 0.05
