"""The black box of one process: what it records, where, and for whom it waits."""

import threading
from collections import Counter

import pytest
from support.patience import WALL, until
from support.story import progress
from support.worker_harness import WorkerHarness

from querypulse.alerting.delivery.deliveries import Attempt
from querypulse.core.folders import LocalFolder
from querypulse.core.guard import Guard
from querypulse.listener.events import Started
from querypulse.recording import recorder
from querypulse.recording.lines import AlertChanged, End, Event, How, Notification, SeenFrom, decode
from querypulse.recording.recorder import STEPS_BEFORE, About
from querypulse.settings.settings import Settings
from querypulse.sidecar.black_box import (
    MOST_READ,
    BlackBox,
    evaluation_settings,
    first_and_newest,
)

CONFLICT = "io.delta.exceptions.ConcurrentAppendException: concurrent"


class Recorded:
    """A worker whose evaluations a black box records, into ``folder`` if there is one."""

    def __init__(self, folder=None) -> None:
        self.harness = WorkerHarness()
        self.box = BlackBox(
            About(app="etl", seen_from=SeenFrom.DRIVER),
            Guard(),
            folder=folder,
            wall=lambda: WALL + self.harness.clock.now,
        )
        self.box.start()

    def step(self) -> None:
        self.harness.step()
        self.box.offer(self.harness.published[-1])

    def fails(self):
        """Let a query fail; return its incident."""
        self.harness.started().commit()
        self.step()
        self.harness.ended(exception=CONFLICT)
        self.step()
        return self.harness.offers[-1][0]

    def recovers(self) -> None:
        self.harness.receive(Started("id-a", "a-2", "a"))
        for batch in range(1, 20):
            self.harness.receive(progress("a", run=2, batch=batch))
            self.step()


@pytest.fixture
def recorded():
    boxes = []

    def make(folder=None):
        boxes.append(Recorded(folder))
        return boxes[-1]

    yield make
    for one in boxes:
        one.box.close(5.0)


def lines_of(folder, kind):
    files = sorted(folder.glob("2*.jsonl"))
    return [
        line
        for file in files
        for line in decode(file.read_bytes(), file.name).lines
        if isinstance(line, kind)
    ]


def test_healthy_driver_records_nothing_and_makes_no_folder(recorded, tmp_path):
    folder = tmp_path / "incidents"
    driver = recorded(LocalFolder(folder))
    driver.harness.started()
    for batch in range(5):
        driver.harness.commit(batch=batch)
        driver.step()
    driver.box.close(5.0)

    assert not folder.exists()
    assert driver.box.summaries() == []


def test_incident_is_in_its_file_while_it_is_open_and_the_message_names_that_file(
    recorded, tmp_path
):
    driver = recorded(LocalFolder(tmp_path))
    incident = driver.fails()
    driver.box.attempted(Attempt(WALL, "webhook", incident, "delivered"))

    until(lambda: lines_of(tmp_path, Notification), "the notification is recorded")
    assert [file.name for file in tmp_path.iterdir()] == [f"{incident.recording}.jsonl"]
    assert [line.alertname for line in lines_of(tmp_path, AlertChanged)] == ["StreamingQueryFailed"]
    assert lines_of(tmp_path, End) == []


def test_incident_that_ended_is_listed_with_its_story(recorded, tmp_path):
    driver = recorded(LocalFolder(tmp_path))
    identity = driver.fails().recording
    driver.recovers()

    until(lambda: lines_of(tmp_path, End), "the recording ends")
    (summary,) = driver.box.summaries()
    assert (summary.id, summary.query, summary.until is None) == (identity, "a", False)
    assert driver.box.timeline(identity).summary == summary
    assert driver.box.timeline("20260101T000000Z-etl-other-123456") is None


def test_incident_is_open_only_while_its_own_process_records_it(recorded, tmp_path):
    driver = recorded(LocalFolder(tmp_path))
    identity = driver.fails().recording

    until(lambda: lines_of(tmp_path, AlertChanged), "its file is written")
    assert [summary.how for summary in driver.box.summaries()] == ["open"]
    timeline = driver.box.timeline(identity)
    assert timeline.summary.how == "open"
    assert timeline.answers["ended"] == "It is still open: StreamingQueryFailed of a."
    assert "breaks off" not in "".join(moment.text for moment in timeline.moments)
    # Another process sees a file that may have broken off.
    other = recorded(LocalFolder(tmp_path)).box
    until(other.summaries, "it is listed there, too")
    assert [summary.how for summary in other.summaries()] == ["open where the recording breaks off"]


def test_without_a_folder_the_newest_incidents_are_kept_in_memory(recorded):
    driver = recorded()
    identity = driver.fails().recording

    until(lambda: [summary.id for summary in driver.box.summaries()] == [identity], "it is listed")
    assert driver.box.place == driver.box.problem == ""


def test_process_that_ends_in_order_says_so_and_the_next_one_goes_on_in_a_second_file(
    recorded, tmp_path
):
    first = recorded(LocalFolder(tmp_path))
    incident = first.fails()
    first.box.close(5.0)
    second = recorded(LocalFolder(tmp_path))
    second.box.inherit([incident])
    second.harness.worker._lifecycle.restore([incident], second.harness.clock())
    second.step()
    second.recovers()

    name = incident.recording
    until(lambda: len(lines_of(tmp_path, End)) == 2, "both files end")
    assert {line.how for line in lines_of(tmp_path, End)} == {How.RESOLVED, How.CLOSED}
    files = {file.name: decode(file.read_bytes(), "").begin for file in tmp_path.iterdir()}
    assert files.keys() == {f"{name}.jsonl", f"{name}.2.jsonl"}
    assert files[f"{name}.2.jsonl"].continues == name
    (summary,) = second.box.summaries()
    assert summary.parts == (name, f"{name}.2")


