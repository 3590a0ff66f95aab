"""The pre-flight says once what is risky in how a job is set up, and nothing where it may be meant."""

from __future__ import annotations

import logging
import threading
from queue import Queue
from types import SimpleNamespace

import pytest
from msgspec.structs import replace
from py4j.protocol import Py4JError
from pyspark.sql.streaming.query import StreamingQuery
from support.patience import PATIENCE_SECONDS, until
from support.published_states import full_story
from support.story import Story, run

from querypulse.alerting.policy import Limits, Policy
from querypulse.listener.python_frames import stack_of, waits_for_one_query
from querypulse.settings.settings import QuerySettings
from querypulse.sidecar import Settings
from querypulse.sidecar import preflight as preflight_module
from querypulse.sidecar.preflight import Preflight, Surroundings, known_risks, risks
from querypulse.sidecar.session import scheduler_mode

LINE = "job line /jobs/orders.py:41 in main"
ONCE = "AvailableNowTrigger"
TEMPORARY = "file:/tmp/temporary-0f6e4bb4-6c11-4f61-9a3f-1b8f7b3b0c5e"
SHARED = "s3a://lake/checkpoints"
BAD = {
    "is_interactive": False,
    "is_connect": False,
    "scheduler_mode": "FIFO",
    "waits_for_one": lambda: LINE,
    "is_awaited": lambda: False,
    "is_read": lambda: False,
}
"""All that can be risky, is."""
ALL = {
    *("waits_for_one_query", "unnamed_query", "nothing_expected"),
    *("one_scheduler_pool", "nobody_watches"),
}
LATE = preflight_module.UNREAD_SECONDS + 1


def with_facts(run, **facts):
    return replace(run, facts=replace(run.facts, **facts))


def job(*names, trigger="ProcessingTimeTrigger(0)", checkpoint=SHARED):
    """Queries of these names, seen from 0 on."""
    runs = [run(name, trigger=trigger) for name in names]
    return Story().probe(*(with_facts(run, checkpoint=checkpoint) for run in runs), at=0)


def codes(story, at=LATE, *, expected=(), settings=None, **around):
    found = risks(
        story.state.snapshot(at),
        Policy(expected=expected),
        settings or Settings(),
        Surroundings(**BAD | around),
    )
    return [risk.code for risk in found]


# -- what is not said -------------------------------------------------------------------------


QUIET = {
    "nothing runs": (Story(), {}),
    "finite runs": (job("a", "b", trigger=ONCE), {}),
    "a notebook": (job("a", "b"), {"is_interactive": True}),
    "Spark Connect": (job("a", "b"), {"is_connect": True}),
    "queries that have ended": (job("a", "b").ended("a", at=1).ended("b", at=1), {}),
    "queries that were about to start": (job("a", "b"), {"at": 5}),
    "a start just now": (job("a", "b").probe(run("a"), run("b"), run("c"), at=LATE - 5), {}),
}


@pytest.mark.parametrize(("story", "how"), QUIET.values(), ids=QUIET.keys())
def test_nothing_is_said(story, how):
    assert codes(story, **how) == []


SPARED = {
    "one query only": (job("a"), {}, ALL - {"nobody_watches"}),
    "one query beside finite runs": (
        job("a").probe(with_facts(run("b", trigger=ONCE), checkpoint=SHARED), at=1),
        {},
        ALL - {"nobody_watches"},
    ),
    "await_any_failure or supervise": (
        job("a", "b"),
        {"is_awaited": lambda: True},
        {"waits_for_one_query"},
    ),
    "a finite run, which may be the one that is waited for": (
        job("a", "b").probe(
            *(with_facts(run(name), checkpoint=SHARED) for name in ("a", "b")),
            with_facts(run("nightly", trigger=ONCE), checkpoint=SHARED),
            at=1,
        ),
        {},
        {"waits_for_one_query"},
    ),
    "another way to wait": (job("a", "b"), {"waits_for_one": str}, {"waits_for_one_query"}),
    "names": (job("a", "b"), {}, {"unnamed_query"}),
    "expected queries": (job("a", "b"), {"expected": ("a",)}, {"nothing_expected"}),
    "fair pools": (job("a", "b"), {"scheduler_mode": "FAIR"}, {"one_scheduler_pool"}),
    "an unknown scheduler": (job("a", "b"), {"scheduler_mode": ""}, {"one_scheduler_pool"}),
    "somebody reads it": (job("a", "b"), {"is_read": lambda: True}, {"nobody_watches"}),
    "before a watcher may have polled": (job("a", "b"), {"at": LATE - 30}, {"nobody_watches"}),
    "a heartbeat": (
        job("a", "b"),
        {"settings": Settings(heartbeat_url="https://hc.example.com/ping/x")},
        {"nobody_watches"},
    ),
    "a heartbeat's file": (
        job("a", "b"),
        {"settings": Settings(heartbeat_url_file="/run/secrets/heartbeat")},
        {"nobody_watches"},
    ),
    "a heartbeat of a query": (
        job("a", "b"),
        {"settings": Settings(queries={"a": {"heartbeat_url": "https://hc.example.com/x"}})},
        {"nobody_watches"},
    ),
    "pushed metrics": (
        job("a", "b"),
        {"settings": Settings(pushgateway_url="https://push.example.com")},
        {"nobody_watches"},
    ),
}


