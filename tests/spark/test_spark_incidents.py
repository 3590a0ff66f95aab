"""On real Spark: what a stranger reads in the recording of an incident, once the driver is gone."""

from __future__ import annotations

import re
import signal
import threading
import time

import pytest
from support.driver import Driver
from support.queries import Trap, commits, rate, start, until

from querypulse.core.folders import LocalFolder
from querypulse.recording.lines import decode
from querypulse.recording.timeline import timeline_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

FLOOR = 10
"""A starved machine may finish no task for seconds."""
NAME = "(bronze|silver|gold)"
TIME = r"\d\d:\d\d:\d\d UTC"


def parts_of(folder, query):
    """The files of the only incident of ``query`` in a spool, in their order."""
    files = (folder / "incidents").glob(f"2*-{query}-*.jsonl")
    return sorted(files, key=lambda file: (len(file.name), file.name))


def story_of(folder, query):
    """The story of that incident, from its files alone."""
    return timeline_of([decode(file.read_bytes(), file.name) for file in parts_of(folder, query)])


def ended(folder, query):
    """The same, once its last alert has ended and its receiver knows that."""

    def story():
        if not parts_of(folder, query):
            return None
        timeline = story_of(folder, query)
        is_known = re.search(r" \d+ messages? of its end", timeline.answers["notified"])
        return timeline if is_known and timeline.summary.until is not None else None

    return until(story, f"the recording of {query} ends")


def matches(timeline, **answers):
    """Check that each answer matches its pattern; the others are listed where one does not."""
    wrong = {
        name: timeline.answers[name]
        for name, pattern in answers.items()
        if re.fullmatch(pattern.replace("TIME", TIME), timeline.answers[name]) is None
    }
    assert wrong == {}


# -- a failure that ends the job ----------------------------------------------------------------

AWAITS = """
sidecar = attach(
    spark, app_name="etl", http_port=-1, webhook_url=os.environ["PAGES"],
    spool_dir=os.environ["SPOOL"], resolve_after_seconds=1,
)
def write(batch, batch_id):
    if batch_id == 3:
        raise ValueError("account 4711 has no ledger")
start("bronze")
start("ledger", write)
sidecar.await_any_failure()
"""


@pytest.fixture
def drive(tmp_path, pages):
    """Start a driver; all drivers of a test share a spool."""
    count = iter(range(9))

    def driver(script):
        folder = tmp_path / str(next(count))
        folder.mkdir()
        return Driver(script, folder, PAGES=pages.url, SPOOL=str(tmp_path / "spool"))

    return driver


def test_failure_that_ends_the_job(drive, tmp_path):
    with drive(AWAITS) as driver:
        assert driver.wait() == 1
        assert "QueryFailure: streaming query ledger" in driver.errors

    timeline = story_of(tmp_path / "spool", "ledger")
    failed = r"ledger failed( in batch 3)?: ValueError: account 4711 has no ledger"
    matches(
        timeline,
        first=rf"[-\d]+ TIME: {failed}, raised at .*driver\.py:\d+ in write\.",
        held_by=r"No batch was held: ledger failed.* at .*driver\.py:\d+ in write, and the recording shows no restart\.",
        notified=r"webhook was notified at TIME \([\d.]+ m?s after the first alert opened\); receivers accepted 1 notification and no message of its end\.",
        done=r"The recording shows nothing that was done\.",
        ended=r"It was still open at TIME, when its process ended because the main program ended with QueryFailure: streaming query ledger: .*\.",
    )


KILLED = AWAITS.replace("sidecar.await_any_failure()", "time.sleep(3600)")


def test_process_killed_with_an_open_incident_leaves_a_file_that_can_be_read(
    drive, pages, tmp_path
):
    with drive(KILLED) as driver:
        pages.wait_for("StreamingQueryFailed", "ledger")
        until(lambda: parts_of(tmp_path / "spool", "ledger"), "the recording begins")
        driver.signal_all(signal.SIGKILL)
        driver.wait()

    timeline = story_of(tmp_path / "spool", "ledger")
    assert timeline.summary.until is None
    assert "account 4711 has no ledger" in timeline.answers["first"]
    assert "it breaks off" in timeline.answers["ended"]


# -- a hang that somebody restarts --------------------------------------------------------------


def test_hang_that_somebody_restarts(spark, watch, pages, tmp_path):
    spool = tmp_path / "spool"
    sidecar, trap = watch(stall_floor_seconds=FLOOR, spool_dir=str(spool), app_name="etl"), Trap()

    def one_task_hangs(_):
        spark.sparkContext.parallelize(range(2), 2).foreach(lambda part: time.sleep(600 * part))

    checkpoint = tmp_path / "checkpoint"
    query = start(rate(spark), "orders", trap, checkpoint=checkpoint)
    commits(sidecar, "orders", batches=3)
    trap.work = one_task_hangs
    pages.wait_for("StreamingQueryStalled", "orders")
    trap.work = None
    query.stop()
    start(rate(spark), "orders", trap, checkpoint=checkpoint)

    matches(
        ended(spool, "orders"),
        first=r".* TIME: batch \d+ of orders began and did not finish\.",
        held_by=r"Batch \d+ of orders was in flight from TIME to TIME \(\d+ s\): .*1 task runs \(partition 1 of stage .*\).*; its thread was at .* in one_task_hangs\.",
        notified=r"webhook was notified at TIME \(.* after the first alert opened\); receivers accepted [12] notifications? and 1 message of its end\.",
        done=r"orders was stopped at TIME; orders was started again at TIME\. The recording does not show by whom\.",
        ended=r"The last alert ended at TIME, [\d.]+ s after the first alert opened: orders (commits again|is healthy again and idle)\.",
    )


