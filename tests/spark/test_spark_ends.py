"""Every way a driver ends, on real processes: which alerts fire inside and outside.

``docs/watch.md`` shows this table.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import NamedTuple

import pyspark
import pytest
from support.driver import Driver
from support.http_double import Answer, held, reply
from support.pages import PageRecorder
from support.patience import until
from support.watching import is_seen, serving, watching

from querypulse.exporter.pages import Notice

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

GONE_AFTER = 5.0
OWN_EXIT_SECONDS = 8.0
"""How long an exit may wait for what does not come; the product's own limit."""
LONG_EXIT_SECONDS = 120.0
"""So that a busy machine sends what an exit, or a signal, must send."""
ENDLESS_EXIT_SECONDS = 3600.0
SUBMIT = (str(Path(pyspark.__file__).parent / "bin" / "spark-submit"),)
ATTACHED = """
from querypulse.sidecar import runtime, session, sidecar
sidecar.EXIT_SECONDS = session.ANNOUNCE_SECONDS = float(os.environ["EXIT_SECONDS"])
runtime.INTERRUPTED_SECONDS = 5.0
sidecar = attach(spark, http_port=0, webhook_url=os.environ["PAGES"])
runtime = sidecar._runtime
for name in ("bronze", "silver"):
    start(name)
until_commits(sidecar, "bronze", "silver")
say(sidecar.url)
# Only a watcher that waits learns why the driver ends.
until(lambda: runtime._server._shutdown_notice._waiting and os.path.exists(os.environ["GO"]))
def fail(batch, batch_id):
    raise ValueError("negative amount")
"""
WAITS = """
say("waits")
sidecar.await_any_failure()
"""
FAILS = """
start("gold", fail)
sidecar.await_any_failure()
"""
FAILED = """
query = start("gold", fail)
until(lambda: not query.isActive)
"""
FAILS_AND_STOPS = """
try:
    start("gold", fail).awaitTermination()
finally:
    spark.stop()
"""
STOPS_WHILE_BUSY = """
working = threading.Event()
def work(batch, batch_id):
    working.set()
    while True:
        batch.count()
start("gold", work)
working.wait()
spark.stop()
until(lambda: not any(thread.name.startswith("querypulse") for thread in threading.enumerate()))
say(f"closed {sidecar.closed}")
"""
SAYS_WHEN_ITS_EXIT_WAITS = """
import traceback
def watch_the_exit():
    main = threading.main_thread().ident
    stack = lambda: traceback.extract_stack(sys._current_frames()[main])
    until(lambda: any(frame.name == "_last_flush" for frame in stack()))
    say("its exit waits")
threading.Thread(target=watch_the_exit, daemon=True).start()
"""
DIES = "spark._jsc.sc().stop()\n"
HANDLES = "signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\n"
HANDLES_AND_CLOSES = """
def shut_down(*_):
    sidecar.close()
    sys.exit(0)
signal.signal(signal.SIGTERM, shut_down)
"""
HANDLES_AND_CALLS = """
found = signal.getsignal(signal.SIGTERM)
def shut_down(*given):
    found(*given)
    sys.exit(0)
signal.signal(signal.SIGTERM, shut_down)
"""
IN_A_CHILD = """
child = os.fork()
if not child:
    sys.exit(3)
assert os.waitpid(child, 0)[1] == 3 << 8
sidecar.close()
"""
FROZEN = """
os.kill(spark.sparkContext._gateway.proc.pid, signal.SIGSTOP)
until(lambda: runtime._observers.prober.silent_seconds >= 5.5)
sys.exit(5)
"""
OUT_OF_MEMORY = """
kept = []
while True:
    kept.append(spark.sparkContext._gateway.new_array(spark._jvm.byte, 1 << 28))
"""
PYTHON_OUT_OF_MEMORY = """
import resource
with open("/proc/self/statm") as now:
    used = int(now.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), resource.RLIM_INFINITY))
kept = []
while True:
    kept.append(bytearray(1 << 20))
"""
FAILS_IN_HOOKS = """
from pathlib import Path
# Those that wait for their next batch while the hooks stop Spark fail at a deleted checkpoint.
for every in (1100, 1300, 1700, 1900):
    start(f"gold {every}", every=every)
    until_commits(sidecar, f"gold {every}")
ended = os.environ["GO"] + ".ended"
loader = spark._jvm.java.lang.Thread.currentThread().getContextClassLoader()
compiler = loader.loadClass("org.codehaus.janino.SimpleCompiler").newInstance()
compiler.setParentClassLoader(loader)
compiler.cook(
    'public class Lingers extends Thread { public void run() {'
    ' for (int i = 0; i < 6000 && !new java.io.File("' + ended + '").exists(); i++)'
    ' java.util.concurrent.locks.LockSupport.parkNanos(10000000L); } }'
)
hook = compiler.getClassLoader().loadClass("Lingers").newInstance()
spark._jvm.java.lang.Runtime.getRuntime().addShutdownHook(hook)
queries, probe = spark.streams.active, runtime._observers.prober._probe
poll = probe.poll
def poll_late(clock):
    # A batch that waits for a scheduler that has stopped never ends.
    late = time.monotonic() + 10
    until(
        lambda: probe.context() == "running"
        or not any(query.isActive for query in queries)
        or time.monotonic() > late
    )
    return poll(clock)
probe.poll = poll_late
say("waits")
try:
    sidecar.await_any_failure()
finally:
    Path(ended).touch()
"""
"""The JVM lingers, and the first poll after the signal finds that all queries have failed."""
EXITS_WITHOUT_MEMORY = "--driver-java-options -XX:+ExitOnOutOfMemoryError pyspark-shell"