def test_next_process_overwrites_no_file_where_the_first_ones_were_deleted(recorded, tmp_path):
    first = recorded()
    incident = first.fails()
    for number in (3, 4):
        (tmp_path / f"{incident.recording}.{number}.jsonl").write_bytes(b"kept")
    second = recorded(LocalFolder(tmp_path))
    second.box.inherit([incident])
    second.harness.worker._lifecycle.restore([incident], second.harness.clock())
    second.step()

    newest = tmp_path / f"{incident.recording}.5.jsonl"
    until(newest.exists, "the fifth file begins")
    kept = [file.read_bytes() for file in tmp_path.iterdir() if file != newest]
    assert kept == [b"kept", b"kept"]


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ({}, []),
        ({"x": 1}, ["x"]),
        ({"x": MOST_READ * 2}, ["x"]),
        ({"x.2": 1, "x": 1, "x.10": 1}, ["x", "x.10", "x.2"]),
        ({"x": 1, "x.2": MOST_READ, "x.3": 1, "x.10": 1}, ["x", "x.10", "x.3"]),
    ],
)
def test_of_very_many_files_of_one_incident_the_first_and_the_newest_are_read(sizes, expected):
    assert first_and_newest(sizes) == expected


@pytest.mark.parametrize(("queries", "own", "others"), [(3, 40, 40), (8, 40, 15), (30, 40, 5)])
def test_what_came_before_is_mostly_of_the_query_itself(recorded, tmp_path, queries, own, others):
    driver = recorded(LocalFolder(tmp_path))
    labels = ["a", *(f"other-{number}" for number in range(queries - 1))]
    for label in labels:
        driver.harness.started(label)
        for batch in range(60):
            text = f'{{"progress":{{"id":"id-{label}","batchId":{batch}}}}}'
            driver.box.ring.add(f"id-{label}", "progress", text, driver.harness.clock.now)
    driver.fails()

    until(lambda: lines_of(tmp_path, AlertChanged), "the incident is recorded")
    counts = Counter(line.query for line in lines_of(tmp_path, Event))
    assert counts == {"a": own} | dict.fromkeys(labels[1:], others)


class HangingFolder(LocalFolder):
    """Every write hangs until ``released``."""

    def __init__(self, path) -> None:
        super().__init__(path)
        self.released = threading.Event()
        self.hangs = threading.Event()

    def write(self, name, content):
        self.hangs.set()
        self.released.wait()
        super().write(name, content)


def test_folder_that_hangs_holds_up_neither_the_worker_nor_the_end(recorded, tmp_path):
    folder = HangingFolder(tmp_path)
    driver = recorded(folder)
    driver.fails()
    until(folder.hangs.is_set, "the folder hangs")
    for _ in range(500):
        driver.box.offer(driver.harness.published[-1])
    driver.box.close(0.1)

    # All of this returned while the folder hung.
    assert not folder.released.is_set()
    folder.released.set()


def test_while_the_folder_hangs_few_evaluations_and_each_notification_wait(recorded, tmp_path):
    folder = HangingFolder(tmp_path)
    driver = recorded(folder)
    incident = driver.fails()
    until(folder.hangs.is_set, "the folder hangs")
    for number in range(100):
        driver.step()
        driver.box.attempted(Attempt(WALL + number, f"receiver-{number}", incident, "delivered"))
    assert len(driver.box._evaluated) == STEPS_BEFORE
    folder.released.set()

    until(lambda: len(lines_of(tmp_path, Notification)) == 100, "all notifications are recorded")


class RefusingFolder(LocalFolder):
    """Every write is refused."""

    def write(self, name, content):
        raise OSError(28, "No space left on device")


def test_folder_that_refuses_is_a_problem_and_the_incident_is_still_listed(
    recorded, tmp_path, caplog
):
    driver = recorded(RefusingFolder(tmp_path))
    identity = driver.fails().recording

    until(lambda: driver.box.problem, "the problem is known")
    assert "No space left on device" in driver.box.problem
    assert [summary.id for summary in driver.box.summaries()] == [identity]
    assert len([line for line in caplog.messages if "No space left" in line]) == 1


def test_status_shows_how_many_incidents_are_not_recorded(recorded, monkeypatch):
    monkeypatch.setattr(recorder, "MOST_OPEN", 0)
    driver = recorded()
    driver.fails()
    driver.step()

    until(lambda: driver.box.published.left_out == 1, "it is counted once")
    assert driver.box.published.place is None


def test_settings_of_a_recording_are_those_of_an_evaluation_and_hold_no_address():
    settings = Settings(
        webhook_url="https://hooks.example.com/secret",
        stall_floor_seconds=30.0,
        expected_queries=("a",),
        queries={"b*": {"ignore": True, "heartbeat_url": "https://beats.example.com/secret"}},
    )
    recorded = evaluation_settings(settings)

    assert "secret" not in str(recorded)
    assert recorded["stall_floor_seconds"] == 30.0
    assert recorded["expected_queries"] == ("a",)
    assert recorded["queries"] == {"b*": {"ignore": True}}