# -- a slow batch that recovers -----------------------------------------------------------------


def test_slow_batch_that_recovers(spark, watch, pages, tmp_path):
    spool = tmp_path / "spool"
    sidecar, trap = watch(stall_floor_seconds=FLOOR, spool_dir=str(spool), app_name="etl"), Trap()
    free = threading.Event()

    def small_jobs(rows):
        while not free.wait(0.3):
            rows.count()

    start(rate(spark), "clicks", trap)
    commits(sidecar, "clicks", batches=3)
    trap.work = small_jobs
    pages.wait_for("StreamingBatchSlow", "clicks")
    trap.work = None
    free.set()

    matches(
        ended(spool, "clicks"),
        first=r".* TIME: batch \d+ of clicks began and took \d+ s\.",
        held_by=r"Batch \d+ of clicks was in flight from TIME to TIME \(\d+ s\): .* in small_jobs.*; the alert says: .*its tasks still finish.*\.",
        notified=r"webhook was notified at TIME \(.* after the first alert opened\); receivers accepted 1 notification and 1 message of its end\.",
        done=r"The recording shows nothing that was done\.",
        ended=r"The last alert ended at TIME, [\d.]+ s after the first alert opened: .*clicks .*\.",
    )


# -- a JVM that is killed, and the next process -------------------------------------------------

RUNS = """
sidecar = attach(
    spark, app_name="etl", http_port=-1, webhook_url=os.environ["PAGES"],
    spool_dir=os.environ["SPOOL"], resolve_after_seconds=1,
)
for name in ("bronze", "silver"):
    start(name)
until_commits(sidecar, "bronze", "silver")
say("commits")
sidecar.await_any_failure()
"""


def test_killed_jvm_is_one_incident_that_the_next_process_ends(drive, tmp_path):
    spool = tmp_path / "spool"
    with drive(RUNS) as driver:
        driver.wait_for_line("commits")
        driver.signal_jvm(signal.SIGKILL)
        assert driver.wait() != 0
    killed = story_of(spool, "driver")
    with drive(RUNS) as driver:
        driver.wait_for_line("commits")
        timeline = ended(spool, "driver")

    first, second = parts_of(spool, "driver")
    assert decode(second.read_bytes(), second.name).begin.continues == first.stem
    assert killed.summary.until is None
    matches(
        timeline,
        first=r".* TIME: the JVM of the driver ended\.",
        held_by=r"The recording shows no batch that was held; the alert says: the JVM of the driver has ended, and 2 streaming queries with it: bronze, silver\.",
        notified=r"webhook was notified at TIME \(.* after the first alert opened\); receivers accepted 1 notification and 1 message of its end\.",
        done=r"Its process ended at TIME; the next process began at TIME; (bronze|silver) was started again at TIME; .*\.",
        ended=r"The last alert ended at TIME, [\d.]+ (s|min) after the first alert opened: driver is up again\.",
    )


# -- one cause of many queries ------------------------------------------------------------------


def test_three_queries_that_follow_one_of_the_same_cause_are_one_incident_of_the_driver(
    spark, watch, pages, tmp_path
):
    spool = tmp_path / "spool"
    sidecar = watch(spool_dir=str(spool), app_name="etl")
    names = ("bronze", "silver", "gold")
    failing = set()

    def starts(name):
        def write(batch, batch_id):
            if name in failing:
                raise ConnectionError("the metastore refuses: too many connections")

        start(rate(spark), name, write, checkpoint=tmp_path / name)

    for name in ("first", *names):
        starts(name)
    for name in ("first", *names):
        commits(sidecar, name)
    failing.add("first")
    pages.wait_for("StreamingQueryFailed", "first")
    failing.update(names)
    for name in names:
        pages.wait_for("StreamingQueryFailed", name)
    failing.clear()
    for name in ("first", *names):
        starts(name)

    timeline = ended(spool, "driver")
    matches(
        timeline,
        first=rf".* TIME: {NAME} failed.*: ConnectionError: the metastore refuses: too many connections, raised at .* in write\.",
        held_by=rf"No batch was held: {NAME} failed.* at .* in write, and did not run until TIME .*\.",
        notified=r"webhook was notified at TIME \(.* after the first alert opened\); receivers accepted \d+ notifications? and 1 message of its end\.",
        done=rf"({NAME} was started again at TIME(; )?){{3}}\. The recording does not show by whom\.",
        ended=rf"The last alert ended at TIME, .* after the first alert opened: .*{NAME}.*\.",
    )
    assert timeline.summary.headline.startswith("[etl] 3 queries failed: ConnectionError")
    assert not any(parts_of(spool, name) for name in names)
    assert "first" not in timeline.answers["done"]


# -- a folder that hangs ------------------------------------------------------------------------


def test_folder_that_hangs_delays_neither_a_message_nor_the_end(
    spark, watch, pages, tmp_path, monkeypatch
):
    hangs, released = threading.Event(), threading.Event()

    def hang(*_):
        hangs.set()
        released.wait()

    monkeypatch.setattr(LocalFolder, "write", hang)
    sidecar = watch(incidents_dir=str(tmp_path / "incidents"))
    first, second = Trap(), Trap()
    start(rate(spark), "orders", first)
    start(rate(spark), "clicks", second)
    commits(sidecar, "orders")
    commits(sidecar, "clicks")
    first.die.set()
    until(hangs.is_set, "the folder hangs")
    second.die.set()
    pages.wait_for("StreamingQueryFailed", "clicks")
    sidecar.close(1.0)

    # All of this happened while the folder hung.
    assert not released.is_set()
    released.set()