def answers_late(handler):
    handler.double.closing.wait(1.5)
    reply(200)(handler)


def never_answers(handler):
    held(handler.double.closing, reply(200))(handler)


class End(NamedTuple):
    """The last action of the driver, the signal it gets, and the expected outcome."""

    script: str
    code: int
    inside: tuple[tuple[str, str], ...]
    """Alerts that the driver itself sends."""
    outside: str
    """The state that ``querypulse watch`` reports: closed, ended, terminated, failed or gone."""
    number: signal.Signals | None = None
    to_jvm: bool = False
    to_both: bool = False
    again: bool = False
    """Whether Python gets the signal once more while its exit waits."""
    command: tuple[str, ...] = (sys.executable, "-Iu")
    submit_args: str = ""
    expected: str = ""
    receiver: Answer = reply(200)
    exit_seconds: float = LONG_EXIT_SECONDS

    @property
    def outcome(self) -> tuple[int, tuple[tuple[str, str], ...], str]:
        return self.code, self.inside, self.outside


GOLD_FAILED = (("StreamingQueryFailed", "gold"),)
CONTEXT_GONE = (("StreamingQueryStopped", "*"),)
JVM_GONE = (("StreamingDriverDown", "*"),)
CUT_OFF = (("StreamingQueryStopped", "*"),)
COMMON = {
    "the script ends": End("", 0, CUT_OFF, "ended"),
    "spark.stop(), and the script ends": End("spark.stop()", 0, (), "closed"),
    "a query fails": End(FAILS, 1, GOLD_FAILED, "failed"),
    "spark.stop() while a query is busy": End(STOPS_WHILE_BUSY, 0, (), "closed"),
    "SIGTERM to the JVM": End(WAITS, 0, (), "terminated", signal.SIGTERM, to_jvm=True),
    "kill -9 of the JVM": End(WAITS, 1, JVM_GONE, "failed", signal.SIGKILL, to_jvm=True),
    # What the kernel does when it is out of memory.
    "kill -9 of Python and the JVM": End(
        WAITS, -signal.SIGKILL, (), "gone", signal.SIGKILL, to_both=True
    ),
}
UNCOMMON = {
    "an exception": End("1 / 0", 1, CUT_OFF, "failed"),
    "the script closes and ends": End("sidecar.close()", 0, (), "closed"),
    "the script closes, and an exception ends it": End("sidecar.close()\n1 / 0", 1, (), "closed"),
    "the script announces each stop, and ends": End(
        "for name in ('bronze', 'silver'): sidecar.expect_stop(name)", 0, (), "closed"
    ),
    "the script stops its queries, and ends": End(
        "for query in spark.streams.active: query.stop()", 0, (), "closed"
    ),
    "an exception of Spark about a query that failed": End(
        "start('gold', fail).awaitTermination()", 1, GOLD_FAILED, "failed"
    ),
    "SIGINT": End(WAITS, -signal.SIGINT, (), "terminated", signal.SIGINT),
    # Nobody can say that it was the signal: so a warning.
    "SIGTERM that the script handles": End(HANDLES + WAITS, 0, CUT_OFF, "ended", signal.SIGTERM),
    "SIGTERM, and the handler of the script closes": End(
        HANDLES_AND_CLOSES + WAITS, 0, (), "closed", signal.SIGTERM
    ),
    "SIGTERM to Python": End(WAITS, -signal.SIGTERM, (), "terminated", signal.SIGTERM),
    "the SparkContext stops by itself and the script closes": End(
        DIES + "sidecar.close()", 0, CONTEXT_GONE, "failed"
    ),
    "the JVM does not answer, and the script exits": End(
        FROZEN, 5, CUT_OFF, "gone", exit_seconds=OWN_EXIT_SECONDS
    ),
    "the JVM is out of memory": End(
        OUT_OF_MEMORY, 1, JVM_GONE, "failed", submit_args=EXITS_WITHOUT_MEMORY
    ),
    "a query fails, the script stops Spark, and the receiver answers late": End(
        FAILS_AND_STOPS, 1, GOLD_FAILED, "failed", receiver=answers_late
    ),
    "sys.exit(4) after a failure, while the receiver never answers": End(
        FAILED + "sys.exit(4)",
        4,
        GOLD_FAILED,
        "gone",
        receiver=never_answers,
        exit_seconds=OWN_EXIT_SECONDS,
    ),
    "SIGINT, and again while the exit waits for the receiver": End(
        FAILED + SAYS_WHEN_ITS_EXIT_WAITS + 'say("waits"); time.sleep(3600)',
        -signal.SIGINT,
        GOLD_FAILED,
        "terminated",
        signal.SIGINT,
        again=True,
        receiver=never_answers,
        exit_seconds=ENDLESS_EXIT_SECONDS,
    ),
}
RARE = {
    "sys.exit(3)": End("sys.exit(3)", 3, CUT_OFF, "ended"),
    "sys.exit(3) while an expected query runs": End(
        "sys.exit(3)", 3, CUT_OFF, "failed", expected="bronze"
    ),
    "sys.exit(3) of a forked child": End(IN_A_CHILD, 0, (), "closed"),
    "SIGTERM, and the handler of the script calls the one that it found": End(
        HANDLES_AND_CALLS + WAITS, 0, (), "terminated", signal.SIGTERM
    ),
    "os._exit(5)": End("os._exit(5)", 5, (), "gone"),
    "the SparkContext stops by itself": End(DIES, 0, CONTEXT_GONE, "failed"),
    "kill -9 of Python": End(WAITS, -signal.SIGKILL, (), "gone", signal.SIGKILL),
    "Python is out of memory": End(PYTHON_OUT_OF_MEMORY, 1, CUT_OFF, "failed"),
    "an exception under spark-submit": End("1 / 0", 1, CUT_OFF, "failed", command=SUBMIT),
    "SIGTERM to a JVM whose queries fail while it ends": End(
        FAILS_IN_HOOKS, 0, (), "terminated", signal.SIGTERM, to_jvm=True
    ),
    "SIGTERM to spark-submit": End(
        WAITS, 128 + signal.SIGTERM, (), "terminated", signal.SIGTERM, command=SUBMIT
    ),
}


