"""The parts of the demo work as the scenarios need, without Spark."""

from __future__ import annotations

import json
import re
import threading
from itertools import islice
from types import SimpleNamespace

import pytest
import requests
from support.patience import PATIENCE_SECONDS, until
from support.receivers import at

from querypulse.alerting.alert import Alert, Incident, incident_labels
from querypulse.commands.demo import demo as demo_module
from querypulse.commands.demo import pipeline as telemetry_module
from querypulse.commands.demo.demo import (
    DemoOutput,
    DemoRun,
    PageReceiver,
    ReceivedAlert,
    is_main_thread_in,
)
from querypulse.commands.demo.pipeline import (
    ALERTS,
    BRONZE,
    KINDS,
    SCHEMA,
    STATUS,
    FilePipeline,
    Fleet,
    domain_names,
    kind_of,
    telemetry,
)
from querypulse.commands.demo.scenarios import DemoSettings
from querypulse.examples.delta.delta_pipeline import DeltaPipeline
from querypulse.exporter.status import QueryStatus
from querypulse.sidecar import QueryFailure

# -- telemetry --------------------------------------------------------------------------------


def rows(batches=200, seed=1):
    return [row for batch in islice(telemetry(seed), batches) for row in batch]


def test_same_seed_produces_the_same_telemetry():
    assert rows(20) == rows(20)
    assert rows(20, seed=1) != rows(20, seed=2)


def test_every_row_fits_the_schema():
    columns = {column.split()[0] for column in SCHEMA.split(", ")}
    for row in rows():
        assert {"vehicle", "kind", "value"} <= set(row) <= columns


def test_every_kind_of_reading_appears_within_a_few_batches():
    assert {row["kind"] for row in rows(5)} == {*KINDS, "alert"}


def test_alert_is_resolved_only_once_and_only_after_it_was_created():
    actions = {}
    for row in rows():
        if row["kind"] == "alert":
            actions.setdefault(row["alert_id"], []).append(row["action"])

    assert all(
        actions_of_one in (["CREATE"], ["CREATE", "RESOLVE"]) for actions_of_one in actions.values()
    )
    assert 0 < sum(actions_of_one == ["CREATE"] for actions_of_one in actions.values()) <= 5


def test_every_action_has_a_status():
    assert {row["action"] for row in rows() if "action" in row} == set(STATUS)


def test_fleet_sends_telemetry_until_it_is_stopped(monkeypatch):
    monkeypatch.setattr(telemetry_module, "SECONDS_BETWEEN", 0.001)
    sent = []
    fleet = Fleet(sent.append)
    fleet.start()
    until(lambda: len(sent) >= 3, "three batches")
    fleet.stop()

    assert sent == list(islice(telemetry(), len(sent)))


def test_fleet_that_never_started_can_be_stopped():
    Fleet(print).stop()


def test_readings_are_written_as_whole_files_also_by_the_next_start(tmp_path):
    batches = list(islice(telemetry(), 3))
    for batch in batches:
        FilePipeline(tmp_path, 2, print).drop(batch)
    files = sorted((tmp_path / "landing").iterdir())

    assert [path.name for path in files] == ["000000.json", "000001.json", "000002.json"]
    assert [
        [json.loads(line) for line in path.read_text().splitlines()] for path in files
    ] == batches


# -- names ------------------------------------------------------------------------------------


def test_job_of_eight_queries_has_one_table_for_each_kind():
    assert domain_names(6) == [f"{kind}_status" for kind in KINDS]


def test_any_number_of_tables_gets_unique_names_of_kinds_that_are_sent():
    for count in (0, 1, 5, 7, 13, 40):
        names = domain_names(count)

        assert len(set(names)) == len(names) == count
        assert {name.partition("_")[0] for name in names} <= set(KINDS)
        assert {kind_of(name) for name in names} <= set(KINDS)


def test_second_table_of_a_kind_has_a_number():
    assert domain_names(8)[6:] == ["position_status_1", "battery_status_1"]


