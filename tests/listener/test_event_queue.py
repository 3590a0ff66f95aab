"""The answers of the event queue in the JVM, and the arrival times of events on our clock."""

from __future__ import annotations

import re
from contextlib import suppress
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from py4j.protocol import Py4JError
from support.fake_driver import FIELD, GIVEN, RECORD, FakeDriver, answer
from support.patience import Clock

from querypulse.listener.events import EventKind
from querypulse.listener.foresight.tasks import BatchTasks, QueryTasks, StageSpread, TaskSums
from querypulse.listener.mailbox import LIFECYCLE_CAPACITY
from querypulse.listener.probe_report import (
    UNOWNED,
    CountedJobs,
    JobCounts,
    LongTask,
    LostExecutors,
)
from querypulse.listener.spark.event_paths import PROCESS, PROGRESS_CAPACITY, EventQueue
from querypulse.listener.spark.health_listener import HealthListener
from querypulse.listener.spark.jvm import SOURCES, compile_in_driver
from querypulse.listener.state.snapshot import ALONE

TEXTS = st.text(
    st.characters(exclude_characters=FIELD + RECORD + GIVEN, exclude_categories=["Cs"]), max_size=20
)
COUNTS = st.integers(min_value=0, max_value=2**63 - 1)
CLOCKS = st.integers(min_value=-(2**63), max_value=2**63 - 1)
KINDS = st.sampled_from([kind.value for kind in EventKind])
EVENTS = st.tuples(KINDS, CLOCKS.map(str), TEXTS, TEXTS, TEXTS, TEXTS, TEXTS).map(list)


@pytest.fixture
def driver():
    return FakeDriver()


@pytest.fixture
def clock():
    return Clock(1000.0)


def event_queue(driver, clock=float):
    return EventQueue(driver, HealthListener(capacity=1, start=object, start_on=list), clock)


@pytest.fixture
def queue(driver, clock):
    return event_queue(driver, clock)


def job_counts(text):
    """What the JVM's text says."""
    driver = FakeDriver()
    queue = event_queue(driver)
    driver.queue.jobCounts = lambda: text
    return queue.job_counts()


def started(at):
    return "started", at, "", "", "", "", '{"id": "i"}'


@given(
    st.lists(EVENTS, max_size=5), CLOCKS, st.tuples(COUNTS, COUNTS, COUNTS), COUNTS, st.booleans()
)
def test_every_answer_of_the_jvm_is_read_as_it_was_written(
    events, now, dropped, waiting, terminated
):
    driver = FakeDriver()
    queue = event_queue(driver)
    driver.queue.answers = [
        answer(*events, now=now, waiting=waiting, dropped=dropped, terminated=terminated)
    ]

    assert [
        (received.kind.value, *received[3:], received.payload) for received in queue.take(0)
    ] == [(kind, *texts) for kind, _, *texts in events]
    reasons = "progress_queue_full", "lifecycle_queue_full", "failed_in_jvm", "connection_lost"
    assert queue.drops == dict(zip(reasons, (*dropped, 0), strict=True))
    assert (queue.depth, queue.terminated) == (waiting, terminated)


@given(st.text(st.sampled_from("0123456789x-:" + FIELD + RECORD), max_size=40))
def test_text_that_is_no_answer_raises_only_a_value_error(text):
    driver = FakeDriver()
    queue = event_queue(driver)
    driver.queue.answers = [text]
    driver.queue.jobCounts = lambda: text
    driver.queue.taskSums = lambda since: text
    for ask in (partial(queue.take, 0), queue.job_counts, queue.tasks):
        with suppress(ValueError):
            ask()


@given(st.dictionaries(TEXTS, st.tuples(COUNTS, COUNTS, COUNTS, COUNTS), max_size=5))
def test_job_counts_are_read_as_they_were_written(counts):
    lines = [FIELD.join([query, *map(str, numbers)]) + RECORD for query, numbers in counts.items()]
    by_query = {query: JobCounts(*numbers) for query, numbers in counts.items()}

    assert job_counts(f"7{RECORD}" + "".join(lines)) == CountedJobs(by_query, first_job=7)


SUMS = st.tuples(*[st.integers(min_value=0, max_value=2**53)] * 8)
SPREADS = st.one_of(st.none(), st.tuples(*[st.integers(min_value=0, max_value=2**31)] * 5, TEXTS))
BATCHES = st.tuples(CLOCKS, SUMS, COUNTS, SPREADS)


