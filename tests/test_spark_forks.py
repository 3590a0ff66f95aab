"""A fork of the driver's Python has our objects and none of our threads: it tells nobody anything,
and what it does with its copy of the sidecar does nothing to its parent's.
"""

from __future__ import annotations

import pytest
from support.driver import Driver

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
def use_all():
    "Everything a job might do with the sidecar it finds itself in possession of."
    assert sidecar.flush(1) is False
    assert sidecar.alerts() == ()
    sidecar.snapshot()
    sidecar.close()
def look(path="livez"):
    with urllib.request.urlopen(f"{sidecar.url}/{path}", timeout=5) as answer:
        return answer.status
def die_and_be_told():
    die.set()
    while doomed.isActive:
        time.sleep(0.05)
    say(f"flushed {sidecar.flush(10)}")
    say(f"alerts {[alert.name for alert in sidecar.alerts()]}")
"""
REPORTED = ["flushed True", "alerts ['StreamingQueryFailed']"]


def lines_of(script, pages, folder):
    with Driver(WATCHED + script, folder, PAGES=pages.url) as driver:
        assert driver.wait(120) == 0, driver.errors
        return driver.lines


def test_a_fork_that_ends_like_a_program_closes_nothing_of_its_parent(pages, tmp_path):
    script = """
if os.fork() == 0:
    use_all()
    sys.exit(7)  # runs what is registered for the exit, ours included
say(f"child {os.waitstatus_to_exitcode(os.wait()[1])}")
time.sleep(3)
say(f"closed {sidecar.closed}, livez {look()}, readyz {look('readyz')}")
die_and_be_told()
"""
    lines = lines_of(script, pages, tmp_path)

    assert lines == ["child 7", "closed False, livez 200, readyz 200", *REPORTED]
    assert pages.reported == [("firing", "StreamingQueryFailed", "doomed")]


def test_processes_of_multiprocessing_page_nothing_while_they_live_and_when_they_end(
    pages, tmp_path
):
    script = """
def job(seconds):
    use_all()
    time.sleep(seconds)  # longer than the grace: whoever judged in here would miss the queries
fork = multiprocessing.get_context("fork")
processes = [fork.Process(target=job, args=(seconds,)) for seconds in (0, 8)]
for process in processes:
    process.start()
for process in processes:
    process.join()
say(f"children {[process.exitcode for process in processes]}")
with fork.Pool(2) as pool:
    pool.map(abs, range(8))
say(f"closed {sidecar.closed}, livez {look()}, readyz {look('readyz')}")
die_and_be_told()
"""
    lines = lines_of(script, pages, tmp_path)

    assert lines == ["children [0, 0]", "closed False, livez 200, readyz 200", *REPORTED]
    assert pages.reported == [("firing", "StreamingQueryFailed", "doomed")]


def test_a_fork_does_not_report_again_what_its_parent_has_not_reported_yet(pages, tmp_path):
    from support.http_double import reply

    pages.script.extend([reply(503)] * 4)
    script = """
die.set()
while not sidecar.alerts():
    time.sleep(0.02)
if os.fork() == 0:
    sidecar.flush(1)
    sidecar.close()
    time.sleep(5)
    sys.exit(0)
os.wait()
say(f"flushed {sidecar.flush(10)}")
"""
    lines = lines_of(script, pages, tmp_path)

    assert lines == ["flushed True"]
    accepted = len(pages.requests) - 4
    assert accepted == 1


def test_a_fork_that_is_killed_takes_nothing_with_it(pages, tmp_path):
    script = """
import signal
child = os.fork()
if child == 0:
    time.sleep(60)
time.sleep(0.5)
os.kill(child, signal.SIGKILL)
os.wait()
say(f"closed {sidecar.closed}, livez {look()}, readyz {look('readyz')}")
die_and_be_told()
"""
    lines = lines_of(script, pages, tmp_path)

    assert lines == ["closed False, livez 200, readyz 200", *REPORTED]
    assert pages.reported == [("firing", "StreamingQueryFailed", "doomed")]
