"""The table of the demo's eighth query, and the scenarios that strike it."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import pytest
from support.patience import PATIENCE_SECONDS, until
from support.repository import ROOT

from querypulse.commands.demo import pipeline as pipeline_module
from querypulse.commands.demo.pipeline import (
    ALERTS,
    AlertTable,
    ConcurrentAppendException,
    FilePipeline,
)
from querypulse.commands.demo.scenarios import NONE, SCENARIOS

RUNBOOKS = ROOT / "dashboards" / "runbooks"


@pytest.fixture
def pausing(monkeypatch):
    """Replace the pauses of the pipeline by a function."""

    def replace(pause):
        replaced = SimpleNamespace(sleep=pause, monotonic=time.monotonic, time=time.time)
        monkeypatch.setattr(pipeline_module, "time", replaced)

    return replace


@pytest.fixture
def table(tmp_path):
    return AlertTable(tmp_path)


def test_merge_keeps_existing_rows_and_the_later_action_wins(table):
    assert table.read() == (-1, {})
    for number in range(12):
        table.merge({"a": "open", "b": "open"} if number else {"a": "open"})
    table.merge({"b": "resolved", "c": "open"})

    assert table.read() == (12, {"a": "open", "b": "resolved", "c": "open"})


def test_second_writer_fails_the_merge_and_keeps_its_own_rows(table):
    table.merge({"a": "open"})
    table.rival = lambda: table.commit(1, {"a": "compacted"})
    with pytest.raises(ConcurrentAppendException, match="version 1 was committed by another"):
        table.merge({"b": "open"})

    assert table.read() == (1, {"a": "compacted"})
    table.rival = lambda: None
    table.merge({"b": "open"})
    assert table.read() == (2, {"a": "compacted", "b": "open"})


def test_compaction_writes_the_same_rows_as_a_new_version(table):
    table.merge({"a": "open"})
    table.compact()

    assert table.read() == (1, {"a": "open"})


# -- scenarios ------------------------------------------------------------------------------------


def test_scenario_raises_an_alert_that_has_a_runbook():
    for scenario in SCENARIOS.values():
        assert (scenario.alertname is None) == (scenario.name == NONE)
        if scenario.alertname is not None:
            assert (RUNBOOKS / f"{scenario.alertname}.md").is_file()
            assert scenario.within_seconds > 0


def test_supervision_ends_the_job_only_for_ended_queries():
    ending = {name for name, scenario in SCENARIOS.items() if scenario.ends_supervised}

    assert ending == {"failure", "stop", "upstream"}


class AlertBatch:
    """What the alert query gets as a batch, without Spark."""

    def select(self, *_):
        return self

    def collect(self):
        return [{"alert_id": "b", "action": "CREATE"}]


class AlertQuery:
    """Merges until it fails, as the alert query does."""

    def __init__(self, pipeline):
        self.status = {"isTriggerActive": False}
        self.failures = []
        self.stopped = threading.Event()
        self._pipeline = pipeline
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        while not self.failures and not self.stopped.wait(0.01):
            try:
                self._pipeline._pair(AlertBatch(), 0)
            except ConcurrentAppendException as error:
                self.failures.append(error)

    def stop(self):
        self.stopped.set()

    def join(self):
        self._thread.join(PATIENCE_SECONDS)


@pytest.fixture
def pipeline(tmp_path):
    """A job on files whose alert query runs, without Spark."""
    pipeline = FilePipeline(tmp_path, 2, lambda _: None)
    pipeline.table.merge({"a": "open"})
    pipeline.queries[ALERTS] = AlertQuery(pipeline)
    yield pipeline
    pipeline.stop()
    pipeline.queries[ALERTS].join()


def test_failure_scenario_causes_one_conflict_with_a_second_writer(pipeline):
    before = time.time()
    failed_at = SCENARIOS["failure"].strike(pipeline)
    pipeline.queries[ALERTS].join()

    assert before <= failed_at <= time.time()
    assert len(pipeline.queries[ALERTS].failures) == 1
    assert pipeline.table.read()[1]["a"] == "open"


def test_failure_is_known_while_the_second_writer_still_commits(pipeline, monkeypatch):
    """Its commit may take ten seconds, which are not the time from the failure to the page."""
    commit, go_on, commits = pipeline._commit_as_another, threading.Event(), []

    def slowly():
        commit()
        commits.append(go_on.wait(PATIENCE_SECONDS))

    monkeypatch.setattr(pipeline, "_commit_as_another", slowly)
    SCENARIOS["failure"].strike(pipeline)
    assert commits == []
    go_on.set()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_second_writer_that_breaks_ends_the_failure_scenario(pipeline, monkeypatch):
    monkeypatch.setattr(pipeline, "_commit_as_another", lambda: 1 / 0)
    with pytest.raises(TimeoutError, match="caused no conflict"):
        SCENARIOS["failure"].strike(pipeline)


def test_failure_scenario_times_out_if_no_query_runs(pipeline, monkeypatch):
    monkeypatch.setattr(pipeline_module, "CONFLICT_SECONDS", 0.05)
    pipeline.stop_query(ALERTS)
    pipeline.queries[ALERTS].join()
    with pytest.raises(TimeoutError, match="caused no conflict"):
        SCENARIOS["failure"].strike(pipeline)


def test_hang_scenario_blocks_the_query_until_the_lock_is_released(pipeline, pausing):
    waiting = threading.Semaphore(0)
    pausing(lambda _: waiting.release())
    SCENARIOS["hang"].strike(pipeline)
    assert waiting.acquire(timeout=PATIENCE_SECONDS)
    stuck_at, _ = pipeline.table.read()
    for _ in range(3):
        assert waiting.acquire(timeout=PATIENCE_SECONDS)

    assert pipeline.table.read()[0] == stuck_at
    pipeline.lock.unlink()
    until(lambda: pipeline.table.read()[0] > stuck_at, "the query goes on")


def test_stop_scenario_stops_the_query(pipeline):
    SCENARIOS["stop"].strike(pipeline)

    assert pipeline.queries[ALERTS].stopped.is_set()


def test_query_is_stopped_between_two_batches(pipeline, pausing):
    query = pipeline.queries[ALERTS]
    query.status = {"isTriggerActive": True}
    was_stopped = []

    def pause(_):
        was_stopped.append(query.stopped.is_set())
        query.status = {"isTriggerActive": len(was_stopped) < 3}

    pausing(pause)
    pipeline.stop_query(ALERTS)

    assert was_stopped == [False, False, False]
    assert query.stopped.is_set()
