"""The monitor's own metrics."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from support.exporter_exposition import samples, values
from support.published_states import full_published, published
from support.receiver_incidents import alert
from support.story import CONFLICT, Story

from querypulse.exporter.published_state import (
    ALERT_LABELS,
    PROBE_BUCKETS,
    Monitor,
    alerts_last_open,
)


def test_monitor_counts_known_kinds_from_0():
    shown = full_published(monitor=Monitor(receivers=("webhook",)))
    assert values(shown, "querypulse_events_total") == {
        ("started",): 0, ("progress",): 0, ("idle",): 0, ("terminated",): 0,
    }  # fmt: skip
    assert values(shown, "querypulse_events_dropped_total") == {
        ("progress_queue_full",): 0, ("lifecycle_queue_full",): 0,
        ("progress_mailbox_full",): 0, ("lifecycle_mailbox_full",): 0,
        ("failed_in_jvm",): 0, ("connection_lost",): 0, ("undecodable",): 0, ("undecodable_part",): 0, ("forged",): 0,
    }  # fmt: skip
    assert values(shown, "querypulse_deliveries_total", receiver="webhook") == {
        ("delivered",): 0, ("transient",): 0, ("misconfigured",): 0,
        ("rejected",): 0, ("failed",): 0,
    }  # fmt: skip
    assert values(shown, "querypulse_alerts_lost_total", receiver="webhook") == {
        ("evicted",): 0, ("expired",): 0, ("obsolete",): 0, ("rejected",): 0,
    }  # fmt: skip
    assert values(shown, "querypulse_receiver_circuit_open") == {("webhook",): 0}
    assert values(shown, "querypulse_outbox_pending") == {("webhook",): 0}
    empty = published(monitor=Monitor())
    assert values(
        replace(empty, probe_durations=PROBE_BUCKETS), "querypulse_probe_duration_seconds_count"
    ) == {(): 0}


def test_heartbeat_pings_are_counted_as_deliveries():
    monitor = Monitor(receivers=("webhook",), deliveries={"heartbeat": {"delivered": 3}})
    shown = full_published(monitor=monitor)

    assert values(shown, "querypulse_deliveries_total", receiver="heartbeat") == {("delivered",): 3}
    assert values(shown, "querypulse_alerts_lost_total", receiver="heartbeat") == {}


def test_alerts_with_one_name_are_counted_together():
    story = Story().started("a", at=0).started("b", at=0)
    story.ended("a", at=10, exception=CONFLICT).ended("b", at=10, exception=CONFLICT)
    firing = values(published(story), "querypulse_alerts_firing")
    assert firing == {("StreamingQueryFailed", "critical"): 2}


ORDERS = ("etl", "orders", "StreamingQueryFailed", "critical")


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
    shown = replace(published(), alerts=alerts, alerts_last_open=last_open)

    result = [sample for sample in samples(shown) if sample.name == "spark_streaming_query_alert"]
    assert {
        tuple(entry.labels[name] for name in ALERT_LABELS): entry.value for entry in result
    } == series


def test_warning_that_becomes_critical_ends_and_another_series_begins():
    warning, critical = (
        alert("orders", name="StreamingBatchSlow", severity=severity)
        for severity in ("warning", "critical")
    )
    last_open = alerts_last_open(alerts_last_open({}, [warning], 0), [critical], 1)
    shown = replace(published(), alerts=(critical,), alerts_last_open=last_open)

    assert values(
        shown, "spark_streaming_query_alert", app="etl", query="orders", alertname=critical.name
    ) == {("warning",): 0, ("critical",): 1}


def test_alert_of_the_whole_driver_has_a_star_as_query():
    events_missing = alert("*", name="QuerypulseEventsMissing", severity="warning")
    shown = replace(published(), alerts=(events_missing,))

    assert values(shown, "spark_streaming_query_alert") == {
        ("QuerypulseEventsMissing", "etl", "*", "warning"): 1
    }