@pytest.mark.parametrize(("story", "how", "spared"), SPARED.values(), ids=SPARED.keys())
def test_what_is_covered_is_not_said(story, how, spared):
    assert not spared & set(codes(story, **how))


def test_shared_storage_is_no_risk_for_a_checkpoint():
    for place in (SHARED, "abfss://c@a.dfs.core.windows.net/cp", "dbfs:/cp", "hdfs://nn/cp"):
        assert not any("checkpoint" in code for code in codes(job("a", checkpoint=place)))


# -- what is said -----------------------------------------------------------------------------


def test_each_risk_of_several_queries_is_said_with_its_remedy():
    story = job("a", "b", "c")
    found = risks(story.state.snapshot(LATE), Policy(), Settings(), Surroundings(**BAD))
    texts = {risk.code: risk.text for risk in found}

    assert set(texts) == ALL - {"unnamed_query"}
    assert texts["waits_for_one_query"] == (
        f"the main thread waits for one of 3 queries ({LINE}): the job goes on without each other "
        "one that fails. Call sidecar.await_any_failure() there"
    )
    remedies = {"nothing_expected": "expected_queries", "one_scheduler_pool": "FAIR"}
    remedies["nobody_watches"] = "heartbeat_url"
    assert all(remedy in texts[code] for code, remedy in remedies.items())


def test_queries_without_a_name_are_counted():
    story = Story().probe(run("a"), with_facts(run("b"), name=None), at=0)
    found = risks(story.state.snapshot(LATE), Policy(), Settings(), Surroundings(**BAD))
    (text,) = [risk.text for risk in found if risk.code == "unnamed_query"]

    assert text.startswith("1 of 2 queries have no name (")
    assert "queryName" in text


@pytest.mark.parametrize(("place", "code"), [(TEMPORARY, "temporary"), ("file:/tmp/cp", "local")])
def test_checkpoint_that_a_start_may_not_find_is_said_at_once_of_any_query(place, code):
    """Also of one query, a finite run, and in a notebook: it loses data there, too."""
    story = Story().probe(with_facts(run("a", trigger=ONCE), checkpoint=place), at=0)

    assert codes(story, at=0, is_interactive=True) == [f"{code}_checkpoint"]


def temporary(story, at, **policy):
    found = risks(story.state.snapshot(at), Policy(**policy), Settings(), Surroundings(**BAD))
    return [risk.queries for risk in found if risk.code == "temporary_checkpoint"]


def test_checkpoint_is_said_of_queries_that_run_and_are_not_ignored():
    story = job("a", "b", checkpoint=TEMPORARY)
    assert temporary(story, 1.0) == [("a", "b")]
    ignored = (("b", {"ignore": True}),)
    assert temporary(story, 1.0, overrides=ignored) == [("a",)]
    assert temporary(story.ended("a", at=2).ended("b", at=2), 3.0) == []


# -- said once --------------------------------------------------------------------------------


def test_each_risk_is_one_line_in_the_log_and_shown_while_it_lasts(caplog):
    waits = [LINE]
    around = Surroundings(**BAD | {"waits_for_one": lambda: waits[0]})
    preflight, story = Preflight(Settings(), around), job("a", "b")
    with caplog.at_level(logging.INFO, "querypulse"):
        for at in (30.0, 31.0, 90.0, LATE, LATE + 2):
            preflight.check(story.state.snapshot(at), Policy())
        assert len(caplog.records) == len(preflight.risks) == 4
        waits[0] = ""
        preflight.check(story.state.snapshot(LATE + 4), Policy())
        assert "waits_for_one_query" not in {risk.code for risk in preflight.risks}
        waits[0] = LINE
        story.started("c", at=LATE + 5).started("b", 2, at=LATE + 6)
        preflight.check(story.state.snapshot(LATE + 60), Policy())

    assert len(caplog.records) == 4
    assert {record.levelno for record in caplog.records} == {logging.WARNING}
    assert caplog.records[0].getMessage().startswith("querypulse: pre-flight: the main thread")
    assert caplog.records[0].getMessage().endswith("(waits_for_one_query)")


def test_query_that_starts_later_with_a_temporary_checkpoint_is_said_too(caplog):
    preflight = Preflight(Settings(), Surroundings(**BAD))
    story = job("a", checkpoint=TEMPORARY)
    runs = [with_facts(run(name), checkpoint=TEMPORARY) for name in ("a", "b")]
    with caplog.at_level(logging.INFO, "querypulse"):
        preflight.check(story.state.snapshot(1.0), Policy())
        preflight.check(story.probe(*runs, at=3600).state.snapshot(3601.0), Policy())
        preflight.check(story.state.snapshot(3603.0), Policy())
    texts = [record.getMessage() for record in caplog.records]

    assert ["the checkpoint of a, b" in text for text in texts if "temporary" in text] == [
        False,
        True,
    ]


