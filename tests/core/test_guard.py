"""The guard contains errors, which our loggers log without secrets, and our threads go on."""

from __future__ import annotations

import logging
import os
import threading

import pytest
import requests
from support.patience import NEVER, PATIENCE_SECONDS, Clock, until
from support.planted import HUNTER, PLANTED
from urllib3.connectionpool import HTTPConnectionPool
from urllib3.exceptions import MaxRetryError

from querypulse.core import files
from querypulse.core.files import HANGS_SECONDS, FileLoop, HangDetector
from querypulse.core.guard import BURST_SECONDS, Guard, Problem
from querypulse.core.redaction import WITHHELD, RedactedLog, Redactor
from querypulse.core.threads import PAUSE_AFTER_ERROR_SECONDS, Loop

log = logging.getLogger("querypulse")


@pytest.fixture
def logged(caplog):
    """Everything logged so far, as a handler writes it."""
    formatter = logging.Formatter()
    return lambda: "\n".join(formatter.format(record) for record in caplog.records)


@pytest.fixture
def redacted_log():
    """Put a filter on our logger, as a sidecar does."""
    filters = []

    def put(redactor):
        filters.append(RedactedLog(redactor if callable(redactor) else redactor.text))
        log.addFilter(filters[-1])

    yield put
    for entry in filters:
        log.removeFilter(entry)


def failing(text):
    def fail():
        try:
            {}[text]
        except KeyError as error:
            raise RuntimeError(f"while at it: {text}") from error

    return fail


@pytest.mark.contains_errors
def test_contained_error_is_logged_with_its_traceback_and_without_secrets(logged, caplog):
    logs = {}
    for secret in PLANTED:
        caplog.clear()
        Guard().attempt("here", failing(secret.text))
        logs[secret] = logged()

    assert [secret.kind for secret, log in logs.items() if secret.secret in log] == []
    for words in ("contained error in here: RuntimeError", "in fail", "KeyError"):
        assert [secret.kind for secret, log in logs.items() if words not in log] == []


@pytest.mark.contains_errors
def test_error_that_cannot_be_printed_is_still_reported(logged):
    class Odd(Exception):
        def __str__(self):
            raise ValueError(HUNTER)

    def fail():
        raise Odd

    Guard().attempt("here", fail)

    assert "contained error in here: Odd" in logged()
    assert HUNTER not in logged()


@pytest.mark.contains_errors
def test_url_in_an_error_of_the_http_client_is_not_logged(logged):
    url = f"/hook/{HUNTER}"
    pool = HTTPConnectionPool("127.0.0.1", 1)

    def with_urllib3():
        raise MaxRetryError(pool, url, OSError("refused"))

    def with_requests():
        requests.get(f"http://127.0.0.1:1{url}", timeout=1)

    Guard().attempt("urllib3", with_urllib3)
    Guard().attempt("requests", with_requests)

    assert HUNTER not in logged()
    assert logged().count("Max retries exceeded with url: [redacted]") >= 2


def test_traceback_in_our_log_is_redacted(redacted_log, logged):
    redacted_log(Redactor([HUNTER]))
    try:
        failing(HUNTER)()
    except RuntimeError:
        log.exception("querypulse: it happened")

    assert HUNTER not in logged()
    assert "it happened" in logged()
    assert "RuntimeError: while at it: [redacted]" in logged()


@pytest.mark.parametrize("arguments", [("a", "b"), ("a", 3, 4)])
def test_record_that_cannot_be_formatted_is_withheld(redacted_log, arguments):
    redacted_log(Redactor())
    record = log.makeRecord("querypulse", logging.ERROR, __file__, 1, "%s of %d", arguments, None)

    assert log.filter(record)
    assert record.getMessage() == WITHHELD
    assert "a" not in record.args


def test_record_whose_redaction_fails_is_withheld(redacted_log, logged):
    def fail(_):
        raise ValueError(HUNTER)

    redacted_log(fail)
    log.warning("querypulse: %s", HUNTER)

    assert logged().endswith(WITHHELD)
    assert HUNTER not in logged()


def test_problem_is_logged_when_it_is_new(caplog):
    problem = Problem("querypulse: %s was not taken: %s", "heartbeat")
    for text in ("", "refused", "refused", "silent", "", "silent"):
        problem.note(text)
        assert problem.text == text

    assert [record.getMessage() for record in caplog.records] == [
        f"querypulse: heartbeat was not taken: {text}" for text in ("refused", "silent", "silent")
    ]


def fail():
    raise ValueError("no")


@pytest.mark.contains_errors
def test_contained_errors_give_the_default_and_are_counted_by_place():
    guard = Guard()
    assert guard.attempt("here", fail) is None
    assert guard.attempt("here", fail, default=7) == 7
    guard.attempt("there", fail)

    assert guard.errors == {"here": 2, "there": 1}


@pytest.mark.contains_errors
def test_burst_of_errors_is_logged_once_and_the_next_one_again(monkeypatch, caplog):
    clock = Clock(5000.0)
    monkeypatch.setattr("querypulse.core.guard.time.monotonic", clock)
    guard = Guard()
    for seconds in (0.0, 1.0, BURST_SECONDS - 2):
        clock.now += seconds
        guard.attempt("here", fail)
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    guard.attempt("there", fail)
    clock.now += BURST_SECONDS
    guard.attempt("here", fail)

    assert len(caplog.records) == 3
    assert "here" in caplog.records[-1].getMessage()
    assert "ValueError: no" in caplog.records[-1].getMessage()


