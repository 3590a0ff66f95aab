"""A fork of the driver's Python copies our objects but not our threads: it sends nothing,
and its copy of the sidecar does not affect the parent's.
"""

from __future__ import annotations

import pytest
from support.driver import Driver
from support.http_double import reply

pytestmark = [pytest.mark.spark, pytest.mark.thorough, pytest.mark.timeout(600)]

SCRIPT = """
import multiprocessing, socket, urllib.error, urllib.request, warnings
warnings.simplefilter("ignore")
sidecar = attach(spark, http_port=0, webhook_url=os.environ["PAGES"])
die = threading.Event()
def work(batch, batch_id):
    if die.is_set():
        raise ValueError("concurrent update")
doomed = start("doomed", work)
start("calm")
until_commits(sidecar, "doomed", "calm")

def answers(path):
    try:
        with urllib.request.urlopen(f"{sidecar.url}/{path}") as answer:
            return answer.status == 200
    except urllib.error.HTTPError:
        return False
def is_watched():
    "On a busy machine its worker may be late for once."
    until(lambda: answers("livez") and answers("readyz"))
    return not sidecar.closed

def use_copy():
    "Every call that a job may make on its copy of the sidecar; one that connects ends the process."
    socket.socket.connect = lambda *_: os._exit(9)
    assert threading.active_count() == 1
    assert sidecar.flush(1) is False
    sidecar.alerts()
    sidecar.snapshot()
    sidecar.close()
def end_of_a_child():
    if os.fork() == 0:
        use_copy()
        sys.exit(7)  # runs the exit handlers, including ours
    return os.waitstatus_to_exitcode(os.wait()[1])

say(f"child {end_of_a_child()}, watched {is_watched()}")

fork = multiprocessing.get_context("fork")
processes = [fork.Process(target=use_copy, daemon=daemon) for daemon in (False, True)]
for process in processes:
    process.start()
for process in processes:
    process.join()
with fork.Pool(2) as pool:
    pool.map(abs, range(8))
say(f"children {[process.exitcode for process in processes]}, watched {is_watched()}")

child = os.fork()
if child == 0:
    time.sleep(3600)
os.kill(child, signal.SIGKILL)
os.wait()
say(f"killed, watched {is_watched()}")

die.set()
until(sidecar.alerts)
say(f"child beside a pending alert {end_of_a_child()}")
def outlive():
    use_copy()
    time.sleep(3600)
# multiprocessing terminates it when the parent exits.
fork.Process(target=outlive, daemon=True).start()
until(lambda: sidecar.flush(60))
say(f"alerts {[alert.name for alert in sidecar.alerts()]}")
"""
BESIDE = "child beside a pending alert 7"


@pytest.mark.fault(
    "Forks",
    "Children of `os.fork` and `multiprocessing` exit, are killed or outlive the driver",
    "They connect to nothing; the parent's sidecar goes on, and reports once",
)
def test_forks_send_nothing_and_leave_the_parents_sidecar_alone(pages, tmp_path):
    accepted = []

    def accept(handler):
        accepted.append(handler)
        reply(200)(handler)

    pages.otherwise = reply(503)
    with Driver(SCRIPT, tmp_path, PAGES=pages.url) as driver:
        driver.wait_for_line(BESIDE)
        pages.otherwise = accept
        assert driver.wait() == 0, driver.errors

    assert driver.lines == [
        "child 7, watched True",
        "children [0, 0], watched True",
        "killed, watched True",
        BESIDE,
        "alerts ['StreamingQueryFailed']",
    ]
    assert set(pages.reported) == {("firing", "StreamingQueryFailed", "doomed")}
    assert len(accepted) == 1
