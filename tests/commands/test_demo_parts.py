"""The parts of the demo work as the scenarios need, without Spark."""

from __future__ import annotations

import itertools
import re
import threading
import time
from types import SimpleNamespace

import pytest
from support.patience import PATIENCE_SECONDS, until

from querypulse.commands.demo import demo as demo_module
from querypulse.commands.demo import pipeline as pipeline_module
from querypulse.commands.demo.demo import DemoOutput, DemoRun, ReceivedAlert
from querypulse.commands.demo.pipeline import (
    ALERTS,
    BRONZE,
    CONFLICT_SECONDS,
    KINDS,
    SCHEMA,
    STATUS,
    ConcurrentAppendException,
    FilePipeline,
    domain_names,
    kind_of,
)
from querypulse.commands.demo.scenarios import SCENARIOS, DemoSettings
from querypulse.examples.delta.delta_pipeline import DeltaPipeline, telemetry
from querypulse.exporter.status import QueryStatus
from querypulse.sidecar import QueryFailure


def test_telemetry_has_every_kind_and_resolves_each_alert_at_most_once_after_its_creation():
    rows = [row for batch in itertools.islice(telemetry(), 200) for row in batch]
    columns, actions = {column.split()[0] for column in SCHEMA.split(", ")}, {}
    for row in rows:
        assert {"vehicle", "kind", "value"} <= set(row) <= columns
        if row["kind"] == "alert":
            actions.setdefault(row["alert_id"], []).append(row["action"])

    assert {row["kind"] for row in rows} == {*KINDS, "alert"}
    assert {tuple(entry) for entry in actions.values()} == {("CREATE",), ("CREATE", "RESOLVE")}
    assert STATUS.keys() == {"CREATE", "RESOLVE"}


@pytest.mark.parametrize("kind", [FilePipeline, DeltaPipeline])
def test_bronze_starts_first_and_the_failing_query_last(tmp_path, kind):
    for queries in (2, 8, 20):
        names = kind(tmp_path, queries, print).names
        assert (names[0], names[-1], len(set(names))) == (BRONZE, ALERTS, queries)
        assert {kind_of(name) for name in names[1:-1]} <= set(KINDS)
    assert domain_names(8)[5:] == ["tire_status", "position_status_1", "battery_status_1"]


def query(name, state):
    blank = dict.fromkeys(QueryStatus.__struct_fields__)
    return QueryStatus(**{**blank, "name": name, "state": state})


def test_number_of_healthy_queries_is_printed_only_when_it_changes(capsys):
    output = DemoOutput()
    healthy = [query("a", "running"), query("b", "idle")]
    one_failed = [*healthy[:1], query("b", "failed")]
    starting = [*(query(name, "starting") for name in "abce"), query("d", "failed")]
    for queries in (healthy, healthy, one_failed, starting):
        output.queries(queries)
    lines = capsys.readouterr().out.splitlines()

    assert all(re.match(r"\[ +\d+\.\d s\] job", line) for line in lines)
    assert [line.partition("] ")[2] for line in lines] == [
        "job RUNNING, 2 of 2 queries healthy",
        "job RUNNING, 1 of 2 queries healthy (b failed)",
        "job RUNNING, 0 of 5 queries healthy (a, b and 2 more starting, d failed)",
    ]


def page(status="firing", **annotations):
    labels = {"alertname": "StreamingQueryFailed", "query": "a", "severity": "critical"}
    return ReceivedAlert(0.0, status, labels, annotations)


def test_page_shows_what_the_person_on_call_needs(capsys):
    reason = " ".join(f"word{number}" for number in range(60))
    DemoOutput().page(
        page(summary="[etl] a failed", reason=reason, query_id="1", time_allowed=""), 0.123
    )
    printed = capsys.readouterr().out

    for text in ("0.12 s later", "StreamingQueryFailed", "critical", "[etl] a failed", "word59"):
        assert text in printed
    assert "query_id" not in printed
    assert "time_allowed" not in printed
    assert max(map(len, printed.splitlines())) <= 82
    DemoOutput().page(page(summary="[etl] a failed: E: boom", reason="E: boom"), 0)
    assert capsys.readouterr().out.count("boom") == 1