@pytest.mark.parametrize("end", [KeyboardInterrupt, SystemExit])
def test_exit_exceptions_pass_the_guard(end):
    def leave():
        raise end

    guard = Guard()
    with pytest.raises(end):
        guard.attempt("here", leave)
    assert guard.errors == {}


# -- threads --------------------------------------------------------------------------------------


@pytest.fixture
def loop():
    """Start loops, and stop them at the end."""
    started = []

    def start(step, name="test", **options):
        started.append(Loop(name, step, Guard(), **options))
        started[-1].start()
        return started[-1]

    yield start
    for ticking in started:
        ticking.stop()
        assert ticking.join(PATIENCE_SECONDS)


class Steps:
    """A step that counts its calls, and may raise or block."""

    def __init__(self, *, broken=False):
        self.calls = 0
        self.threads = set()
        self.broken = broken
        self.free = threading.Event()
        self.free.set()

    def __call__(self):
        self.calls += 1
        self.threads.add(threading.current_thread())
        assert self.free.wait(PATIENCE_SECONDS)
        if self.broken:
            raise RuntimeError("broken step")

    def wait_for(self, count):
        until(lambda: self.calls >= count, f"step {count}")


def test_loop_repeats_its_step_in_one_daemon_thread(loop):
    steps = Steps()
    ticking = loop(steps, "again")
    ticking.start()
    steps.wait_for(3)

    (thread,) = steps.threads
    assert (thread.name, thread.daemon) == ("querypulse-again", True)


def test_stopped_loop_runs_no_further_step(loop):
    steps = Steps()
    ticking = loop(steps)
    steps.wait_for(1)
    ticking.stop()
    assert ticking.join(PATIENCE_SECONDS)
    count = steps.calls
    ticking.start()

    assert steps.calls == count
    assert not steps.threads.pop().is_alive()


def test_stopped_loop_ends_the_pause_of_its_step(loop):
    pause = threading.Event()
    ticking = loop(pause.wait, wake=pause.set)
    ticking.stop()

    assert ticking.join(PATIENCE_SECONDS)


class Pauses(threading.Event):
    """Never pauses, but keeps for how long it should."""

    def __init__(self):
        super().__init__()
        self.seconds = []

    def wait(self, timeout=None):
        self.seconds.append(timeout)
        return self.is_set()


@pytest.mark.contains_errors
def test_failing_step_neither_ends_the_loop_nor_spins():
    guard, steps, pauses = Guard(), Steps(broken=True), Pauses()
    ticking = Loop("worker", steps, guard)
    ticking.stopping = pauses
    ticking.start()
    steps.wait_for(3)
    ticking.stop()
    assert ticking.join(PATIENCE_SECONDS)

    assert guard.errors == {"worker": steps.calls}
    assert pauses.seconds == [PAUSE_AFTER_ERROR_SECONDS] * steps.calls


def test_forked_child_does_not_wait_for_the_parents_thread(loop, monkeypatch):
    steps = Steps()
    steps.free.clear()
    ticking = loop(steps)
    steps.wait_for(1)
    with monkeypatch.context() as child:
        child.setattr(os, "getpid", lambda: -1)
        assert ticking.join(NEVER)
    steps.free.set()


def test_final_action_runs_once_in_the_loops_own_thread(loop):
    steps, runs = Steps(), []
    ticking = loop(steps, last=lambda: runs.append(threading.current_thread()))
    steps.wait_for(2)
    assert runs == []
    ticking.stop()
    assert ticking.join(PATIENCE_SECONDS)

    assert runs == list(steps.threads)


def test_work_that_takes_long_is_a_problem_until_it_returns():
    clock = Clock(100.0)
    detector = HangDetector(clock)
    with detector:
        clock.now += HANGS_SECONDS
        assert detector.problem == ""
        clock.now += 2.0
        assert detector.problem == f"no answer for {HANGS_SECONDS + 2.0:.0f} s"

    assert detector.problem == ""


def test_hanging_read_is_reported_and_does_not_delay_the_end(monkeypatch):
    monkeypatch.setattr(files, "HANGS_SECONDS", 0.05)
    free = threading.Event()
    loop = FileLoop("test", lambda: free.wait(PATIENCE_SECONDS), 1.0, Guard())
    loop.start()
    until(lambda: loop.problem.startswith("no answer for "), "it is reported")
    loop.end()
    assert loop.problem, "the end has waited for the read"
    free.set()

    until(lambda: not loop.problem, "the problem is gone")


@pytest.mark.contains_errors
def test_read_that_fails_is_tried_again():
    guard, reads = Guard(), []

    def fail():
        reads.append(1)
        raise OSError("gone")

    loop = FileLoop("test", fail, 0.01, guard)
    loop.start()
    until(lambda: len(reads) > 2, "it is read again")
    loop.end()

    assert guard.errors["test"] > 2