@given(st.dictionaries(TEXTS, st.tuples(SUMS, st.lists(BATCHES, max_size=2)), max_size=5))
def test_sums_of_tasks_are_read_as_they_were_written(written):
    driver = FakeDriver()
    queue = event_queue(driver)
    records = [[2]]
    for query_id, (sums, batches) in written.items():
        records.append([query_id, *sums])
        for batch_id, of_batch, waited, spread in batches:
            records[-1] += [batch_id, *of_batch, waited, *(spread or [""] * 6)]
    text = "".join(FIELD.join(map(str, record)) + RECORD for record in records)
    driver.queue.taskSums = lambda since: text

    assert queue.tasks() == {
        query_id: QueryTasks(in_seconds(sums), tuple(batch_tasks(*batch) for batch in batches))
        for query_id, (sums, batches) in written.items()
    }


def in_seconds(sums):
    tasks, run, cpu, gc, wait, *of_bytes = sums
    return TaskSums(tasks, run / 1e3, cpu / 1e9, gc / 1e3, wait / 1e3, *of_bytes)


def batch_tasks(batch_id, sums, waited, spread):
    wide = None
    if spread is not None:
        stage, tasks, median, longest, partition, host = spread
        wide = StageSpread(stage, tasks, median / 1e3, longest / 1e3, partition, host)
    return BatchTasks(batch_id, in_seconds(sums), waited / 1e3, wide)


def test_only_sums_that_have_changed_are_asked_for_and_a_garbled_answer_is_asked_for_again(
    driver, queue
):
    def sums(*numbers):
        return FIELD.join(map(str, numbers)) + RECORD

    first, garbled = sums(2) + sums("a", *range(8)) + sums("b", *range(8)), sums(3) + sums("a", 1)
    answers = [first, garbled, sums(4) + sums("a", *range(10, 18))]
    asked = []
    driver.queue.taskSums = lambda since: asked.append(since) or answers[len(asked) - 1]
    before = dict(queue.tasks())
    with pytest.raises(ValueError, match="unpack"):
        queue.tasks()
    after = queue.tasks()

    assert asked == [0, 2, 2]
    assert after["b"] is before["b"]
    assert (before["a"].sums.tasks, after["a"].sums.tasks) == (0, 10)


@pytest.mark.parametrize(
    ("lost", "seen"),
    [
        ([], LostExecutors()),
        (
            ["Executor heartbeat timed out", 2e9, 1e9],
            LostExecutors((2.0, 1.0), "Executor heartbeat timed out"),
        ),
        # As YARN says it, and with a secret in it.
        (["Exit status: 137.\nContainer killed", 5e8], LostExecutors((0.5,), "Exit status: 137.")),
        (["failed: password=hunter2", 0], LostExecutors((0.0,), "failed: password=[redacted]")),
        (["", 0], LostExecutors((0.0,), "")),
        ([" \n\nContainer killed", 0], LostExecutors((0.0,), "Container killed")),
        # What is cut off comes last: a part of a secret would not be known as one.
        (
            [f"{'x' * 270} https://deploy:hunter2hunter2@store/x", 0],
            LostExecutors((0.0,), f"{'x' * 270} https://deploy:[redacted]@sto"),
        ),
    ],
)
def test_lost_executors_are_read_with_why_the_last_one_was(lost, seen):
    head = FIELD.join(["7", *(item if isinstance(item, str) else f"{item:.0f}" for item in lost)])

    assert job_counts(f"{head}{RECORD}").lost == seen


@pytest.mark.parametrize(("median", "usual"), [("", None), ("2100000000", 2.1)])
def test_longest_task_is_read_with_its_place_and_what_is_usual(median, usual):
    fields = "", 1, 1, 7, 2, 4, 17, "host-3", 690000000000, median, 2
    counts = job_counts(f"4{RECORD}{FIELD.join(map(str, fields))}{RECORD}").by_query

    assert counts[UNOWNED].longest == LongTask(4, 17, "host-3", 690.0, usual, as_long=2)


def test_events_of_a_lost_answer_are_counted(driver, queue):
    driver.queue.answers = [answer(started(0)), answer(started(1), started(2)), answer(started(3))]
    queue.take(1.0)
    driver.queue.take(0)
    queue.take(1.0)

    assert queue.drops["connection_lost"] == 2


def test_process_is_alone_until_an_answer_names_another(driver, queue):
    driver.queue.answers = [answer(), answer(watchers="7:s-7 5:s-5"), answer(watchers="7:s-7")]
    owners = [queue.ownership]
    for _ in range(3):
        queue.take(1.0)
        owners.append(queue.ownership)

    assert owners[:2] == [ALONE, ALONE]
    assert [owner.is_alone for owner in owners[2:]] == [False, True]
    assert [owner.covers("s-5") for owner in owners[2:]] == [False, True]
    assert [owner.covers("s-7") for owner in owners[2:]] == [True, True]
    assert not owners[3].is_own("s-5")


