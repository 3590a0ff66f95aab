"""A fork of the driver's Python copies our objects but not our threads: it sends nothing,
and its copy of the sidecar does not affect the parent's.
"""

from __future__ import annotations

import pytest
from support.driver import Driver
from support.http_double import reply
from support.pages import PageRecorder

pytestmark = pytest.mark.spark

WATCHED = """
import multiprocessing, urllib.request, warnings
warnings.simplefilter("ignore")
sidecar = attach(spark, http_port=0, webhook_url=os.environ["PAGES"], gone_grace_seconds=1, stall_floor_seconds=20)
die = threading.Event()
def work(batch, batch_id):
    if die.is_set():
        raise ValueError("concurrent update")
doomed = start("doomed", work)
start("calm")
until_commits(sidecar, "doomed", "calm")
def use_sidecar():
    "Every call a job may make on its copy of the sidecar."
    assert sidecar.flush(1) is False
    assert sidecar.alerts() == ()
    sidecar.snapshot()
    sidecar.close()
def get(path="livez"):
    with urllib.request.urlopen(f"{sidecar.url}/{path}", timeout=5) as answer:
        return answer.status
"""

CHILDREN = """
def lives():
    return f"closed {sidecar.closed}, livez {get()}, readyz {get('readyz')}"

if os.fork() == 0:
    use_sidecar()
    sys.exit(7)  # runs the exit handlers, including ours
code = os.waitstatus_to_exitcode(os.wait()[1])
time.sleep(3)
say(f"after an exit with {code}: {lives()}")

def job(seconds):
    use_sidecar()
    time.sleep(seconds)  # longer than the grace: an evaluation in the child would report the queries as gone
fork = multiprocessing.get_context("fork")
processes = [
    fork.Process(target=job, args=(seconds,), daemon=daemon)
    for seconds, daemon in ((0, False), (8, False), (0, True), (8, True))
]
for process in processes:
    process.start()
for process in processes:
    process.join()
with fork.Pool(2) as pool:
    pool.map(abs, range(8))
say(f"after children with {[process.exitcode for process in processes]}: {lives()}")

child = os.fork()
if child == 0:
    time.sleep(60)
time.sleep(0.5)
os.kill(child, signal.SIGKILL)
os.wait()
say(f"after a kill: {lives()}")

# multiprocessing terminates it when the parent exits.
fork.Process(target=job, args=(100,), daemon=True).start()
die.set()
while doomed.isActive:
    time.sleep(0.05)
say(f"flushed {sidecar.flush(10)}")
say(f"alerts {[alert.name for alert in sidecar.alerts()]}")
"""
LIVES = "closed False, livez 200, readyz 200"


def lines_of(script, pages, folder):
    with Driver(WATCHED + script, folder, PAGES=pages.url) as driver:
        assert driver.wait(120) == 0, driver.errors
        return driver.lines


@pytest.fixture(scope="module")
def parent(tmp_path_factory):
    """A driver with children of each kind, whose query fails at the end: its output and its alerts."""
    with PageRecorder() as pages:
        return lines_of(CHILDREN, pages, tmp_path_factory.mktemp("parent")), pages.reported


@pytest.mark.fault("Forks", "A forked child exits", "The parent's sidecar goes on")
def test_exit_of_a_fork_does_not_close_the_parents_sidecar(parent):
    lines, _ = parent

    assert lines[0] == f"after an exit with 7: {LIVES}"


@pytest.mark.fault(
    "Forks", "Children of `multiprocessing`, with `daemon=True` and without", "They notify nobody"
)
def test_multiprocessing_children_page_nothing(parent):
    lines, reported = parent

    assert lines[1] == f"after children with [0, 0, 0, 0]: {LIVES}"
    assert reported == [("firing", "StreamingQueryFailed", "doomed")]


@pytest.mark.fault("Forks", "SIGKILL of a forked child", "The parent goes on")
def test_killed_fork_does_not_affect_its_parent(parent):
    lines, reported = parent

    assert lines[2:] == [
        f"after a kill: {LIVES}",
        "flushed True",
        "alerts ['StreamingQueryFailed']",
    ]
    assert reported == [("firing", "StreamingQueryFailed", "doomed")]


def test_fork_does_not_send_the_pending_alert_of_its_parent(pages, tmp_path):
    pages.script.extend([reply(503)] * 4)
    script = """
die.set()
while not sidecar.alerts():
    time.sleep(0.02)
if os.fork() == 0:
    sidecar.flush(1)
    sidecar.close()
    time.sleep(5)
    sys.exit(7)
say(f"child {os.waitstatus_to_exitcode(os.wait()[1])}")
say(f"flushed {sidecar.flush(10)}")
"""
    lines = lines_of(script, pages, tmp_path)

    assert lines == ["child 7", "flushed True"]
    accepted = len(pages.requests) - 4
    assert accepted == 1
