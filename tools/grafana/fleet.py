"""*Fleet*: every job and query at a glance. The first page to open when an alert fires."""

from __future__ import annotations

from tools.grafana.panels import (
    BLUE,
    GREEN,
    GREY,
    GROUND,
    LINE_LINKS,
    ORANGE,
    PURPLE,
    ROW_LINKS,
    RUNBOOK,
    SEVERITY_WORDS,
    SKY,
    STATE_WORDS,
    STATUS_PAGE,
    TEXT,
    VERMILLION,
    Json,
    Row,
    column,
    dashboard,
    fixed,
    good_below,
    graph,
    line,
    lines_like,
    stat,
    table,
    thresholds,
    timeline,
    wide,
)
from tools.grafana.promql import (
    OPEN_ALERTS,
    PROMETHEUS_ALERTS,
    age,
    driver,
    growth,
    in_states,
    max_by,
    monitor,
    now_open,
    open_for,
    per_minute,
    per_second,
    quantile,
    share_of_window,
    silent_apps,
    state_number,
    streaming,
    sum_by,
)

ROW = "app, query, instance"
MONITOR = "job, instance"
RECEIVER = "receiver, instance"
LEGEND = "{{app}} / {{query}}"


def fleet_dashboard() -> Json:
    """The dashboard as JSON."""
    rows: list[Row] = [
        ("", 4, _numbers()),
        ("", 7, [_open_alerts()]),
        ("", 9, [_states()]),
        ("", 12, [_queries()]),
        ("Progress", 8, _progress()),
        ("Streams that feed streams", 9, _chains()),
        ("Are alerts delivered?", 8, _delivery()),
        ("The monitors themselves", 6, [_drivers()]),
        ("", 8, _monitors()),
    ]
    return dashboard(
        "querypulse-fleet",
        "querypulse / Fleet",
        "Every Spark driver and every streaming query that querypulse watches, at a glance.",
        rows,
        one_query=False,
        other=("Query", "querypulse-query", "One query in depth"),
    )


def _numbers() -> list[Json]:
    heartbeats = driver("heartbeat_timestamp_seconds")
    opened = f"sum({now_open(OPEN_ALERTS)}) or 0 * count({streaming('query_active')})"
    return [
        stat(
            "Dead",
            "Queries that ended with an exception, or should be running and are not. Good: 0. "
            "Otherwise their data does not arrive: <StreamingQueryFailed>, "
            "<StreamingQueryStopped>, <StreamingQueryMissing>.",
            {"dead": _count_in("failed", "missing", "stopped_unexpectedly")},
            "no query seen",
            good_below({1: VERMILLION}),
        ),
        stat(
            "Stuck",
            "Queries that are alive and make no progress: no commit within their window, or they "
            "fail and restart repeatedly. Good: 0. <StreamingQueryStalled>, "
            "<StreamingOffsetsStalled>, <StreamingQueryFlapping>.",
            {"stuck": _count_in("stalled", "flapping")},
            "no query seen",
            good_below({1: PURPLE}),
        ),
        stat(
            "Degraded",
            "Queries that commit too slowly, with growing lag, or from offsets that went back. "
            "Good: 0. <StreamingBatchSlow>, <StreamingQueryLagging>, <StreamingOffsetsRewound>.",
            {"degraded": _count_in("rewound", "slow", "lagging", "watermark_stuck")},
            "no query seen",
            good_below({1: ORANGE}),
        ),
        stat(
            "Healthy",
            "Queries that make progress, or are known to have nothing to do. The rest of *all* are "
            "dead, stuck, degraded, starting, or completed.",
            {
                "healthy": _count_in("running", "idle", "waiting"),
                "of all": f"count({max_by(streaming('query_state'))})",
            },
            "no query seen",
        ),
        stat(
            "Silent drivers",
            "Applications that reported within a day, had queries that should keep running, and "
            "have sent no heartbeat for a minute. Good: 0. Otherwise this page knows nothing about "
            "their queries: <StreamingDriverDown>.",
            {"silent": f"count({silent_apps()}) or 0 * count({heartbeats})"},
            "no driver seen",
            good_below({1: VERMILLION}),
        ),
        stat(
            "Alerts open now",
            "Alerts that querypulse itself has open. Good: 0. The table below lists them.",
            {"open": opened},
            "no query seen",
            good_below({1: VERMILLION}),
        ),
    ]


def _count_in(*states: str) -> str:
    return f"sum({max_by(in_states(*states))})"


def _open_alerts() -> Json:
    return table(
        "Open alerts",
        "The alert links to its runbook, the query to its own dashboard. querypulse alerts within "
        "seconds. Prometheus watches from outside and waits longer; only it can report that a "
        "driver is down. Both times count the last six hours.",
        {
            "severity": None,
            "alertname": None,
            "app": None,
            "query": None,
            "open in querypulse for": open_for(OPEN_ALERTS),
            "open in Prometheus for": open_for(PROMETHEUS_ALERTS),
        },
        column("severity", mappings=SEVERITY_WORDS, custom__cellOptions=GROUND, custom__width=100),
        RUNBOOK,
        column("query", links=ROW_LINKS),
        column("open in querypulse for", unit="dtdurations"),
        column("open in Prometheus for", unit="dtdurations"),
        sort=("severity", False),
        empty="no alert is open",
    )


