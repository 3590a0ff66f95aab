"""A Python ``foreachBatch`` that hangs is found, and the user's line with it."""

from __future__ import annotations

import gc
import subprocess
import sys
import sysconfig
import threading

import pytest
from pyspark.sql.utils import ForeachBatchFunction

from querypulse.listener.python_frames import current_frames, foreach_batch_calls

PATIENCE_SECONDS = 10.0
LIBRARY = sysconfig.get_path("purelib")
JOB = "/jobs/etl/job.py"


class Held:
    """Where the user's code stands until it is let go."""

    def __init__(self):
        self.there = threading.Semaphore(0)
        self.free = threading.Event()

    def wait(self):
        self.there.release()
        assert self.free.wait(PATIENCE_SECONDS)


class Frame:
    """The JVM DataFrame of one batch."""

    def sparkSession(self):
        return None


@pytest.fixture
def running(monkeypatch):
    """Calls a function as PySpark calls ``foreachBatch`` functions; the answer is the batch."""
    monkeypatch.setattr("pyspark.sql.session.SparkSession", lambda *_: None)
    monkeypatch.setattr("pyspark.sql.dataframe.DataFrame", lambda jdf, _: jdf)
    held, threads = Held(), []

    def run(function):
        batch = Frame()
        session = type("Session", (), {"sparkContext": None})()
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
    """The function ``f(inner)`` from a file of that name; its body begins in line 2."""
    names = {}
    exec(compile(f"def f(inner):\n    {body}\n", filename, "exec"), names)
    return names["f"]


def through(*files):
    """Code that goes through these files, the outermost first, and stands still in the last."""
    functions = [code(file, "return inner()") for file in reversed(files)]

    def enter(held):
        step = held.wait
        for function in functions:
            step = lambda function=function, inner=step: function(inner)
        return step()

    return enter


def lines(calls):
    return [line for _, line in calls]


def stop_at(held):
    held.wait()


def test_where_nothing_runs_nothing_is_found():
    assert list(foreach_batch_calls()) == []


def test_a_call_in_progress_is_found_with_its_batch_and_its_line(running):
    batch = running(stop_at)
    ((found, line),) = foreach_batch_calls()

    assert found is batch
    file, _, where = line.rpartition(":")
    assert file == __file__
    assert where.endswith("in wait")


def test_waiting_in_the_standard_library_is_told_as_the_users_line(running):
    """The innermost frame is threading's; nobody can do anything with that."""
    running(stop_at)

    assert "threading.py" not in lines(foreach_batch_calls())[0]


def test_two_calls_at_once_are_told_apart(running):
    batches = [running(stop_at), running(stop_at)]
    found = [batch for batch, _ in foreach_batch_calls()]

    assert sorted(map(id, found)) == sorted(map(id, batches))


def test_a_call_that_is_over_is_found_no_more(running):
    running(stop_at)
    running.held.free.set()
    running.threads[0].join(PATIENCE_SECONDS)

    assert list(foreach_batch_calls()) == []


def inner_most(monkeypatch):
    """The helpers of these tests stand for a library's waiting."""
    monkeypatch.setattr(
        "querypulse.listener.python_frames._LIBRARIES", (LIBRARY, __file__, *stdlib())
    )


def stdlib():
    return (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))


def test_the_users_line_is_told_through_a_librarys_frames(running, monkeypatch):
    inner_most(monkeypatch)
    running(through(JOB, f"{LIBRARY}/delta/tables.py", f"{LIBRARY}/requests/api.py"))

    assert lines(foreach_batch_calls()) == [f"{JOB}:2 in f"]


def test_of_the_users_own_lines_the_innermost_is_told(running, monkeypatch):
    inner_most(monkeypatch)
    running(through(JOB, "/jobs/etl/merge.py", f"{LIBRARY}/requests/api.py"))

    assert lines(foreach_batch_calls()) == ["/jobs/etl/merge.py:2 in f"]


def test_a_job_installed_as_a_package_still_has_a_line(running, monkeypatch):
    inner_most(monkeypatch)
    running(through(f"{LIBRARY}/etl/job.py"))

    assert lines(foreach_batch_calls())[0]


@pytest.mark.parametrize(
    "plumbing",
    [
        "/opt/spark/python/lib/py4j-0.10.9.9-src.zip/py4j/clientserver.py",
        "/opt/spark/python/lib/pyspark.zip/pyspark/sql/readwriter.py",
        "/opt/spark/python/pyspark/sql/readwriter.py",
        "/databricks/spark/python/pyspark/sql/connect/client/core.py",
    ],
)
def test_pyspark_is_never_the_users_code_wherever_it_lies(running, monkeypatch, plumbing):
    """spark-submit takes PySpark and Py4J from SPARK_HOME, not from site-packages."""
    inner_most(monkeypatch)
    running(through(JOB, plumbing))

    assert lines(foreach_batch_calls()) == [f"{JOB}:2 in f"]


def test_a_function_that_happens_to_be_named_call_is_none(running):
    held = running.held

    def call(_frame):
        held.wait()

    other = threading.Thread(target=call, args=(Frame(),))
    other.start()
    assert held.there.acquire(timeout=PATIENCE_SECONDS)
    found = list(foreach_batch_calls())
    held.free.set()
    other.join(PATIENCE_SECONDS)

    assert found == []


COLLECTING = """
import gc, threading
from querypulse.listener.python_frames import current_frames

gc.disable()
for _ in range(1000):
    here = threading.local()
    here.itself = here
del here
free = threading.Event()
threads = [threading.Thread(target=free.wait) for _ in range(20)]
for thread in threads:
    thread.start()
# Due when half of the frames are made.
gc.set_threshold(gc.get_count()[0] + 10)
gc.enable()
assert len(current_frames()) == 21
free.set()
"""


def test_the_interpreter_does_not_freeze_when_garbage_is_due_while_threads_are_looked_at():
    done = subprocess.run([sys.executable, "-c", COLLECTING], timeout=60, check=False)

    assert done.returncode == 0


@pytest.mark.parametrize("collects", [True, False])
def test_the_hosts_garbage_is_collected_as_before_by_those_who_want_it(collects):
    assert gc.isenabled()
    if not collects:
        gc.disable()
    try:
        assert threading.get_ident() in current_frames()
        assert gc.isenabled() is collects
    finally:
        gc.enable()