def test_page_before_the_scenario_began_is_not_timed(capsys):
    """On a slow machine a batch may be slow by itself."""
    DemoOutput().page(page(summary="[etl] a is slow"), None)

    assert "a page arrives\n" in capsys.readouterr().out
    DemoOutput().page(page("resolved", summary="Resolved: a commits again"), 5)
    assert capsys.readouterr().out.endswith("] Resolved: a commits again\n")


class QueryAndSidecar:
    """A query and a sidecar in one; the demo waits for either, until it is stopped or fails."""

    url = None

    def __init__(self, failure):
        self.failure = failure
        self.over = threading.Event()
        self.waits_in = []

    def awaitTermination(self):
        self.waits_in.append("awaitTermination")
        assert self.over.wait(PATIENCE_SECONDS)

    def await_any_failure(self):
        self.waits_in.append("await_any_failure")
        if self.failure is not None:
            raise self.failure
        assert self.over.wait(PATIENCE_SECONDS)

    def stop(self):
        self.over.set()

    close = stop


ENDS = [
    ("awaitTermination", None, True, 0),
    ("awaitTermination", None, False, 1),
    ("await_any_failure", None, True, 0),
    ("await_any_failure", QueryFailure("alerts", "boom"), True, 3),
    ("await_any_failure", QueryFailure("alerts", "boom"), False, 1),
]


@pytest.fixture
def run_demo(monkeypatch):
    """Run the demo of this job with a scenario and a start of the queries, without Spark."""

    def run(job, play, start=lambda: None, **settings):
        spark = SimpleNamespace(stop=lambda: None, version="4.1.0")
        monkeypatch.setattr(demo_module, "local_spark", lambda *_: spark)
        monkeypatch.setattr(demo_module, "attach", lambda *_, **__: job)
        monkeypatch.setattr(demo_module.signal, "signal", lambda *_: None)
        monkeypatch.setattr(
            FilePipeline, "start", lambda self, _: start() or self.queries.update(bronze=job)
        )
        monkeypatch.setattr(FilePipeline, "stop", lambda _: None)
        monkeypatch.setattr(DemoRun, "_play", play)
        return demo_module.run(DemoSettings("healthy", **settings))

    return run


@pytest.mark.parametrize("end", ENDS)
def test_job_waits_until_the_scenario_is_over_or_a_query_fails(run_demo, capsys, end):
    call, failure, as_expected, code = end
    job, was_over = QueryAndSidecar(failure), []

    def play(demo):
        until(lambda: job.waits_in == [call], "the main thread waits")
        was_over.append(job.over.is_set())
        demo.as_expected = as_expected

    assert run_demo(job, play, supervised=call == "await_any_failure") == code
    assert was_over == [False]
    assert ("raises QueryFailure: boom" in capsys.readouterr().out) == (failure is not None)


def test_demo_that_is_interrupted_while_its_queries_start_ends(run_demo):
    assert run_demo(QueryAndSidecar(None), lambda demo: demo.interrupted.set(), let_end) == 130


def test_demo_whose_output_cannot_be_written_ends_with_that_error(run_demo):
    """``exit_code`` makes 141 of it, as of ``demo | head``."""

    def play(_):
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        run_demo(QueryAndSidecar(None), play, let_end)


def let_end():
    """Give the scenario the time to end before a query has started."""
    (thread,) = (thread for thread in threading.enumerate() if thread.name == "demo-run")
    thread.join(0.2)


def test_second_writer_fails_the_next_merge_and_a_table_without_merges_is_an_error(
    tmp_path, monkeypatch
):
    pipeline = FilePipeline(tmp_path, 2, lambda _: None)
    rows = [{"alert_id": "b", "action": "CREATE"}]
    batch = SimpleNamespace(select=lambda *_: SimpleNamespace(collect=lambda: rows))
    pipeline._pair(batch, 0)
    looks = itertools.count(0.0, CONFLICT_SECONDS / 2)
    clock = SimpleNamespace(monotonic=lambda: next(looks), sleep=lambda _: None, time=time.time)
    monkeypatch.setattr(pipeline_module, "time", clock)
    with pytest.raises(TimeoutError, match="caused no conflict"):
        SCENARIOS["failure"].strike(pipeline)
    with pytest.raises(ConcurrentAppendException, match="version 2 was committed by another"):
        pipeline._pair(batch, 1)

    assert pipeline.alerts == {"b": "open"}
    assert SCENARIOS["failure"].strike(pipeline) <= time.time()