@pytest.mark.parametrize("kind", [FilePipeline, DeltaPipeline])
def test_bronze_starts_first_and_the_failing_query_last(tmp_path, kind):
    for queries in (2, 8, 20):
        names = kind(tmp_path, queries, print).names

        assert (names[0], names[-1], len(set(names))) == (BRONZE, ALERTS, queries)


# -- the page receiver --------------------------------------------------------------------------


@pytest.fixture
def receiver():
    receiver = PageReceiver()
    yield receiver
    receiver.close()


def alert(query, *, ends_at=None):
    labels = {
        "alertname": "StreamingQueryFailed",
        "app": "etl",
        "query": query,
        "severity": "critical",
    }
    return Alert(labels, {"summary": f"{query} is dead", "reason": "boom"}, 1000.0, ends_at)


def test_our_own_webhook_arrives_as_a_page(receiver):
    webhook = at("webhook", receiver.url)
    labels = incident_labels("etl", "bronze", {})
    for ends_at in (None, 1500.0):
        alerts = (alert("bronze", ends_at=ends_at),)
        webhook.send(Incident("key", labels, "critical", alerts), 2000.0)
    webhook.close()

    assert [(page.status, page.labels["query"]) for page in receiver.pages] == [
        ("firing", "bronze"),
        ("resolved", "bronze"),
    ]
    assert receiver.pages[0].annotations["reason"] == "boom"
    assert receiver.pages[0].arrived_at > 1000.0


def test_several_alerts_of_one_message_are_several_pages(receiver):
    assert receiver.url.startswith("http://127.0.0.1:")
    alerts = [{"status": "firing", "labels": {"query": name}, "annotations": {}} for name in "ab"]
    answer = requests.post(receiver.url, json={"alerts": alerts}, timeout=PATIENCE_SECONDS)

    assert (answer.status_code, answer.content) == (200, b"")
    assert [page.labels["query"] for page in receiver.pages] == ["a", "b"]


def test_get_request_creates_no_page(receiver):
    answer = requests.get(receiver.url, timeout=PATIENCE_SECONDS)

    assert answer.status_code == 501
    assert receiver.pages == []


def test_closed_receiver_accepts_no_connection():
    receiver = PageReceiver()
    receiver.close()
    with pytest.raises(requests.ConnectionError):
        requests.post(receiver.url, json={"alerts": []}, timeout=PATIENCE_SECONDS)

    assert not receiver._thread.is_alive()


# -- the output -------------------------------------------------------------------------------


def query(name, state):
    blank = dict.fromkeys(QueryStatus.__struct_fields__)
    return QueryStatus(**{**blank, "name": name, "state": state})


def test_number_of_healthy_queries_is_printed_only_when_it_changes(capsys):
    output = DemoOutput()
    healthy = [query("a", "running"), query("b", "idle")]
    starting = [query(name, "starting") for name in "abc"]
    for queries in (
        [],
        healthy,
        healthy,
        [*healthy[:1], query("b", "failed")],
        [query("a", "stalled")],
        [*starting, query("d", "failed")],
    ):
        output.queries(queries)
    lines = capsys.readouterr().out.splitlines()

    assert all(re.match(r"\[ +\d+\.\d s\] job", line) for line in lines)
    assert [line.partition("] ")[2] for line in lines] == [
        "job RUNNING, 0 of 0 queries healthy",
        "job RUNNING, 2 of 2 queries healthy",
        "job RUNNING, 1 of 2 queries healthy (b failed)",
        "job RUNNING, 0 of 1 queries healthy (a stalled)",
        "job RUNNING, 0 of 4 queries healthy (3 starting, d failed)",
    ]


def page(**annotations):
    labels = {
        "alertname": "StreamingQueryFailed",
        "query": "a",
        "severity": "critical",
        "app": "etl",
    }
    return ReceivedAlert(0.0, "firing", labels, annotations)


def test_page_shows_what_the_person_on_call_needs(capsys):
    DemoOutput().page(page(summary="[etl] a failed", reason="boom", query_id="1", window=""), 0.123)
    printed = capsys.readouterr().out

    for text in ("0.12 s later", "StreamingQueryFailed", "critical", "[etl] a failed", "boom"):
        assert text in printed
    assert "query_id" not in printed
    assert "window" not in printed