def _states() -> Json:
    return timeline(
        "State of every query",
        "Good: a green or light blue bar up to the right edge. A gap: no data, because the driver "
        "or its monitor was down. Click to open the query.",
        LEGEND,
        links=LINE_LINKS,
    )


STATE_COLUMN = column(
    "state",
    mappings=STATE_WORDS,
    custom__cellOptions=GROUND,
    custom__align="left",
    custom__width=95,
)


def _queries() -> Json:
    seconds = ("commit age", "window", "last batch")
    return table(
        "Every query",
        "*of its window*: how much of the time allowed without a commit is used up; 100 % is a "
        "stall. Proof of idleness counts as a commit. The query links to its own dashboard, the "
        "driver to its status page.",
        {
            "app": None,
            "query": None,
            "state": state_number(ROW),
            "error_class": None,
            "of its window": share_of_window(ROW),
            "commit age": age(streaming("query_last_commit_timestamp_seconds"), ROW),
            "window": max_by(streaming("query_stall_window_seconds"), ROW),
            "lag": sum_by(streaming("source_lag_offsets"), ROW),
            "last batch": sum_by(streaming("query_phase_duration_seconds"), ROW),
            "alerts on": max_by(streaming("query_alerting_enabled"), ROW),
            "restarts": growth(streaming("query_restarts_total"), ROW),
            "open": max_by(streaming("query_failure_info"), f"{ROW}, error_class"),
            "instance": None,
        },
        column("query", links=ROW_LINKS),
        STATE_COLUMN,
        column(
            "of its window",
            unit="percentunit",
            decimals=0,
            min=0,
            max=1,
            custom__width=140,
            thresholds=good_below({0.5: ORANGE, 1: VERMILLION}),
            custom__cellOptions={"type": "gauge", "mode": "basic", "valueDisplayMode": "text"},
        ),
        *(column(name, unit="s", decimals=1, custom__width=100) for name in seconds),
        column("lag", unit="short", custom__width=80),
        column("alerts on", unit="bool_yes_no", custom__width=85),
        column("restarts", custom__width=85),
        STATUS_PAGE,
        sort=("state", True),
        empty="no query seen",
        unseen="open",
    )


def _progress() -> list[Json]:
    return [
        graph(
            "Commits",
            "Batches committed per minute. Good: a steady line for each query that has input. At "
            "0: idle, or stalled; the states above show which. <StreamingQueryStalled>.",
            "cpm",
            line(LEGEND, per_minute(streaming("query_commits_total"))),
            links=LINE_LINKS,
        ),
        graph(
            "Lag",
            "Unread offsets in the sources of each query. Good: small, or falling. Rising "
            "steadily: <StreamingQueryLagging>. Sources that report no lag have no line.",
            "short",
            line(LEGEND, sum_by(streaming("source_lag_offsets"))),
            at_least=1,
            empty="no source reports its lag",
            links=LINE_LINKS,
        ),
    ]


def _chains() -> list[Json]:
    """Who reads what another query writes, and how old the data is at the end."""
    aged = max_by(streaming("query_end_to_end_age_seconds"))
    edge = max_by(streaming("query_upstream"), "app, query, upstream")
    with_edge = f"{edge} * on (app, query) group_left () "
    return [
        table(
            "Who reads what another query writes",
            "Each query, and the queries whose output it reads. If one of those fails, the query "
            "is *idle*: it has no new data. *end-to-end age*: how old the newest data is that has "
            "passed from the first sources into its table.",
            {
                "app": None,
                "upstream": None,
                "query": None,
                "state": with_edge + state_number(),
                "end-to-end age": with_edge + aged,
            },
            column("query", links=ROW_LINKS),
            STATE_COLUMN,
            column("end-to-end age", unit="s", decimals=1, custom__width=130),
            sort=("state", True),
            empty="no query reads what another one writes",
        ),
        graph(
            "End-to-end age",
            "How old the newest data is that has passed from the first sources, through all "
            "queries before it, into the query's table. Good: a flat saw. Climbing: no new data "
            "arrives, or a query before it has stopped. No line: unknown.",
            "s",
            line(LEGEND, aged),
            empty="no query has committed data",
            links=LINE_LINKS,
        ),
    ]


