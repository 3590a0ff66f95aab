"""What /metrics has, parsed by Prometheus' own parsers."""

from __future__ import annotations

import math

import pytest
from msgspec.structs import replace
from support.published_states import (
    FORMATS,
    WALL,
    full_published,
    of_query,
    published,
    samples,
    text,
    values,
)
from support.receiver_incidents import alert
from support.story import CONFLICT, Lake, Story, progress, run

from querypulse.alerting.finding import QueryHealth
from querypulse.core.states import STATES, QueryState
from querypulse.exporter import metrics
from querypulse.exporter.metrics import DROP_REASONS
from querypulse.exporter.published_state import (
    ALERT_LABELS,
    Buckets,
    Monitor,
    Timing,
    alerts_last_open,
)
from querypulse.exporter.status import status
from querypulse.listener.events import Observed
from querypulse.listener.probe_report import Context
from querypulse.listener.state.flow import (
    PATH,
    TABLE,
    TOPIC,
    Dataset,
    Declared,
    Flow,
    Node,
    flow_of,
)
from querypulse.listener.state.history import BUCKETS
from querypulse.listener.state.identity import base_label


def test_batch_histogram_is_cumulative_up_to_infinity():
    story = Story().started(at=0)
    for batch, seconds in enumerate((0.05, 0.1, 7.0, 99999.0)):
        story.commit(batch=batch, at=100_000 * (batch + 1), seconds=seconds)
    buckets = of_query(published(story), "a", "batch_duration_seconds_bucket")
    assert len(buckets) == len(BUCKETS) + 1
    assert [buckets[(str(bound),)] for bound in (0.1, 5.0, 10.0, 3600.0)] == [2, 2, 3, 3]
    assert buckets[("+Inf",)] == 4


def test_unknown_figures_and_values_that_are_no_numbers_are_absent():
    odd = progress(batch=1, state_rows=-1, input_rows_per_second=math.nan,
                   processed_rows_per_second=math.inf)  # fmt: skip
    story = Story().started(at=0)
    new = {sample.name for sample in samples(published(story, monitor=Monitor()))}
    story.state.apply_event(odd, 10)
    shown = published(story)
    absent = (
        "last_commit_timestamp_seconds", "last_commit_batch_id", "last_activity_timestamp_seconds",
        "batch_in_flight_seconds", "no_progress_seconds", "watermark_timestamp_seconds",
        "state_rows", "input_rows_per_second",
    )  # fmt: skip

    assert new & {f"spark_streaming_query_{name}" for name in absent} == set()
    assert not [name for name in new if "heartbeat" in name or "driver_expected" in name]
    assert "NaN" not in text(shown)
    for name in ("state_rows", "input_rows_per_second", "processed_rows_per_second"):
        assert of_query(shown, "a", name) == {}


@pytest.mark.parametrize(
    ("trigger", "expected"),
    [("ContinuousTrigger(1000)", {}), ("ProcessingTimeTrigger(0)", {(): 0})],
)
def test_rows_of_a_query_that_spark_counts_no_rows_of_are_absent(trigger, expected):
    shown = published(Story().started(at=0).probe(run(trigger=trigger), at=1))

    for name in ("input_rows_total", "output_rows_total", "late_rows_dropped_total"):
        assert of_query(shown, "a", name) == expected


def test_rank_of_a_state_is_higher_the_worse_it_is():
    """The dashboards show it by name: WORST_FIRST of ``test_grafana_dashboards.py``."""
    shown = published(Story().started(at=0))
    ranks = {}
    for state in STATES:
        health = {"a": QueryHealth(QueryState(state))}
        (ranks[state],) = of_query(replace(shown, health=health), "a", "state_rank").values()

    assert ranks == {state: 15 - place for place, state in enumerate(STATES)}


def test_values_that_users_observe_may_be_negative():
    seen = (Observed("orders", "refunded", -12.5), Observed("orders", "change", -1.0))
    story = Story().started("a", at=0).commit("a", batch=1, at=10, observed=seen)

    assert values(published(story), "spark_streaming_query_observed", app="shop", query="a") == {
        ("orders.refunded",): -12.5,
        ("orders.change",): -1.0,
    }


# -- the monitor's own metrics ----------------------------------------------------------------


def test_every_series_names_its_app_and_the_heartbeat_is_one_series():
    """So that drivers whose series arrive at one Pushgateway or collector stay apart."""
    series = samples(full_published())

    assert {sample.name for sample in series if sample.labels.get("app") != "shop"} == set()
    assert {sample.name for sample in series if "heartbeat" in sample.name} == {
        "querypulse_driver_heartbeat_timestamp_seconds"
    }


