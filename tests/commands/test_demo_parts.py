"""The parts of the demo work as the scenarios need, without Spark."""

from __future__ import annotations

import re
import threading
import time
from itertools import islice
from types import SimpleNamespace

import pytest
import requests
from support.patience import PATIENCE_SECONDS, until
from support.repository import ROOT

from querypulse.commands.demo import demo as demo_module
from querypulse.commands.demo import pipeline as pipeline_module
from querypulse.commands.demo.demo import (
    DemoOutput,
    DemoRun,
    PageReceiver,
    ReceivedAlert,
)
from querypulse.commands.demo.pipeline import (
    ALERTS,
    BRONZE,
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
    rows = [row for batch in islice(telemetry(), 200) for row in batch]
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


def test_page_receiver_keeps_each_alert_of_a_message():
    receiver = PageReceiver()
    alerts = [{"status": "firing", "labels": {"query": name}, "annotations": {}} for name in "ab"]
    answer = requests.post(receiver.url, json={"alerts": alerts}, timeout=PATIENCE_SECONDS)
    receiver.close()

    assert (answer.status_code, answer.content) == (200, b"")
    assert [page.labels["query"] for page in receiver.pages] == ["a", "b"]


def query(name, state):
    blank = dict.fromkeys(QueryStatus.__struct_fields__)
    return QueryStatus(**{**blank, "name": name, "state": state})


def test_number_of_healthy_queries_is_printed_only_when_it_changes(capsys):
    output = DemoOutput()
    healthy = [query("a", "running"), query("b", "idle")]
    for queries in (
        healthy,
        healthy,
        [*healthy[:1], query("b", "failed")],
        [*(query(name, "starting") for name in "abce"), query("d", "failed")],
    ):
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
    DemoOutput().page(page(summary="[etl] a failed", reason=reason, query_id="1", window=""), 0.123)
    printed = capsys.readouterr().out

    for text in ("0.12 s later", "StreamingQueryFailed", "critical", "[etl] a failed", "word59"):
        assert text in printed
    assert "query_id" not in printed
    assert "window" not in printed
    assert max(map(len, printed.splitlines())) <= 82
    DemoOutput().page(page(summary="[etl] a failed: E: boom", reason="E: boom"), 0)
    assert capsys.readouterr().out.count("boom") == 1
    DemoOutput().page(page("resolved", summary="Resolved: a commits again"), 5)
    assert capsys.readouterr().out.endswith("] Resolved: a commits again\n")


# -- where the main thread waits ----------------------------------------------------------------


class QueryAndSidecar:
    """A query and a sidecar in one; the demo waits for either."""

    url = None

    def __init__(self, failure=None):
        self.failure = failure
        self.over = threading.Event()
        self.waits_in = []

    def awaitTermination(self):
        self.waits_in.append("awaitTermination")
        assert self.over.wait(PATIENCE_SECONDS)

    def await_any_failure(self):
        if self.failure is not None:
            raise self.failure
        self.waits_in.append("await_any_failure")
        assert self.over.wait(PATIENCE_SECONDS)

    def stop(self):
        self.over.set()

    close = stop


@pytest.fixture
def run(monkeypatch):
    """Run the demo without Spark; ``play`` gets the run and returns whether it was as expected."""

    def run(job, play, *, supervised):
        def started(pipeline, _):
            pipeline.queries[BRONZE] = job

        def played(demo):
            demo.as_expected = play()

        spark = SimpleNamespace(stop=lambda: None, version="4.1.0")
        monkeypatch.setattr(demo_module, "local_spark", lambda *_: spark)
        monkeypatch.setattr(demo_module, "attach", lambda *_, **__: job)
        monkeypatch.setattr(demo_module.signal, "signal", lambda *_: None)
        monkeypatch.setattr(FilePipeline, "start", started)
        monkeypatch.setattr(FilePipeline, "stop", lambda _: None)
        monkeypatch.setattr(DemoRun, "_play", played)
        return demo_module.run(DemoSettings("healthy", supervised=supervised))

    return run


@pytest.mark.parametrize(
    ("supervised", "call"), [(False, "awaitTermination"), (True, "await_any_failure")]
)
@pytest.mark.parametrize(("as_expected", "code"), [(True, 0), (False, 1)])
def test_job_without_a_failure_waits_until_the_scenario_is_over(
    run, supervised, call, as_expected, code
):
    job, was_over = QueryAndSidecar(), []

    def play():
        until(lambda: job.waits_in == [call], "the main thread waits")
        was_over.append(job.over.is_set())
        return as_expected

    assert run(job, play, supervised=supervised) == code
    assert was_over == [False]


@pytest.mark.parametrize(("as_expected", "code"), [(True, 3), (False, 1)])
def test_failure_ends_the_wait_of_a_supervised_job(run, capsys, as_expected, code):
    job = QueryAndSidecar(QueryFailure("alerts", "boom"))

    assert run(job, lambda: as_expected, supervised=True) == code
    assert "await_any_failure() raises QueryFailure: boom" in capsys.readouterr().out


# -- scenarios ----------------------------------------------------------------------------------


def test_scenario_raises_an_alert_that_has_a_runbook():
    for name, scenario in SCENARIOS.items():
        assert (scenario.alertname is None) == (name == "healthy")
        if scenario.alertname is not None:
            assert (ROOT / "dashboards" / "runbooks" / f"{scenario.alertname}.md").is_file()
            assert scenario.within_seconds > 0


class AlertQuery:
    """Merges until it fails or is stopped, as the alert query does, without Spark."""

    def __init__(self, pipeline):
        self.status = {"isTriggerActive": False}
        self.failures = []
        self.stopped = threading.Event()
        rows = [{"alert_id": "b", "action": "CREATE"}]
        self._batch = SimpleNamespace(select=lambda *_: SimpleNamespace(collect=lambda: rows))
        self._pipeline = pipeline
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        while not self.failures and not self.stopped.wait(0.01):
            try:
                self._pipeline._pair(self._batch, 0)
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
    pipeline.queries[ALERTS] = AlertQuery(pipeline)
    until(lambda: pipeline.version > 0, "the query merges")
    yield pipeline
    pipeline.stop()
    pipeline.queries[ALERTS].join()


def test_failure_scenario_causes_one_conflict_with_a_second_writer(pipeline):
    before = time.time()
    failed_at = SCENARIOS["failure"].strike(pipeline)
    pipeline.queries[ALERTS].join()

    assert before <= failed_at <= time.time()
    (failure,) = pipeline.queries[ALERTS].failures
    assert f"version {pipeline.version} was committed by another writer" in str(failure)
    assert pipeline.alerts == {"b": "open"}


def test_failure_scenario_without_a_conflict_is_an_error(pipeline, monkeypatch):
    monkeypatch.setattr(pipeline_module, "CONFLICT_SECONDS", 0.05)
    SCENARIOS["stop"].strike(pipeline)
    pipeline.queries[ALERTS].join()
    with pytest.raises(TimeoutError, match="caused no conflict"):
        SCENARIOS["failure"].strike(pipeline)


def test_hang_scenario_blocks_the_query_until_the_table_is_free(pipeline, monkeypatch):
    awaited, is_free = threading.Event(), pipeline.is_free
    wait = is_free.wait
    monkeypatch.setattr(is_free, "wait", lambda: is_free.is_set() or awaited.set() or wait())
    SCENARIOS["hang"].strike(pipeline)
    assert awaited.wait(PATIENCE_SECONDS)
    stuck_at = pipeline.version
    pipeline.is_free.set()

    until(lambda: pipeline.version > stuck_at, "the query goes on")
