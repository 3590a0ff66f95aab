"""How a process ends: closed, terminated or crashed."""

from __future__ import annotations

import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest
from support.patience import PATIENCE_SECONDS
from support.rules.driver import SCRIPT_ENDED, SCRIPT_FAILED
from support.rules.stories import AVAILABLE_NOW, three_queries
from support.story import CONFLICT, Story, policy, run

from querypulse.alerting.alert import Alert
from querypulse.alerting.evaluate import evaluate
from querypulse.alerting.incidents.lifecycle import Evaluated
from querypulse.exporter.pages import Notice
from querypulse.listener.mailbox import ProgramEnd
from querypulse.listener.probe_report import Context
from querypulse.sidecar.failure import QueryFailure
from querypulse.sidecar.program import program_end
from querypulse.sidecar.runtime import end_as_announced, end_of, end_of_program, notice_of
from querypulse.sidecar.termination import Termination

RUNNING, STOPPED, GONE = Context.RUNNING, Context.STOPPED, Context.JVM_GONE


def test_context_and_exception_decide_the_end_of_a_process():
    stopped_by_application, terminated = Context.STOPPED_BY_APPLICATION, Context.TERMINATED
    expected = {
        (RUNNING, None): Notice.STOPPED,
        (stopped_by_application, None): Notice.STOPPED,
        (terminated, None): Notice.TERMINATED,
        (RUNNING, KeyboardInterrupt): Notice.TERMINATED,
        (stopped_by_application, KeyboardInterrupt): Notice.TERMINATED,
        # Python raises this when the JVM goes away first.
        (terminated, ConnectionRefusedError): Notice.TERMINATED,
        # The queries that the session has taken with it have failed, and say so.
        (Context.SESSION_ENDED, None): None,
        (Context.SESSION_ENDED, ValueError): None,
        (STOPPED, None): None,
        (GONE, None): None,
        (GONE, KeyboardInterrupt): None,
        (RUNNING, ValueError): None,
        (stopped_by_application, ValueError): None,
    }

    assert {case: end_of(*case) for case in expected} == expected


@pytest.mark.parametrize(
    ("context", "uncaught", "until", "notice"),
    [
        (GONE, None, 700, Notice.TERMINATED),
        (GONE, None, 50, None),
        (GONE, None, None, None),
        (GONE, QueryFailure, 700, Notice.TERMINATED),
        (GONE, ConnectionRefusedError, 700, None),
        (RUNNING, ValueError, 700, None),
        (STOPPED, None, 700, None),
        (Context.SESSION_ENDED, None, 700, None),
    ],
)
def test_announced_end_is_only_that_of_the_jvm(context, uncaught, until, notice):
    story = three_queries().probe(at=101, context=context)
    story = story if until is None else story.expect_end(until=until)

    assert end_as_announced(story.snapshot(102), uncaught) is notice


@pytest.mark.parametrize(
    ("end", "program", "alerts", "notice"),
    [
        (Notice.STOPPED, None, "running", Notice.STOPPED),
        (Notice.TERMINATED, None, "running", Notice.TERMINATED),
        (Notice.STOPPED, SCRIPT_ENDED, "completed", Notice.STOPPED),
        # Spark still lists idle queries as active after the application has stopped it.
        (Notice.STOPPED, SCRIPT_ENDED, "stopped", Notice.STOPPED),
        (Notice.STOPPED, SCRIPT_ENDED, "running", Notice.ENDED),
        (None, SCRIPT_FAILED, "running", None),
        (Notice.STOPPED, SCRIPT_ENDED, "expected", None),
        # A failure that was reported explains it, and is as bad.
        (Notice.STOPPED, SCRIPT_ENDED, "failed", None),
    ],
)
def test_an_end_that_nobody_announced_is_none_as_intended(end, program, alerts, notice):
    story = three_queries()
    if alerts == "completed":
        story = Story().started(at=0).probe(run(trigger=AVAILABLE_NOW, batch=0), at=1).ended(at=2)
    elif alerts == "stopped":
        story = story.probe(*map(run, "abc"), at=101, context=Context.STOPPED_BY_APPLICATION)
    elif alerts == "failed":
        story = story.ended(at=101, exception=CONFLICT)
    allowed = policy(program=program, expected=["b"] if alerts == "expected" else [])
    snapshot = story.snapshot(102)
    evaluated = Evaluated(snapshot, evaluate(snapshot, 102, allowed), ())

    assert end_of_program(end, evaluated, allowed) is notice


@pytest.fixture
def ended_with(monkeypatch):
    """How the main program ends, in a process that is no test."""
    monkeypatch.delitem(sys.modules, "pytest")
    monkeypatch.delitem(sys.modules, "IPython", raising=False)

    def end(error=None, *, handles_signals=False):
        monkeypatch.setattr(sys, "last_type", type(error) if error else None, raising=False)
        monkeypatch.setattr(sys, "last_value", error, raising=False)
        return program_end(handles_signals=handles_signals)

    return end


class Unprintable(Exception):
    def __str__(self):
        raise RuntimeError("broken")


