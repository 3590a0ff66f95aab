"""How a process ends: closed, terminated or crashed."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from support.patience import PATIENCE_SECONDS

from querypulse.alerting.alert import Alert
from querypulse.exporter.pages import Notice
from querypulse.listener.probe import Context
from querypulse.sidecar.runtime import end_of, notice_of

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
        (Context.SESSION_ENDED, None): Notice.STOPPED,
        (Context.SESSION_ENDED, ValueError): None,
        (STOPPED, None): None,
        (GONE, None): None,
        (GONE, KeyboardInterrupt): None,
        (RUNNING, ValueError): None,
        (stopped_by_application, ValueError): None,
    }

    assert {case: end_of(*case) for case in expected} == expected


def alert(severity="critical", **annotations):
    labels = {"alertname": "StreamingQueryFailed", "query": "gold", "severity": severity}
    return Alert(labels, annotations, 0.0)


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
from querypulse.sidecar.runtime import uncaught_exception

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
from querypulse.sidecar import session
session.ANNOUNCE_SECONDS = 60
registry = session.SIDECARS
class Open:
    closed = False
    def announce_termination(self):
        announce()
def announce():
    print("announced", flush=True)
class Context:
    pass
context = Context()
registry.remember(context, Open())
"""
ENDS = "registry.handle_termination()\nos.kill(os.getpid(), signal.SIGTERM)\ntime.sleep(60)\n"
SCRIPTS = {
    "the default action": (ENDS, -signal.SIGTERM, "announced\n"),
    "the main thread holds a lock of threading": (
        "threading._active_limbo_lock.acquire()\n" + ENDS, -signal.SIGTERM, "announced\n",
    ),
    "the announcement hangs": (
        "session.ANNOUNCE_SECONDS = 0.1\ndef announce():\n    time.sleep(60)\n" + ENDS, -signal.SIGTERM, "",
    ),
    "the announcement fails": (
        "def announce():\n    raise OSError('closed')\n" + ENDS, -signal.SIGTERM, "",
    ),
    "a handler of the application": (
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(4))\n" + ENDS, 4, "",
    ),
    "a later handler of the application calls what it found": (
        "registry.handle_termination()\nfound = signal.getsignal(signal.SIGTERM)\n"
        "def shut_down(*given):\n    found(*given)\n    sys.exit(6)\n"
        "signal.signal(signal.SIGTERM, shut_down)\n" + ENDS, 6, "announced\n",
    ),
    "SIGTERM is ignored": (
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nregistry.handle_termination()\n"
        "os.kill(os.getpid(), signal.SIGTERM)\nsys.exit(5)", 5, "",
    ),
    "attached in another thread": (
        "thread = threading.Thread(target=registry.handle_termination)\nthread.start(); thread.join()\n"
        "os.kill(os.getpid(), signal.SIGTERM)\ntime.sleep(60)", -signal.SIGTERM, "",
    ),
    "closed before": (
        "registry.handle_termination()\nregistry._sidecars.clear()\n" + ENDS, -signal.SIGTERM, "",
    ),
    "a forked child": (
        "registry.handle_termination()\nfor _ in range(20):\n    child = os.fork()\n    if not child:\n"
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