def test_monitor_counts_known_kinds_from_0():
    shown = full_published(monitor=Monitor(receivers=("webhook",)))
    kinds = {
        "querypulse_events_total": "started progress idle terminated",
        "querypulse_events_dropped_total": " ".join(DROP_REASONS),
        "querypulse_deliveries_total": "delivered transient misconfigured rejected failed",
        "querypulse_alerts_lost_total": "evicted expired obsolete rejected",
    }
    for name, known in kinds.items():
        of_receiver = {} if "events" in name else {"receiver": "webhook"}
        assert values(shown, name, app="shop", **of_receiver) == {
            (kind,): 0 for kind in known.split()
        }
    for name in ("querypulse_receiver_circuit_open", "querypulse_outbox_pending"):
        assert values(shown, name, app="shop") == {("webhook",): 0}


def test_heartbeat_pings_are_counted_as_deliveries():
    monitor = Monitor(receivers=("webhook",), deliveries={"heartbeat": {"delivered": 3}})
    shown = full_published(monitor=monitor)

    assert values(shown, "querypulse_deliveries_total", app="shop", receiver="heartbeat") == {
        ("delivered",): 3
    }
    assert values(shown, "querypulse_alerts_lost_total", receiver="heartbeat") == {}


def test_alerts_with_one_name_are_counted_together():
    story = Story().started("a", at=0).started("b", at=0)
    story.ended("a", at=10, exception=CONFLICT).ended("b", at=10, exception=CONFLICT)
    firing = values(published(story), "querypulse_alerts_firing", app="shop")
    assert firing == {("StreamingQueryFailed", "critical"): 2}


def test_open_alert_has_a_series_of_its_cause_which_ends_with_it():
    story = Story().started("a", at=0).ended("a", at=10, exception=CONFLICT)
    shown = published(story)
    name = "spark_streaming_query_alert_cause"

    assert values(shown, name, app="shop") == {
        ("StreamingQueryFailed", "failed: ConcurrentAppendException", "a"): 1
    }
    assert values(replace(shown, alerts=()), name) == {}


ORDERS = ("orders", "StreamingQueryFailed", "critical")


@pytest.mark.parametrize(
    ("what", "open_at", "now", "series"),
    [
        ("open", [0, 5], 5, {ORDERS: 1}),
        ("open for an hour", [0, 3600], 3600, {ORDERS: 1}),
        ("just ended", [0], 1, {ORDERS: 0}),
        ("ended almost ten minutes ago", [0], 599, {ORDERS: 0}),
        ("ended ten minutes ago", [0], 600, {}),
        ("ended ten minutes after it had begun", [0, 300, 599], 900, {ORDERS: 0}),
        ("open again while it is 0", [0, 300], 300, {ORDERS: 1}),
        ("open again after it had gone", [0, 700], 700, {ORDERS: 1}),
        ("never open", [], 100, {}),
    ],
)
def test_series_of_an_alert_is_1_while_it_is_open_and_0_for_ten_minutes_afterwards(
    what, open_at, now, series
):
    failed, last_open = alert("orders", name="StreamingQueryFailed"), {}
    for at in [*open_at, now]:
        alerts = (failed,) if at in open_at else ()
        last_open = alerts_last_open(last_open, alerts, at)
    shown = replace(published(app="etl"), alerts=alerts, alerts_last_open=last_open)

    result = [sample for sample in samples(shown) if sample.name == "spark_streaming_query_alert"]
    assert {
        tuple(entry.labels[name] for name in ALERT_LABELS): entry.value for entry in result
    } == series


def test_begin_of_an_alert_is_that_of_its_present_episode_and_goes_with_it():
    began = replace(alert("orders", name="StreamingQueryFailed"), starts_at=WALL - 90)
    name = "spark_streaming_query_alert_start_timestamp_seconds"

    assert values(replace(published(app="etl"), alerts=(began,)), name, app="etl") == {
        ("StreamingQueryFailed", "orders", "critical"): WALL - 90
    }
    assert values(replace(published(app="etl"), alerts=()), name) == {}


def test_warning_that_becomes_critical_ends_and_another_series_begins():
    """The query of an alert of the whole driver is a star."""
    warning, critical = (
        alert("*", name="QuerypulseEventsMissing", severity=severity)
        for severity in ("warning", "critical")
    )
    last_open = alerts_last_open(alerts_last_open({}, [warning], 0), [critical], 1)
    shown = replace(published(app="etl"), alerts=(critical,), alerts_last_open=last_open)

    assert values(
        shown, "spark_streaming_query_alert", app="etl", query="*", alertname=critical.name
    ) == {("warning",): 0, ("critical",): 1}