def seen_at(end, folder):
    """The exit code, the alerts of the driver, and the state that the watcher reports."""
    go = folder / "go"
    environment = {
        "GO": str(go),
        "EXIT_SECONDS": str(end.exit_seconds),
        "PYSPARK_PYTHON": sys.executable,
        "QUERYPULSE_EXPECTED_QUERIES": end.expected,
    }
    if end.submit_args:
        environment["PYSPARK_SUBMIT_ARGS"] = end.submit_args
    with PageRecorder() as pages, serving("other") as other:
        pages.otherwise = end.receiver
        script = ATTACHED + end.script
        with (
            Driver(script, folder, command=end.command, PAGES=pages.url, **environment) as driver,
            watching(driver.line("http://"), other.url, gone_after=GONE_AFTER) as reported,
        ):
            until(lambda: is_seen(reported, "driver"), "the driver is seen")
            until(lambda: is_seen(reported, "other"), "the other one is seen")
            go.touch()
            signal_it(driver, end)
            code = driver.wait()
            outside = seen_from_outside(reported, other)
        fired = [page.what for page in pages.pages if page.status == "firing"]
        if end.receiver is never_answers:
            # It is sent again.
            fired = dict.fromkeys(fired)
        return code, tuple(fired), outside


def signal_it(driver, end):
    if end.number is None:
        return
    driver.wait_for_line("waits")
    if end.to_both:
        driver.signal_all(end.number)
    elif end.to_jvm:
        driver.signal_jvm(end.number)
    else:
        os.kill(driver.process.pid, end.number)
    if end.again:
        driver.wait_for_line("its exit waits")
        os.kill(driver.process.pid, end.number)


def seen_from_outside(reported, other) -> str:
    """The state that the watcher reports; it has time to report a driver that ends later."""
    driver = next(watched for watched in reported.tracker.drivers if watched.app == "driver")
    until(lambda: reported.firing or driver.notice, "the watcher knows of the end")
    if driver.notice:
        other.close(notice=None)
        reported.wait_for("other")
    if "driver" in reported.firing:
        return "gone"
    return {Notice.STOPPED: "closed"}.get(driver.notice, driver.notice.value)


@pytest.mark.fault(
    "Ends and kills",
    "The most common ways to end of [ends](../watch.md#ends), on real processes",
    "The alerts and the exit code of that table",
)
@pytest.mark.parametrize("how", COMMON)
def test_end_of_a_driver_decides_which_alerts_fire(how, tmp_path):
    assert seen_at(COMMON[how], tmp_path) == COMMON[how].outcome


@pytest.mark.thorough
@pytest.mark.fault(
    "Ends and kills",
    "Less common ways to end, also while a receiver does not answer, and with a second SIGINT",
    "The alerts and the exit code of [ends](../watch.md#ends); the exit is bounded",
)
@pytest.mark.parametrize("how", UNCOMMON)
def test_uncommon_end_of_a_driver_decides_which_alerts_fire(how, tmp_path):
    assert seen_at(UNCOMMON[how], tmp_path) == UNCOMMON[how].outcome


@pytest.mark.nightly
@pytest.mark.fault(
    "Ends and kills",
    "The other ways to end of [ends](../watch.md#ends)",
    "The alerts and the exit code of that table",
)
@pytest.mark.parametrize("how", RARE)
def test_rare_end_of_a_driver_decides_which_alerts_fire(how, tmp_path):
    assert seen_at(RARE[how], tmp_path) == RARE[how].outcome
