"""The table of the demo's eighth query, and what befalls it there."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from support.queries import until

from querypulse.sidecar.demo.pipelines import pipeline as pipeline_module
from querypulse.sidecar.demo.pipelines.alert_table import AlertTable, ConcurrentAppendException
from querypulse.sidecar.demo.pipelines.file_pipeline import FilePipeline
from querypulse.sidecar.demo.pipelines.pipeline import ALERTS
from querypulse.sidecar.demo.pipelines.writer_lock import WriterLock
from querypulse.sidecar.demo.scenarios import NONE, SCENARIOS

RUNBOOKS = Path(__file__).parent.parent / "dashboards" / "runbooks"
PATIENCE_SECONDS = 10.0


@pytest.fixture
def table(tmp_path):
    return AlertTable(tmp_path)


def test_an_empty_table_has_no_version(table):
    assert table.read() == (-1, {})


def test_a_merge_keeps_what_was_there_and_the_later_action_wins(table):
    table.merge({"a": "open", "b": "open"})
    table.merge({"b": "resolved", "c": "open"})

    assert table.read() == (1, {"a": "open", "b": "resolved", "c": "open"})


def test_versions_go_on_past_nine(table):
    for number in range(12):
        table.merge({str(number): "open"})

    assert table.read()[0] == 11


def test_a_second_writer_makes_the_merge_fail_and_keeps_its_own_rows(table):
    table.merge({"a": "open"})
    table.rival = lambda: table.commit(1, {"a": "compacted"})
    with pytest.raises(ConcurrentAppendException, match="version 1 was committed by another"):
        table.merge({"b": "open"})

    assert table.read() == (1, {"a": "compacted"})


def test_after_a_conflict_trying_again_works(table):
    table.rival = lambda: table.commit(0, {})
    with pytest.raises(ConcurrentAppendException):
        table.merge({"a": "open"})
    table.rival = lambda: None
    table.merge({"a": "open"})

    assert table.read() == (1, {"a": "open"})


def test_a_version_is_never_written_twice(table):
    table.commit(0, {"a": "open"})
    with pytest.raises(ConcurrentAppendException):
        table.commit(0, {"a": "resolved"})

    assert table.read() == (0, {"a": "open"})


def test_compaction_writes_the_same_rows_as_a_new_version(table):
    table.merge({"a": "open"})
    table.compact()

    assert table.read() == (1, {"a": "open"})


# -- the lock ---------------------------------------------------------------------------------


@pytest.fixture
def lock(tmp_path):
    return WriterLock(tmp_path / "lock")


def test_a_lock_that_is_taken_keeps_others_waiting_until_it_is_given_back(lock):
    lock.take()
    passed = threading.Event()
    writer = threading.Thread(target=lambda: lock.wait() or passed.set())
    writer.start()
    assert not passed.wait(0.05)
    lock.give_back()
    writer.join(PATIENCE_SECONDS)

    assert passed.is_set()


def test_giving_a_lock_back_twice_does_no_harm(lock):
    lock.take()
    lock.give_back()
    lock.give_back()
    lock.wait()


# -- scenarios ------------------------------------------------------------------------------------


def test_the_scenarios_are_those_of_the_contract():
    assert list(SCENARIOS) == ["failure", "hang", "stop", "healthy"]


@pytest.mark.parametrize("scenario", SCENARIOS.values())
def test_a_scenario_is_reported_by_an_alert_that_has_a_runbook(scenario):
    assert (scenario.alertname is None) == (scenario.name == NONE)
    if scenario.alertname is not None:
        assert (RUNBOOKS / f"{scenario.alertname}.md").is_file()
        assert scenario.within_seconds > 0


def test_supervision_ends_a_job_for_those_that_are_gone_and_for_no_others():
    ending = {name for name, scenario in SCENARIOS.items() if scenario.ends_supervised}

    assert ending == {"failure", "stop"}


class Batch:
    """What the chosen query gets, without Spark."""

    def select(self, *_):
        return self

    def collect(self):
        return [{"alert_id": "b", "action": "CREATE"}]


class Query:
    """Merges until it dies, as the chosen query does."""

    def __init__(self, pipeline):
        self.status = {"isTriggerActive": False}
        self.deaths = []
        self.stopped = threading.Event()
        self._pipeline = pipeline
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        while not self.deaths and not self.stopped.wait(0.01):
            try:
                self._pipeline._pair(Batch(), 0)
            except ConcurrentAppendException as error:
                self.deaths.append(error)

    def stop(self):
        self.stopped.set()

    def join(self):
        self._thread.join(PATIENCE_SECONDS)


@pytest.fixture
def pipeline(tmp_path):
    """A job on files whose chosen query runs, without Spark."""
    pipeline = FilePipeline(tmp_path, 2, lambda _: None)
    pipeline.table.merge({"a": "open"})
    pipeline.queries[ALERTS] = Query(pipeline)
    yield pipeline
    pipeline.stop()
    pipeline.queries[ALERTS].join()


def test_who_dies_dies_of_a_second_writer_once_and_its_rows_stay(pipeline):
    before = time.time()
    died_at = SCENARIOS["failure"].strike(pipeline)
    pipeline.queries[ALERTS].join()

    assert before <= died_at <= time.time()
    assert len(pipeline.queries[ALERTS].deaths) == 1
    assert pipeline.table.read()[1]["a"] == "open"


def test_a_second_writer_that_finds_nobody_gives_up(pipeline, monkeypatch):
    monkeypatch.setattr(pipeline_module, "CONFLICT_SECONDS", 0.05)
    pipeline.stop_query(ALERTS)
    pipeline.queries[ALERTS].join()
    with pytest.raises(TimeoutError, match="caused no conflict"):
        SCENARIOS["failure"].strike(pipeline)


def test_who_hangs_hangs_in_a_lock_nobody_gives_back(pipeline):
    SCENARIOS["hang"].strike(pipeline)
    time.sleep(0.05)
    stuck_at, _ = pipeline.table.read()
    time.sleep(0.05)

    assert pipeline.table.read()[0] == stuck_at
    pipeline.lock.give_back()
    until(lambda: pipeline.table.read()[0] > stuck_at, "it goes on")


def test_who_stops_is_stopped(pipeline):
    SCENARIOS["stop"].strike(pipeline)

    assert pipeline.queries[ALERTS].stopped.is_set()


def test_who_is_healthy_is_left_alone(pipeline):
    stuck_at, _ = pipeline.table.read()
    SCENARIOS[NONE].strike(pipeline)
    until(lambda: pipeline.table.read()[0] > stuck_at, "it goes on")

    assert pipeline.queries[ALERTS].deaths == []


def test_a_query_is_stopped_between_two_batches(pipeline):
    query = pipeline.queries[ALERTS]
    query.status = {"isTriggerActive": True}
    stopping = threading.Thread(target=lambda: pipeline.stop_query(ALERTS))
    stopping.start()
    assert not query.stopped.wait(0.1)
    query.status = {"isTriggerActive": False}
    stopping.join(PATIENCE_SECONDS)

    assert query.stopped.is_set()