# -- the heartbeat of a driver, and whether outside monitors should expect it to be alive -----


BEAT = {("shop",): WALL - 0.5}


def expected(story=None, **changes):
    return values(published(story, **changes), "querypulse_driver_expected_timestamp_seconds")


def committing() -> Story:
    return Story().started(at=0).commit(batch=1, at=90)


STOPPED_BY_APPLICATION = {"at": 94, "context": Context.STOPPED_BY_APPLICATION}
EXPECTED = {
    "runs": committing(),
    "idles": committing().idle(at=95),
    "failed": committing().ended(at=95, exception=CONFLICT),
    "vanished": committing().probe(run(), at=94).probe(at=95).probe(at=96),
    "another ended": committing().started("b", at=90).ended("b", at=95).expect_stop("b"),
}
NOT_EXPECTED = {
    "no query": Story(),
    "available now": Story().started(at=0).probe(run(trigger="AvailableNowTrigger"), at=1),
    "once": Story().started(at=0).probe(run(trigger="OneTimeTrigger"), at=1).ended(at=9),
    "to be stopped": committing().expect_stop(),
    "stopped": committing().expect_stop().ended(at=95),
    "Spark stopped": committing().probe(run(), **STOPPED_BY_APPLICATION),
}


def test_driver_is_expected_while_a_query_should_run_or_was_never_seen():
    shown = {name: expected(story, now=200.0) for name, story in EXPECTED.items()}

    assert shown == dict.fromkeys(EXPECTED, BEAT)
    assert expected(expected=("bronze",)) == BEAT
    assert [name for name, story in NOT_EXPECTED.items() if expected(story)] == []


# -- readers see the graph of queries, and how old the data at its end is ---------------------


def test_readers_see_the_neighbours_of_a_query_and_the_age_where_it_is_known():
    lake = Lake(bronze="landing", silver="bronze", gold="silver").batches(1, at=90)
    shown = replace(published(lake), flow=lake.evaluate(100).flow, passed={"silver": 88.0})
    queries = {query.name: query for query in status(shown).queries}

    assert (queries["silver"].upstream, queries["silver"].downstream) == (("bronze",), ("gold",))
    assert queries["bronze"].upstream == ()
    assert [dataset.name for dataset in queries["gold"].reads] == ["/lake/silver"]
    assert [dataset.name for dataset in queries["silver"].writes] == ["/lake/silver"]
    assert queries["bronze"].end_to_end_age_seconds is None
    assert queries["silver"].end_to_end_age_seconds == 12
    assert values(shown, "spark_streaming_query_end_to_end_age_seconds") == {("shop", "silver"): 12}
    assert values(shown, "spark_streaming_query_upstream") == {
        ("shop", "gold", "silver"): 1,
        ("shop", "silver", "bronze"): 1,
    }


def test_number_of_neighbours_is_bounded():
    names = [f"q{number}" for number in range(100)]
    every = dict.fromkeys(names, tuple(names))
    shown = replace(
        published(Lake(**dict.fromkeys(names, ""))), flow=Flow(upstream=every, downstream=every)
    )

    assert {len(query.upstream) for query in status(shown).queries} == {50}
    assert len(values(shown, "spark_streaming_query_upstream")) == 50 * len(names)


DATASETS = [
    (Dataset(TOPIC, "orders", ("b1:9092", "b2:9092")), ("kafka://b1:9092", "orders")),
    (Dataset(PATH, "/bronze", ("s3://lake",)), ("s3://lake", "/bronze")),
    (Dataset(PATH, "/in", ("file://",)), ("file", "/in")),
    (Dataset(PATH, "/in", ("hdfs://nn:8020",)), ("hdfs://nn:8020", "/in")),
    (Dataset(TABLE, "lake.db.orders"), ("catalog://lake", "db.orders")),
]


def test_datasets_of_a_query_have_series_by_the_names_of_openlineage():
    reads = {"a": tuple(dataset for dataset, _ in DATASETS)}
    writes = {"a": (Dataset(TOPIC, "sums", ("b1:9092",)),)}
    shown = replace(published(Story().started("a", at=0)), flow=Flow(inputs=reads, outputs=writes))

    assert values(shown, "spark_streaming_query_dataset") == {
        ("shop", "sums", "kafka://b1:9092", "output", "a"): 1,
        **{("shop", name, of, "input", "a"): 1 for _, (of, name) in DATASETS},
    }
    without = values(shown, "spark_streaming_query_datasets_without_series")
    assert without == {("shop", "a"): 0}