def test_resolved_page_is_one_line(capsys):
    labels = {"alertname": "StreamingQueryFailed", "query": "a", "severity": "critical"}
    headline = "Resolved: [etl] a commits again after 4 min"
    DemoOutput().page(
        ReceivedAlert(0.0, "resolved", labels, {"summary": headline, "reason": "boom"}), 5
    )

    assert capsys.readouterr().out.partition("] ")[2] == f"{headline}\n"


def test_reason_contained_in_the_headline_is_not_repeated(capsys):
    DemoOutput().page(page(summary="[etl] a failed: E: boom", reason="E: boom"), 0)

    assert capsys.readouterr().out.count("boom") == 1


def test_long_reason_is_wrapped_not_cut(capsys):
    reason = " ".join(f"word{number}" for number in range(60))
    DemoOutput().page(page(reason=reason), 0)
    printed = capsys.readouterr().out

    assert all(word in printed for word in reason.split())
    assert max(map(len, printed.splitlines())) <= 82


def test_facts_are_printed_in_the_given_order(capsys):
    DemoOutput().facts({"scenario": "failure", "page": "none"})

    assert capsys.readouterr().out == (
        "\nThe facts\n  scenario           failure\n  page               none\n"
    )


# -- where the main thread waits ----------------------------------------------------------------


class QueryAndSidecar:
    """A query and a sidecar in one; the demo waits for either."""

    def __init__(self, failure=None):
        self.failure = failure
        self.over = threading.Event()

    def awaitTermination(self):
        assert self.over.wait(PATIENCE_SECONDS)

    def await_any_failure(self):
        if self.failure is not None:
            raise self.failure
        assert self.over.wait(PATIENCE_SECONDS)

    def stop(self):
        self.over.set()

    close = stop


@pytest.fixture
def demo_of(tmp_path, receiver, monkeypatch):
    """A demo whose scenario only waits until the main thread does."""

    def make(job, *, supervised):
        settings = DemoSettings(scenario="healthy", supervised=supervised)
        pipeline = SimpleNamespace(
            queries={BRONZE: job}, lock=tmp_path / "lock", start=lambda _: None
        )
        return DemoRun(
            settings, job, pipeline, receiver, DemoOutput(), interrupted=threading.Event()
        )

    monkeypatch.setattr(DemoRun, "_play", lambda _: None)
    return make


@pytest.mark.parametrize(
    ("supervised", "call"), [(False, "awaitTermination"), (True, "await_any_failure")]
)
def test_job_without_a_failure_waits_until_the_scenario_is_over(
    demo_of, monkeypatch, supervised, call
):
    job, was_over = QueryAndSidecar(), []

    def play(_):
        until(lambda: is_main_thread_in(call), "the main thread waits")
        was_over.append(job.over.is_set())

    demo = demo_of(job, supervised=supervised)
    monkeypatch.setattr(DemoRun, "_play", play)

    assert demo.wait_with_job(None) is None
    assert was_over == [False]
    assert not is_main_thread_in(call)


def test_failure_ends_the_wait_of_a_supervised_job(demo_of, capsys):
    failure = QueryFailure("alerts", "boom")

    assert demo_of(QueryAndSidecar(failure), supervised=True).wait_with_job(None) is failure
    assert "await_any_failure() raises QueryFailure: boom" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("as_expected", "failure", "code"),
    [
        (True, None, 0),
        (True, QueryFailure("alerts", "boom"), 3),
        (False, None, 1),
        (False, QueryFailure("alerts", "boom"), 1),
    ],
)
def test_exit_code_shows_the_result_and_whether_the_job_failed(
    monkeypatch, as_expected, failure, code
):
    def wait(demo, _):
        demo.as_expected = as_expected
        return failure

    spark = SimpleNamespace(stop=lambda: None)
    monkeypatch.setattr(demo_module, "local_spark", lambda *_: spark)
    monkeypatch.setattr(demo_module, "_attach", lambda *_: QueryAndSidecar())
    monkeypatch.setattr(demo_module.signal, "signal", lambda *_: None)
    monkeypatch.setattr(DemoRun, "wait_with_job", wait)

    assert demo_module.run(DemoSettings()) == code
