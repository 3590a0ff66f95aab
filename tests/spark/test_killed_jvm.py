"""What is reported when the JVM of a driver is killed, and a signal ends Python behind it.

That is what YARN does: its NodeManager notices that the JVM has ended, sends SIGTERM to the process
group 80 to 330 ms later, and SIGKILL 250 ms after that. ``tests/connectors/test_yarn.py`` runs a real YARN.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

import pyspark
import pytest
from support.driver import Driver
from support.pages import PageRecorder
from support.patience import until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

DOWN = ("StreamingDriverDown", "*")
SUBMIT = (str(Path(pyspark.__file__).parent / "bin" / "spark-submit"),)
LAYOUTS = {"the parent": SUBMIT, "a child": (sys.executable, "-Iu")}
"""Whose process the JVM is, seen from Python: in YARN's cluster mode it is the parent."""
ATTACHED = """
from querypulse.sidecar import session
session.ANNOUNCE_SECONDS = 120.0
say(f"python {os.getpid()}")
sidecar = attach(spark, http_port=-1, webhook_url=os.environ["PAGES"])
for name in ("bronze", "silver"):
    start(name)
until_commits(sidecar, "bronze", "silver")
say("waits")
"""
# Python acts on a signal between two of its instructions, wherever it waits.
WAITS = {
    "for us": "sidecar.await_any_failure()",
    "for Spark": "spark.streams.awaitAnyTermination()",
    "for nothing": "time.sleep(3600)",
}


class Group:
    """A driver and its JVM in one process group, as in a container."""

    def __init__(self, layout, waits, folder, pages):
        environment = {
            "PAGES": pages.url,
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONUNBUFFERED": "1",
        }
        script = ATTACHED + WAITS[waits]
        self.driver = Driver(script, folder, command=LAYOUTS[layout], **environment)
        self._has_parent = layout == "the parent"

    def start(self):
        self.driver.wait_for_line("waits")
        self.python = int(self.driver.line("python ").split()[1])
        children = Path(f"/proc/{self.python}/task/{self.python}/children")
        pid = self.driver.process.pid if self._has_parent else int(children.read_text().split()[0])
        self.jvm = pid

    def kill_jvm(self):
        """Kill the JVM, and wait until its parent could know that: then it has no socket any more."""
        os.kill(self.jvm, signal.SIGKILL)
        until(lambda: not is_alive(self.jvm), "the JVM has ended")

    def signal(self, number):
        with suppress(ProcessLookupError):
            os.killpg(self.driver.process.pid, number)

    def wait(self):
        until(lambda: not is_alive(self.python), "Python has ended")


def is_alive(pid):
    """Whether a process has a thread that runs, and so may have a socket; a zombie has none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return False
    state, threads = fields[0], int(fields[17])
    return threads > 1 or state != "Z"


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "waits",
    [
        pytest.param("for us"),
        pytest.param("for Spark", marks=pytest.mark.thorough),
        pytest.param("for nothing", marks=pytest.mark.thorough),
    ],
)
@pytest.mark.fault(
    "Ends and kills",
    "`kill -9` of the JVM, then SIGTERM to the process group, as YARN does",
    "`StreamingDriverDown` before Python ends",
)
def test_a_dead_jvm_is_reported_although_sigterm_follows(layout, waits, tmp_path):
    with PageRecorder() as pages:
        group = Group(layout, waits, tmp_path, pages)
        with group.driver:
            group.start()
            group.kill_jvm()
            group.signal(signal.SIGTERM)
            group.wait()

    assert [page.what for page in pages.pages] == [DOWN]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.fault(
    "Ends and kills",
    "SIGTERM to Python and its JVM at once, as a planned kill of a container",
    "Nothing is sent",
)
def test_a_signal_to_the_whole_group_is_planned(layout, tmp_path):
    with PageRecorder() as pages:
        group = Group(layout, "for us", tmp_path, pages)
        with group.driver:
            group.start()
            group.signal(signal.SIGTERM)
            group.wait()
            until(lambda: not is_alive(group.jvm), "the JVM has ended")

    assert pages.reported == []
