"""Every way a driver ends, on real processes: which alerts fire inside and outside.

``docs/ends.md`` shows this table.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pyspark
import pytest
from support.driver import Driver
from support.pages import PageRecorder
from support.queries import until
from support.watching import is_seen, watching

pytestmark = pytest.mark.spark

GONE_AFTER = 2.0
AT_MOST_SECONDS = 10.0
BEGAN = "began "
SUBMIT = (str(Path(pyspark.__file__).parent / "bin" / "spark-submit"),)
ATTACHED = """
sidecar = attach(spark, http_port=0, webhook_url=os.environ["PAGES"])
for name in ("bronze", "silver"):
    start(name)
until_commits(sidecar, "bronze", "silver")
say(sidecar.url)
while not os.path.exists(os.environ["GO"]):
    time.sleep(0.05)
"""
WAITS = "sidecar.await_any_failure()"
FAILS = """
def fail(batch, batch_id):
    raise ValueError("negative amount")
start("gold", fail)
try:
    sidecar.await_any_failure()
finally:
    say(f"began {time.monotonic()}")
"""
DIES = "spark._jsc.sc().stop()\n"
HANDLES = "signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\n"
FROZEN = """
os.kill(spark.sparkContext._gateway.proc.pid, signal.SIGSTOP)
time.sleep(6)
say(f"began {time.monotonic()}")
sys.exit(5)
"""
OUT_OF_MEMORY = """
held = []
try:
    while True:
        held.append(spark.sparkContext._gateway.new_array(spark._jvm.byte, 1 << 28))
finally:
    say(f"began {time.monotonic()}")
"""
PYTHON_OUT_OF_MEMORY = """
import resource
with open("/proc/self/statm") as now:
    used = int(now.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), resource.RLIM_INFINITY))
held = []
try:
    while True:
        held.append(bytearray(1 << 20))
except MemoryError:
    say(f"began {time.monotonic()}")
    raise