def test_claim_does_not_count_what_ended_since_then_as_reported(driver, queue, monkeypatch):
    """Until its first answer, the JVM's clock is unknown."""
    claimed = "9:s-9 left:120000000000000:s-2"
    monkeypatch.setattr(driver.queue, "claim", lambda session: claimed)
    queue.listen(driver)

    assert not queue.ownership.was_reported("s-2", 50.0)
    assert not queue.ownership.is_own("s-2")


def test_queue_is_created_with_limits_and_all_queries_of_the_context(driver, queue):
    limits = PROGRESS_CAPACITY, LIFECYCLE_CAPACITY

    assert driver.queue.prepared == (driver.executions, driver, PROCESS, *limits)


def test_waits_jobs_claims_and_wakes_go_to_the_jvm(driver, queue):
    driver.queue.answers = [answer()] * 3
    for timeout in (0, 0.25, 1.0):
        queue.take(timeout)
    queue.listen(driver)
    queue.wake()

    assert queue.job_counts() == CountedJobs({"id-a": JobCounts(3, 1, 40, 2)}, first_job=7)
    assert driver.queue.waits == [0, 250, 1000]
    assert (driver.queue.claims, driver.queue.wakes) == (["session-1"], 1)


def test_closed_queue_is_empty_and_makes_no_call_to_the_jvm(driver, queue):
    java = driver.queue
    queue.release()
    queue.release()
    queue.wake()

    assert (queue.take(60.0), queue.java) == ([], None)
    assert (java.closes, java.waits, java.wakes) == (1, [], 0)


def test_queue_that_failed_to_close_is_not_used_again(driver, queue):
    def refuse():
        raise Py4JError("refused")

    driver.queue.close = refuse
    with pytest.raises(Py4JError):
        queue.release()

    assert queue.take(1.0) == []


def take(driver, queue, clock, *, jvm_now, at, latency=0.0):
    """Our arrival time of one event that arrived at ``at`` on the JVM's clock, in seconds."""
    clock.now = OURS + jvm_now + latency
    driver.queue.answers.append(answer(started(round(at * 1e9)), now=round(jvm_now * 1e9)))
    (received,) = queue.take(1.0)
    return received.at - OURS


OURS = 5000.0
"""Our clock's time when the JVM's clock shows 0."""


def test_fastest_answer_so_far_sets_the_clock_offset(driver, queue, clock):
    slow = take(driver, queue, clock, jvm_now=10.0, at=9.0, latency=0.7)
    fast = take(driver, queue, clock, jvm_now=11.0, at=9.0, latency=0.1)
    slower = take(driver, queue, clock, jvm_now=30.0, at=9.0, latency=12.0)

    assert [slow, fast, slower] == pytest.approx([9.7, 9.1, 9.1])


SECONDS = st.floats(min_value=0, max_value=1000)


@given(st.lists(st.tuples(SECONDS, SECONDS, SECONDS), min_size=1, max_size=10))
def test_event_never_seems_later_than_its_answer_or_earlier_than_it_was(rounds):
    """Each round: the pause since the last one, the age of its event, the latency of its answer."""
    driver, clock = FakeDriver(), Clock()
    queue, jvm_now, fastest = event_queue(driver, clock), 0.0, float("inf")
    for pause, age, latency in rounds:
        jvm_now += pause
        fastest = min(fastest, latency)
        at = jvm_now - age
        seen = take(driver, queue, clock, jvm_now=jvm_now, at=at, latency=latency)

        assert at - 1e-6 <= seen <= at + fastest + 1e-6
        assert seen <= jvm_now + latency + 1e-6


def test_classes_compiled_together_have_names_of_their_own_and_import_each_name_once(driver):
    """Py4J caches methods by class name, and would call those of an earlier class."""
    for _ in range(2):
        compile_in_driver(driver.sparkContext._jvm)
    names = "|".join(SOURCES)
    first, second = (
        set(re.findall(rf"\bclass ((?:{names})\w+)", source)) for source in driver.sources
    )
    source = driver.sources[0]
    imports = re.findall(r"^import (.*);$", source, re.MULTILINE)

    assert len(first) == len(second) == len(SOURCES)
    assert first.isdisjoint(second)
    assert re.findall(rf"\b(?:{names})\b", source) == []
    assert len(imports) == len(set(imports)) > 0
    assert source.startswith("import ")
    assert source.rindex("\nimport ") < source.index("class ")
