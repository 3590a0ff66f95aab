"""The table of the demo's eighth query, and what befalls it there."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.queries import until

from querypulse.sidecar.demo.alert_table import AlertTable, ConcurrentAppendException
from querypulse.sidecar.demo.fates import FATES, NONE
from querypulse.sidecar.demo.pipeline import ALERTS

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


def test_a_locked_table_keeps_writers_waiting_until_it_is_unlocked(table):
    table.lock()
    merged = threading.Event()
    writer = threading.Thread(target=lambda: table.merge({"a": "open"}) or merged.set())
    writer.start()
    assert not merged.wait(0.05)
    assert table.read() == (-1, {})
    table.unlock()
    writer.join(PATIENCE_SECONDS)

    assert table.read() == (0, {"a": "open"})


def test_unlocking_twice_does_no_harm(table):
    table.lock()
    table.unlock()
    table.unlock()
    table.merge({"a": "open"})


# -- fates ------------------------------------------------------------------------------------


def test_the_fates_are_those_of_the_contract():
    assert list(FATES) == ["dies", "hangs", "stops", "healthy"]


@pytest.mark.parametrize("fate", FATES.values())
def test_a_fate_is_told_by_an_alert_that_has_a_runbook(fate):
    assert (fate.alertname is None) == (fate.name == NONE)
    if fate.alertname is not None:
        assert (RUNBOOKS / f"{fate.alertname}.md").is_file()
        assert fate.within_seconds > 0


def job(table):
    stopped = []
    return SimpleNamespace(table=table, stop_query=stopped.append, stopped=stopped)


def test_who_dies_dies_of_a_second_writer(table):
    pipeline, deaths = job(table), []
    table.merge({"a": "open"})

    def query():
        while not deaths:
            try:
                table.merge({"b": "open"})
            except ConcurrentAppendException as error:
                deaths.append(error)

    running = threading.Thread(target=query)
    running.start()
    struck_at = FATES["dies"].strike(pipeline)
    running.join(PATIENCE_SECONDS)

    assert struck_at > 0
    assert len(deaths) == 1
    assert table.read()[1]["a"] == "open"


def test_the_second_writer_strikes_once(table):
    deaths = []

    def query():
        for _ in range(3):
            until(lambda: deaths or table.rival.__name__ == "compaction", "the strike")
            try:
                table.merge({"b": "open"})
            except ConcurrentAppendException as error:
                deaths.append(error)

    running = threading.Thread(target=query)
    running.start()
    FATES["dies"].strike(job(table))
    running.join(PATIENCE_SECONDS)

    assert len(deaths) == 1


def test_who_hangs_hangs_in_a_lock_nobody_gives_back(table, tmp_path):
    FATES["hangs"].strike(job(table))
    merged = threading.Event()
    writer = threading.Thread(target=lambda: table.merge({"a": "open"}) or merged.set())
    writer.start()
    assert not merged.wait(0.05)
    table.unlock()
    writer.join(PATIENCE_SECONDS)

    assert merged.is_set()


def test_who_stops_is_stopped(table):
    pipeline = job(table)
    FATES["stops"].strike(pipeline)

    assert pipeline.stopped == [ALERTS]


def test_who_is_healthy_is_left_alone(table):
    pipeline = job(table)
    FATES[NONE].strike(pipeline)
    table.merge({"a": "open"})

    assert pipeline.stopped == []