"""
EXITS_WITHOUT_MEMORY = "--driver-java-options -XX:+ExitOnOutOfMemoryError pyspark-shell"


class End(NamedTuple):
    """The last action of the driver, the signal it gets, and the expected outcome."""

    script: str
    code: int
    inside: tuple[tuple[str, str], ...]
    """Alerts that the driver itself sends."""
    outside: str
    """The state that ``querypulse watch`` reports: closed, terminated or gone."""
    number: signal.Signals | None = None
    to_jvm: bool = False
    to_both: bool = False
    command: tuple[str, ...] = (sys.executable, "-Iu")
    submit_args: str = ""


GONE = (("StreamingQueryStopped", "*"),)
ENDS = {
    "the script ends": End("", 0, (), "closed"),
    "sys.exit(3)": End("sys.exit(3)", 3, (), "closed"),
    "spark.stop()": End("spark.stop()", 0, (), "closed"),
    "SIGTERM that the script handles": End(HANDLES + WAITS, 0, (), "closed", signal.SIGTERM),
    "SIGINT": End(WAITS, -signal.SIGINT, (), "terminated", signal.SIGINT),
    "SIGTERM to the JVM": End(WAITS, 0, (), "terminated", signal.SIGTERM, to_jvm=True),
    "SIGTERM to spark-submit": End(
        WAITS, 128 + signal.SIGTERM, (), "terminated", signal.SIGTERM, command=SUBMIT
    ),
    "SIGTERM to Python": End(WAITS, -signal.SIGTERM, (), "gone", signal.SIGTERM),
    "os._exit(5)": End("os._exit(5)", 5, (), "gone"),
    "an exception": End("1 / 0", 1, (), "gone"),
    "a query fails": End(FAILS, 1, (("StreamingQueryFailed", "gold"),), "gone"),
    "the SparkContext stops by itself": End(DIES, 0, GONE, "gone"),
    "the SparkContext stops by itself and the script closes": End(
        DIES + "sidecar.close()", 0, GONE, "gone"
    ),
    "kill -9 of Python": End(WAITS, -signal.SIGKILL, (), "gone", signal.SIGKILL),
    "an exception under spark-submit": End("1 / 0", 1, (), "gone", command=SUBMIT),
    "the JVM does not answer, and the script exits": End(FROZEN, 5, (), "gone"),
    "kill -9 of the JVM": End(
        WAITS, 1, (("StreamingDriverDown", "*"),), "gone", signal.SIGKILL, to_jvm=True
    ),
    "the JVM is out of memory": End(
        OUT_OF_MEMORY, 1, (("StreamingDriverDown", "*"),), "gone", submit_args=EXITS_WITHOUT_MEMORY
    ),
    "Python is out of memory": End(PYTHON_OUT_OF_MEMORY, 1, (), "gone"),
    # What the kernel does when it is out of memory.
    "kill -9 of Python and the JVM": End(
        WAITS, -signal.SIGKILL, (), "gone", signal.SIGKILL, to_both=True
    ),
}


class EndOutcome(NamedTuple):
    """The exit code, the alerts of the driver, and the state the watcher reports."""

    code: int
    inside: tuple[tuple[str, str], ...]
    outside: str
    seconds: float
    """From the last action or the signal to the end of the process."""


def outcome_of(end: End, folder: Path) -> EndOutcome:
    go = folder / "go"
    environment = {"GO": str(go), "PYSPARK_PYTHON": sys.executable}
    if end.submit_args:
        environment["PYSPARK_SUBMIT_ARGS"] = end.submit_args
    with (
        PageRecorder() as pages,
        Driver(
            ATTACHED + end.script, folder, command=end.command, PAGES=pages.url, **environment
        ) as driver,
        watching(url_of(driver), interval=1.0, gone_after=GONE_AFTER) as reported,
    ):
        until(lambda: is_seen(reported, "driver"), "the driver is seen")
        time.sleep(1.0)
        go.touch()
        if end.number is not None:
            # The script must reach its wait first.
            time.sleep(1.0)
        began_at = time.monotonic()
        signal_it(driver, end)
        code = driver.wait(60)
        seconds = time.monotonic() - began(driver, began_at)
        with suppress(AssertionError):
            until(lambda: reported.firing, "the watcher reports it", timeout=3 * GONE_AFTER + 4)
        fired = tuple(page.what for page in pages.pages if page.status == "firing")
        return EndOutcome(code, fired, seen_from_outside(reported), seconds)


def began(driver, otherwise: float) -> float:
    """When the end began: a script whose last action takes long prints the moment."""
    said = [line for line in driver.lines if line.startswith(BEGAN)]
    return float(said[0].removeprefix(BEGAN)) if said else otherwise


def signal_it(driver, end):
    if end.to_both:
        driver.signal_all(end.number)
    elif end.to_jvm:
        driver.signal_jvm(end.number)
    elif end.number is not None:
        os.kill(driver.process.pid, end.number)


def seen_from_outside(reported) -> str:
    (driver,) = reported.tracker.drivers.values()
    if reported.firing:
        return "gone"
    if driver.terminated:
        return "terminated"
    return "closed" if driver.stopped else "there"


def url_of(driver):
    def url_line():
        assert driver.process.poll() is None, driver.errors
        return next((line for line in driver.lines if line.startswith("http://")), None)

    return until(url_line, "the driver prints its URL", timeout=120)


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    """Run each end once, three at a time, because a driver mostly waits."""
    with ThreadPoolExecutor(3) as pool:
        running = {
            how: pool.submit(outcome_of, end, tmp_path_factory.mktemp("driver"))
            for how, end in ENDS.items()
        }
        yield cache(lambda how: running[how].result())


@pytest.fixture(scope="module")
def durations():
    """How long each end took, in seconds."""
    return {}


@pytest.mark.fault(
    "Ends and kills",
    "Each way to end of [ends](ends.md), on real processes",
    "The alerts and the exit code of that table, within 10 s",
)
@pytest.mark.parametrize("how", ENDS)
def test_end_of_a_driver_decides_which_alerts_fire(outcome, how, durations, measured):
    end, found = ENDS[how], outcome(how)
    durations[how] = found.seconds
    slowest = max(durations, key=durations.get)

    measured(f"{durations[slowest]:.1f} s at most ({slowest})")
    assert found[:3] == (end.code, end.inside, end.outside)
    assert found.seconds < AT_MOST_SECONDS