def test_an_exception_is_how_the_main_program_ended(ended_with):
    expected = {
        "ValueError: negative amount": ValueError("negative amount\nsecond line"),
        "KeyError: 'a'": KeyError("a"),
        "RuntimeError": RuntimeError(),
        "Unprintable": Unprintable(),
        "OSError: password=[redacted]": OSError("password=hunter2hunter2"),
    }

    for line, error in expected.items():
        assert ended_with(error) == ProgramEnd(
            f"the main program ended with {line}", has_failed=True
        )


def test_an_end_without_an_exception_may_be_meant_where_the_application_handles_sigterm(ended_with):
    assert ended_with() == ProgramEnd("the main program ended")
    assert ended_with(handles_signals=True).may_be_meant


class StreamingQueryException(Exception):
    """As PySpark names it, in two modules."""


def test_a_failure_that_was_reported_explains_the_end(ended_with):
    assert ended_with(StreamingQueryException("a failed")).is_explained
    assert ended_with(QueryFailure("a", "failed")).is_explained
    assert program_end(handles_signals=False, is_explained=True).is_explained


def test_an_interrupt_and_a_notebook_are_no_end_to_report(ended_with, monkeypatch):
    assert ended_with(KeyboardInterrupt()) is None
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=object))
    assert ended_with(ValueError()) is None


def test_a_test_runner_never_has_failed(monkeypatch):
    """It leaves the exception of each failed test where the interpreter leaves that of a script."""
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    monkeypatch.setattr(sys, "last_type", ValueError, raising=False)

    assert program_end(handles_signals=False) == ProgramEnd(
        "the main program ended", may_be_meant=True
    )


@pytest.mark.parametrize(
    ("number", "handler", "is_foreign"),
    [
        (signal.SIGTERM, lambda *_: None, True),
        (signal.SIGINT, lambda *_: None, True),
        (signal.SIGTERM, signal.SIG_IGN, False),
        (signal.SIGINT, signal.default_int_handler, False),
    ],
)
def test_a_handler_of_the_application_counts_although_it_is_taken_back(number, handler, is_foreign):
    termination = Termination()
    before = signal.getsignal(number)
    try:
        signal.signal(number, handler)
        termination.note_handlers()
    finally:
        signal.signal(number, before)
    termination.note_handlers()

    assert termination.handles_signals is is_foreign


def alert(severity="critical", **fields):
    labels = {"alertname": "StreamingQueryFailed", "query": "gold", "severity": severity}
    return Alert(labels, {}, 0.0, **fields)


@pytest.mark.parametrize(
    ("end", "alerts", "pending", "notice"),
    [
        (Notice.STOPPED, [], [], Notice.STOPPED),
        (Notice.STOPPED, [alert()], [0], Notice.STOPPED),
        (Notice.TERMINATED, [], [], Notice.TERMINATED),
        (None, [alert()], [0, 0], Notice.FAILED),
        (None, [alert()], [0, 1], None),
        (None, [alert()], [], None),
        (None, [alert("warning")], [0], None),
        (None, [alert(muted="silenced")], [0], None),
        (None, [], [0], None),
    ],
)
def test_crash_has_a_notice_only_if_the_receivers_know_of_a_failure(end, alerts, pending, notice):
    assert notice_of(end, alerts, pending) is notice


FORKS = """
import atexit, os, sys, threading
from querypulse.sidecar.program import uncaught_exception

for script in SCRIPTS:
    if os.fork() == 0:
        atexit.register(lambda: print(getattr(uncaught_exception(), "__name__", None), flush=True))
        exec(script)
        break
    _, status = os.wait()
else:
    print(os.WTERMSIG(status))
"""


@pytest.mark.slow
def test_uncaught_exception_is_known_at_exit():
    """Each script ends a process of its own, which is forked to save the imports."""
    expected = {
        "pass": None,
        "sys.exit(3)": None,
        "sys.exit('wrong')": None,
        "try:\n    1 / 0\nexcept ZeroDivisionError:\n    pass": None,
        "t = threading.Thread(target=lambda: 1 / 0); t.start(); t.join()": None,
        "1 / 0": "ZeroDivisionError",
        "raise KeyboardInterrupt": "KeyboardInterrupt",
        "try:\n    1 / 0\nfinally:\n    sys.exit(0)": None,
        "sys.ps1 = '> '\n1 / 0": None,
        f"os.kill(os.getpid(), {signal.SIGINT:d}); threading.Event().wait()": "KeyboardInterrupt",
    }
    command = [sys.executable, "-I", "-c", f"SCRIPTS = {list(expected)}\n{FORKS}"]
    ran = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=4 * PATIENCE_SECONDS
    )
    *names, signal_of_the_last = ran.stdout.splitlines()

    assert dict(zip(expected, names, strict=True)) == {
        script: str(name) for script, name in expected.items()
    }
    assert signal_of_the_last == f"{signal.SIGINT:d}"


# -- SIGTERM ----------------------------------------------------------------------------------