def _delivery() -> list[Json]:
    delivered = monitor("deliveries_total", 'outcome="delivered"')
    failed = monitor("deliveries_total", 'outcome!="delivered"')
    lost = monitor("alerts_lost_total")
    pages = graph(
        "Pages",
        "Messages to each receiver per minute. Good: *delivered* only. A *failed attempt* is "
        "retried until it succeeds; a message that was *given up* never arrives: read the driver's "
        "log, and run `querypulse test-alert`.",
        "cpm",
        line("delivered to {{receiver}}", per_minute(delivered, "receiver")),
        line("failed attempts: {{receiver}}", per_minute(failed, "receiver")),
        line("given up: {{receiver}}", per_minute(lost, "receiver")),
        at_least=1,
        empty="no receiver is configured",
        bars=True,
        overrides=[
            lines_like("^delivered", color=fixed(GREEN)),
            lines_like("^failed attempts", color=fixed(ORANGE)),
            lines_like("^given up", color=fixed(VERMILLION)),
        ],
    )
    bad = {
        "thresholds": thresholds(GREY, {1: VERMILLION}),
        "custom__cellOptions": TEXT,
        "custom__width": 95,
    }
    receivers = table(
        "Receivers",
        "Good: nothing is waiting. If messages are *waiting* for longer than a minute, or the "
        "receiver is *failing* (its circuit is open after failures in a row), it accepts no "
        "messages now: notify people in another way. *given up* counts the time shown.",
        {
            "receiver": None,
            "waiting": max_by(monitor("outbox_pending"), RECEIVER),
            "failing": max_by(monitor("receiver_circuit_open"), RECEIVER),
            "given up": growth(lost, RECEIVER),
            "instance": None,
        },
        column("waiting", **bad),
        column("failing", unit="bool_yes_no", **bad),
        column("given up", **bad),
        STATUS_PAGE,
        sort=("waiting", True),
        empty="no receiver is configured",
    )
    return [wide(14, pages), wide(10, receivers)]


def _drivers() -> Json:
    bad = {"thresholds": thresholds(GREY, {1: ORANGE}), "custom__cellOptions": TEXT}
    beat = good_below({15: ORANGE, 60: VERMILLION})
    depth = max_by(monitor("mailbox_depth"), MONITOR)
    return table(
        "Drivers",
        "One row for each monitor, silent ones that should be running included. Good: a heartbeat "
        "below 15 s, no lost events, no own errors, no queries *without series* (a driver shows "
        "1,000). If *unread events* only grow, or events are lost, this monitor misses events: "
        "<QuerypulseEventsMissing>, <QuerypulseMonitoringDegraded>.",
        {
            "app": None,
            "instance": None,
            "job": None,
            "version": None,
            "there": max_by(monitor("build_info"), f"{MONITOR}, version"),
            "heartbeat": _heartbeat(),
            # 0 where nothing was counted, so that the table keeps the column.
            "open alerts": f"{sum_by(monitor('alerts_firing'), MONITOR)} or 0 * {depth}",
            "unread events": depth,
            "lost events": growth(monitor("events_dropped_total"), MONITOR),
            "own errors": f"{growth(monitor('internal_errors_total'), MONITOR)} or 0 * {depth}",
            "without series": max_by(monitor("queries_without_series"), MONITOR),
        },
        STATUS_PAGE,
        column("heartbeat", unit="s", decimals=1, thresholds=beat, custom__cellOptions=TEXT),
        column("lost events", **bad),
        column("own errors", **bad),
        column("without series", **bad),
        sort=("heartbeat", True),
        empty="no driver seen",
        unseen="there",
    )


def _heartbeat() -> str:
    """Of the monitors that report, and of those that should."""
    by = f"{MONITOR}, app"
    received = driver("heartbeat_timestamp_seconds")
    last = max_by(f"last_over_time({received}[1d])", by)
    return f"time() - ({max_by(received, by)} or {last} and on (app) {silent_apps()})"


def _monitors() -> list[Json]:
    events = {"progress": GREEN, "idle": SKY, "started": BLUE, "terminated": GREY}
    return [
        graph(
            "Events received",
            "Events that Spark sends to its listeners, by kind. Good: progress as often as batches "
            "end. None while batches run: <QuerypulseEventsMissing>.",
            "eps",
            line("{{event}}", per_second(monitor("events_total"), "event")),
            overrides=[column(kind, color=fixed(color)) for kind, color in events.items()],
        ),
        graph(
            "Cost to the job: one event",
            "Time that one event holds Spark's listener thread for Python, 99th percentile. Empty "
            "on the event path bus_queue, which runs no Python there. Milliseconds: the driver has "
            "no CPU to spare.",
            "s",
            line("{{instance}}", quantile(0.99, monitor("callback_duration_seconds_bucket"))),
            empty="no Python on Spark's threads",
        ),
        graph(
            "One poll of Spark",
            "How long the probe waits for the JVM's answer, 99th percentile. Good: below 0.1 s. "
            "Seconds: garbage collection, or a JVM short of CPU. No line: the JVM does not answer, "
            "<QuerypulseMonitoringDegraded>.",
            "s",
            line("{{instance}}", quantile(0.99, monitor("probe_duration_seconds_bucket"))),
            empty="the probe gets no answer",
        ),
    ]