def test_datasets_beyond_the_limit_or_of_an_unknown_owner_are_counted():
    known = tuple(Dataset(TOPIC, f"t{number}", ("b:9092",)) for number in range(30))
    unknown = (Dataset(TOPIC, "orders"), Dataset(PATH, "/in"))
    shown = replace(
        published(Story().started("a", at=0)), flow=Flow(inputs={"a": (*unknown, *known)})
    )
    name = "spark_streaming_query_dataset"

    assert len(values(shown, name)) == 20
    assert values(shown, f"{name}s_without_series") == {("shop", "a"): 12}


def test_declared_datasets_have_series_as_those_that_spark_shows():
    topic = Dataset(TOPIC, "orders", ("b:9092",))
    flow = flow_of((Node("a", "a"),), (Declared("a*", reads=(topic,), writes=()),))
    shown = replace(published(Story().started("a", at=0)), flow=flow)

    assert values(shown, "spark_streaming_query_dataset") == {
        ("shop", "orders", "kafka://b:9092", "input", "a"): 1
    }


# -- however many queries a driver has, a scrape stays bounded --------------------------------


LIMIT = 5


def driver(*, ended=0, running=0):
    """A story of queries that have ended, and then of queries that run."""
    story = Story()
    for number in range(ended):
        story.started(f"ended-{number}", at=0).ended(f"ended-{number}", at=1 + number / 100)
    for number in range(running):
        story.started(f"running-{number}", at=2)
    return story


def doomed():
    story = driver(ended=2 * LIMIT, running=1)
    return story.started("doomed", at=2).ended("doomed", at=3, exception=CONFLICT)


RUNNING = [f"running-{number}" for number in range(LIMIT)]


@pytest.mark.parametrize(
    ("story", "known", "shown"),
    [
        (driver(running=LIMIT + 1), (), RUNNING),
        (driver(ended=LIMIT, running=LIMIT), (), RUNNING),
        (doomed(), (), ["running-0", "doomed", "ended-9", "ended-8", "ended-7"]),
        (driver(running=LIMIT), ("bronze", "running-4"), ["running-4", "bronze", *RUNNING[:3]]),
    ],
    ids=["oldest first", "running before ended", "failed before ended", "expected first"],
)
def test_queries_beyond_the_limit_are_counted_and_the_most_important_have_series(
    monkeypatch, story, known, shown
):
    monkeypatch.setattr(metrics, "MAX_QUERIES", LIMIT)
    state = published(story, expected=known)
    series = samples(state)

    assert [s.labels["query"] for s in series if s.name == "spark_streaming_query_active"] == shown
    assert values(state, "querypulse_queries_without_series") == {
        ("shop",): len(state.queries) - LIMIT
    }


def test_no_query_is_active_once_its_jvm_has_ended():
    story = Story().started(at=0).probe(run(), at=0)
    active = "spark_streaming_query_active"

    assert list(values(published(story), active).values()) == [1.0]
    story.probe(at=1, context=Context.JVM_GONE)
    assert list(values(published(story), active).values()) == [0.0]


# -- label values of every kind, and promtool's checks ----------------------------------------


HOSTILE = [
    "quotes \" and ' and `",
    "back\\slash \\n \\\\",
    "new\nline\r\nand\ttab",
    "umlaut ä, 漢字, 🙂, \u202e right to left",
    '"} 1\nfake_metric{x="',
    "",
    " ",
    "half a surrogate \ud800",
    "x" * 5000,
]


@pytest.mark.fault(
    "Names and texts",
    "Names with quotes, newlines, emoji, bidi marks, 5,000 characters",
    "The exposition is valid, and the label bounded",
)
@pytest.mark.parametrize(("parse", "render"), FORMATS, ids=["text", "openmetrics"])
def test_hostile_name_is_a_valid_label(parse, render):
    failures = {}
    for name in HOSTILE:
        shown = published(Story().started("q", at=0), expected=(name,), app=name)
        label, app = (text.encode("utf-8", "replace").decode() for text in (base_label(name), name))
        states = {
            (sample.labels["query"], sample.labels["app"])
            for sample in samples(shown, parse, render)
            if sample.name == "spark_streaming_query_state"
        }
        if states != {("q", app), (label, app)}:
            failures[name] = states
    assert failures == {}


# -- the value type behind histograms ---------------------------------------------------------


def test_p99_is_an_upper_limit_for_that_share_of_samples():
    cases = [
        ([], None),
        ([0.5], 1.0),
        ([0.5] * 99 + [5.0], 1.0),
        ([0.5] * 98 + [5.0] * 2, 10.0),
        ([0.5, 50.0], None),
    ]
    empty = Buckets.of(1.0, 10.0)
    for durations, p99 in cases:
        assert empty.add(durations).timing() == Timing(len(durations), sum(durations), p99)
