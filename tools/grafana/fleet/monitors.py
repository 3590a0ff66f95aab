"""Whether alerts are delivered, and the health of the monitors themselves."""

from __future__ import annotations

from tools.grafana import links
from tools.grafana.fields import Json, column, fixed, good_below, lines_like, thresholds
from tools.grafana.links import runbook
from tools.grafana.palette import BLUE, GREEN, GREY, ORANGE, SKY, VERMILLION
from tools.grafana.panels import drawn, graph, now, table
from tools.grafana.promql import (
    driver,
    each,
    meanwhile,
    monitor,
    or_none,
    per_minute,
    per_second,
    quantile,
    silent_apps,
)

EVENTS = {"progress": GREEN, "idle": SKY, "started": BLUE, "terminated": GREY}


def pages() -> Json:
    """Messages that were delivered, failed or were lost."""
    by = "receiver"
    delivered = monitor("deliveries_total", 'outcome="delivered"')
    failed = monitor("deliveries_total", 'outcome!="delivered"')
    return graph(
        "Pages",
        "Messages to each receiver per minute. Good: *delivered* only. A *failed attempt* is "
        "retried until it succeeds; a message that was *given up* never arrives: read the driver's "
        "log, and run `querypulse test-alert`.",
        [
            drawn(per_minute(delivered, by=by), "delivered to {{receiver}}"),
            drawn(per_minute(failed, by=by), "failed attempts: {{receiver}}"),
            drawn(per_minute(monitor("alerts_lost_total"), by=by), "given up: {{receiver}}"),
        ],
        (14, 8),
        unit="cpm",
        at_least=1,
        empty="no receiver is configured",
        bars=True,
        overrides=[
            lines_like("^delivered", color=fixed(GREEN)),
            lines_like("^failed attempts", color=fixed(ORANGE)),
            lines_like("^given up", color=fixed(VERMILLION)),
        ],
    )


def receivers() -> Json:
    """Which receivers accept messages now."""
    bad = {
        "thresholds": thresholds(GREY, {1: VERMILLION}),
        "custom__cellOptions": {"type": "color-text"},
        "custom__width": 95,
    }
    by = "receiver, instance"
    circuit = each(monitor("receiver_circuit_open"), by=by)
    return table(
        "Receivers",
        "Good: nothing is waiting. If messages are *waiting* for longer than a minute, or the "
        "receiver is *failing* (its circuit is open after failures in a row), it accepts no "
        "messages now: notify people in another way. *given up* counts the time shown.",
        {
            "receiver": None,
            "waiting": now(each(monitor("outbox_pending"), by=by)),
            "failing": now(circuit),
            "given up": now(meanwhile(monitor("alerts_lost_total"), by=by)),
            "instance": None,
        },
        (10, 8),
        overrides=[
            column("waiting", **bad),
            column("failing", unit="bool_yes_no", **bad),
            column("given up", **bad),
            column("instance", links=[links.status_page_of_row()]),
        ],
        sort=("waiting", True),
        empty="no receiver is configured",
    )


def drivers() -> Json:
    """One row for each monitor."""
    by = "job, instance"
    text = {"type": "color-text"}
    bad = {"thresholds": thresholds(GREY, {1: ORANGE}), "custom__cellOptions": text}
    firing = each(monitor("alerts_firing"), by=by, how="sum")
    errors = meanwhile(monitor("internal_errors_total"), by=by)
    beat = good_below({15: ORANGE, 60: VERMILLION})
    return table(
        "Drivers",
        "One row for each monitor, silent ones that should be running included. Good: a heartbeat "
        "below 15 s, no lost events, no own errors, no queries *without series* (a driver shows "
        "1,000). If *unread events* only grow, or events are lost, this monitor misses events: "
        f"{runbook('QuerypulseEventsMissing')}, {runbook('QuerypulseMonitoringDegraded')}.",
        {
            "app": None,
            "instance": None,
            "job": None,
            "version": None,
            "there": now(each(monitor("build_info"), by=f"{by}, version")),
            "heartbeat": now(_heartbeat()),
            "open alerts": now(or_none(firing, by=by)),
            "unread events": now(each(monitor("mailbox_depth"), by=by)),
            "lost events": now(meanwhile(monitor("events_dropped_total"), by=by)),
            "own errors": now(or_none(errors, by=by)),
            "without series": now(each(monitor("queries_without_series"), by=by)),
        },
        (24, 6),
        overrides=[
            column("instance", links=[links.status_page_of_row()]),
            column(
                "heartbeat",
                unit="s",
                decimals=1,
                thresholds=beat,
                custom__cellOptions=text,
            ),
            column("lost events", **bad),
            column("own errors", **bad),
            column("without series", **bad),
        ],
        sort=("heartbeat", True),
        empty="no driver seen",
        unseen=["there"],
    )


def _heartbeat() -> str:
    """Of the monitors that report, and of those that should."""
    by = "job, instance, app"
    received = driver("heartbeat_timestamp_seconds")
    last = each(f"last_over_time({received}[1d])", by=by)
    return f"time() - ({each(received, by=by)} or {last} and on (app) {silent_apps()})"


def events() -> Json:
    """The events that the monitors receive."""
    received = per_second(monitor("events_total"), by="event")
    return graph(
        "Events received",
        "Events that Spark sends to its listeners, by kind. Good: progress as often as batches "
        f"end. None while batches run: {runbook('QuerypulseEventsMissing')}.",
        [drawn(received, "{{event}}")],
        (8, 8),
        unit="eps",
        overrides=[column(kind, color=fixed(color)) for kind, color in EVENTS.items()],
    )


def callback() -> Json:
    """What listening costs the job."""
    buckets = monitor("callback_duration_seconds_bucket")
    return graph(
        "Cost to the job: one event",
        "Time that one event holds Spark's listener thread for Python, 99th percentile. Empty on "
        "the event path bus_queue, which runs no Python there. Milliseconds: the driver has no CPU "
        "to spare.",
        [drawn(quantile(0.99, buckets, by="instance"), "{{instance}}")],
        (8, 8),
        unit="s",
        empty="no Python on Spark's threads",
    )


def probe() -> Json:
    """How fast the JVM answers the probe."""
    buckets = monitor("probe_duration_seconds_bucket")
    return graph(
        "One poll of Spark",
        "How long the probe waits for the JVM's answer, 99th percentile. Good: below 0.1 s. "
        "Seconds: garbage collection, or a JVM short of CPU. No line: the JVM does not answer, "
        f"{runbook('QuerypulseMonitoringDegraded')}.",
        [drawn(quantile(0.99, buckets, by="instance"), "{{instance}}")],
        (8, 8),
        unit="s",
        empty="the probe gets no answer",
    )
