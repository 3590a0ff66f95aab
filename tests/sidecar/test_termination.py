"""SIGTERM with its default action is announced, and then ends the process as it would without us."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

HEAD = """
import os, signal, sys, threading, time
from querypulse.sidecar.session import SIDECARS as registry
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
    "the announcement hangs": ("def announce():\n    time.sleep(60)\n" + ENDS, -signal.SIGTERM, ""),
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
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert (done.returncode, done.stdout) == (code, printed), done.stderr