def test_two_hundred_queries_are_one_line_each():
    story = job(*(f"q{number}" for number in range(200)))
    found = risks(story.state.snapshot(LATE), Policy(), Settings(), Surroundings(**BAD))

    assert all(len(risk.text) < 400 for risk in found)


# -- promises -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("promised", "interval", "said"),
    [(60.0, 60_000, True), (60.0, 59_000, False), (None, 60_000, False)],
)
def test_promise_that_a_trigger_interval_breaks_is_said_at_once(promised, interval, said):
    story = job("a", trigger=f"ProcessingTimeTrigger({interval})")
    policy = Policy(defaults=Limits(freshness_seconds=promised))
    found = risks(story.state.snapshot(1.0), policy, Settings(), Surroundings(**BAD))

    assert [(risk.code, risk.queries) for risk in found] == (
        [("promise_below_trigger", ("a",))] if said else []
    )


def test_promise_without_a_spool_is_shown_by_the_settings_alone():
    promised = Settings(
        expected_queries=("a",), queries={"a": QuerySettings(freshness_seconds=60.0)}
    )

    assert [risk.code for risk in known_risks(promised)] == ["promise_without_spool"]
    assert known_risks(replace(promised, spool_dir="/spool")) == ()


# -- what the settings show alone ---------------------------------------------------------------


def test_settings_alone_show_some_risks_before_a_start():
    assert [risk.code for risk in known_risks(Settings())] == ["nothing_expected"]
    blind = Settings(http_port=-1, expected_queries=("a",))
    assert [risk.code for risk in known_risks(blind)] == ["nobody_watches"]
    pushed = Settings(
        http_port=-1, expected_queries=("a",), pushgateway_url="https://push.example.com"
    )
    assert known_risks(pushed) == ()


# -- what is observed ---------------------------------------------------------------------------


def waiting_main_thread(monkeypatch, call):
    """Where a thread that is taken for the main thread waits, while it is in ``call``."""
    jvm = Queue()
    query = StreamingQuery(SimpleNamespace(awaitTermination=jvm.get, name=lambda: "a"))
    thread = threading.Thread(target=call, args=(query,), daemon=True)
    monkeypatch.setattr(threading, "main_thread", lambda: thread)
    thread.start()
    until(lambda: any(code is Queue.get.__code__ for code, _ in stack_of(thread.ident)), "it waits")
    line = waits_for_one_query()
    jvm.put(True)
    thread.join(PATIENCE_SECONDS)
    return line


def waits_without_end(query):
    query.awaitTermination()


def waits_a_while(query):
    query.awaitTermination(30)


def waits_in_spark_by_another_name(query):
    query._jsq.awaitTermination()


def test_only_a_wait_without_end_for_one_query_is_recognized(monkeypatch):
    line = waiting_main_thread(monkeypatch, waits_without_end)
    assert line.startswith("job line ")
    assert line.endswith("in waits_without_end")
    for call in (waits_a_while, waits_in_spark_by_another_name):
        assert waiting_main_thread(monkeypatch, call) == ""


def test_job_with_a_thread_for_each_query_waits_for_no_single_one(monkeypatch):
    jvm = Queue()
    other = StreamingQuery(SimpleNamespace(awaitTermination=jvm.get, name=lambda: "b"))
    waiter = threading.Thread(target=other.awaitTermination, daemon=True)
    waiter.start()
    until(lambda: any(code is Queue.get.__code__ for code, _ in stack_of(waiter.ident)), "it waits")
    assert waiting_main_thread(monkeypatch, waits_without_end) == ""
    jvm.put(True)
    waiter.join(PATIENCE_SECONDS)


def test_main_thread_that_runs_or_has_ended_waits_for_nothing(monkeypatch):
    assert waits_for_one_query() == ""
    ended = threading.Thread(target=str)
    ended.start()
    ended.join()
    monkeypatch.setattr(threading, "main_thread", lambda: ended)

    until(lambda: stack_of(ended.ident) == [], "it has ended")
    assert waits_for_one_query() == ""


def test_scheduler_mode_is_that_of_the_application():
    def spark(get):
        return SimpleNamespace(conf=SimpleNamespace(get=get))

    def refused(name, default):
        raise Py4JError("not allowed")

    assert scheduler_mode(spark(lambda name, default: "fair")) == "FAIR"
    assert scheduler_mode(spark(lambda name, default: None)) == "FIFO"
    assert scheduler_mode(spark(refused)) == ""


def test_story_with_everything_does_not_break_it():
    story = full_story()
    for at in (0.0, 50.0, 1e6):
        assert all(
            risk.text and risk.code
            for risk in risks(story.state.snapshot(at), Policy(), Settings(), Surroundings(**BAD))
        )