HEAD = """
import os, signal, sys, threading, time
from querypulse.sidecar import termination
termination.ANNOUNCE_SECONDS = 60
handler = termination.TERMINATION
lost = False
def report():
    print("reported", flush=True)
def announce():
    print("announced", flush=True)
def report_death():
    report()
    handler.remove(sidecar)
sidecar = object()
def start():
    handler.add(sidecar, termination.AtTermination(
        has_lost_jvm=lambda: lost, announce=lambda: announce(), report_death=report_death
    ))
"""
ENDS = "start()\nos.kill(os.getpid(), signal.SIGTERM)\ntime.sleep(60)\n"
SCRIPTS = {
    "the default action": (ENDS, -signal.SIGTERM, "announced\n"),
    "the main thread holds a lock of threading": (
        "threading._active_limbo_lock.acquire()\n" + ENDS, -signal.SIGTERM, "announced\n",
    ),
    "the announcement hangs": (
        "termination.ANNOUNCE_SECONDS = 0.1\ndef announce():\n    time.sleep(60)\n" + ENDS, -signal.SIGTERM, "",
    ),
    "the announcement fails": (
        "def announce():\n    raise OSError('closed')\n" + ENDS, -signal.SIGTERM, "",
    ),
    "a handler of the application": (
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(4))\n" + ENDS, 4, "",
    ),
    "a later handler of the application calls what it found": (
        "start()\nfound = signal.getsignal(signal.SIGTERM)\n"
        "def shut_down(*given):\n    found(*given)\n    sys.exit(6)\n"
        "signal.signal(signal.SIGTERM, shut_down)\n" + ENDS, 6, "announced\n",
    ),
    "SIGTERM is ignored": (
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nstart()\n"
        "os.kill(os.getpid(), signal.SIGTERM)\nsys.exit(5)", 5, "",
    ),
    "attached in another thread": (
        "thread = threading.Thread(target=start)\nthread.start(); thread.join()\n"
        "os.kill(os.getpid(), signal.SIGTERM)\ntime.sleep(60)", -signal.SIGTERM, "",
    ),
    "closed before": (
        "start()\nhandler.remove(sidecar)\nstart = lambda: None\n" + ENDS, -signal.SIGTERM, "",
    ),
    "the JVM is dead": ("lost = True\n" + ENDS, -signal.SIGTERM, "reported\n"),
    "the JVM is dead, and the main thread holds a lock that the report needs": (
        "lock = threading.Lock()\nlost = True\ndef report():\n    with lock:\n        print('reported', flush=True)\n"
        "lock.acquire()\nstart()\nos.kill(os.getpid(), signal.SIGTERM)\nlock.release()\ntime.sleep(60)",
        -signal.SIGTERM, "reported\n",
    ),
    "the JVM is dead, and SIGTERM comes again": (
        "lost = True\nreports, goes_on = threading.Event(), threading.Event()\n"
        "def report():\n    reports.set()\n    goes_on.wait()\n    print('reported', flush=True)\n"
        "start()\nos.kill(os.getpid(), signal.SIGTERM)\nreports.wait()\n"
        "os.kill(os.getpid(), signal.SIGTERM)\ngoes_on.set()\ntime.sleep(60)", -signal.SIGTERM, "reported\n",
    ),
    "the JVM is dead, and the report fails": (
        "lost = True\ndef report():\n    raise OSError('closed')\n" + ENDS, -signal.SIGTERM, "",
    ),
    "the JVM is dead, and the application ends by itself": (
        "lost = True\nreports = threading.Event()\ndef report():\n    reports.set()\n    time.sleep(60)\n"
        "start()\nos.kill(os.getpid(), signal.SIGTERM)\nreports.wait()\nsys.exit(1)", 1, "",
    ),
    "the JVM is dead, and a handler of the application calls what it found": (
        "lost = True\nstart()\nfound = signal.getsignal(signal.SIGTERM)\n"
        "done = threading.Event()\ndef report():\n    print('reported', flush=True)\n    done.set()\n"
        "def shut_down(*given):\n    found(*given)\n    done.wait()\n    sys.exit(6)\n"
        "signal.signal(signal.SIGTERM, shut_down)\n" + ENDS, 6, "reported\n",
    ),
    "a forked child": (
        "start()\nfor _ in range(20):\n    child = os.fork()\n    if not child:\n"
        "        time.sleep(30)\n        os._exit(8)\n"
        "    os.kill(child, signal.SIGTERM)\n    assert os.waitpid(child, 0)[1] == signal.SIGTERM\n"
        "os.kill(os.getpid(), signal.SIGTERM)\ntime.sleep(60)", -signal.SIGTERM, "announced\n",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", SCRIPTS)
def test_end_by_sigterm_is_announced_where_python_leaves_it_to_the_system(what):
    script, code, printed = SCRIPTS[what]
    command = [sys.executable, "-I", "-c", HEAD + script]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=2 * PATIENCE_SECONDS, check=False
    )

    assert (done.returncode, done.stdout) == (code, printed), done.stderr
