"""*Query*: one streaming query in depth, from "is it committing?" to "what went wrong?"."""

from __future__ import annotations

from tools.grafana.panels import (
    BLUE,
    GREEN,
    GREY,
    GROUND,
    ORANGE,
    PURPLE,
    RUNBOOK,
    SEVERITY_WORDS,
    SKY,
    STATE_WORDS,
    STATUS_PAGE,
    VERMILLION,
    Json,
    Row,
    column,
    dashboard,
    fixed,
    good_below,
    graph,
    limit,
    line,
    lines_like,
    stat,
    table,
    thresholds,
    timeline,
)
from tools.grafana.promql import (
    OPEN_ALERTS,
    PROMETHEUS_ALERTS,
    age,
    growth,
    max_by,
    open_for,
    per_minute,
    per_second,
    quantile,
    share_of_window,
    state_number,
    streaming,
    sum_by,
)

RUN = "app, query, instance"
SOURCE = "app, query, source"
TOPIC = "app, query, topic"
RETAINED = "app, query, source, topic"
PER_STEP = "$__rate_interval"
OF_TOPIC = "{{query}}: {{topic}}"
NOBODY_TO_ASK = "none of its sources is at a broker"
RETENTION_UNKNOWN = "the retention of its sources is unknown"
PHASES = {
    "addBatch": GREEN,
    "latestOffset": SKY,
    "getBatch": BLUE,
    "queryPlanning": PURPLE,
    "walCommit": ORANGE,
    "commitOffsets": VERMILLION,
}
"""Where a batch spends its time, by Spark's names; others get a colour of Grafana's choice."""


def query_dashboard() -> Json:
    """The dashboard as JSON."""
    rows: list[Row] = [
        ("", 4, _numbers()),
        ("", 4, [_states()]),
        ("", 5, [_alerts()]),
        ("", 4, [_run()]),
        ("Does it commit?", 8, _committing()),
        ("Where does the time go?", 8, _batches()),
        ("Does it keep up?", 8, _rows_read()),
        ("", 8, _behind()),
        ("How far behind the broker?", 8, _broker()),
        ("Is data in danger?", 8, _retention()),
        ("How far behind its tables?", 7, [_backlog("files", "short"), _backlog("bytes", "bytes")]),
        ("Event time and state", 8, _event_time()),
        ("What went wrong?", 7, [_open_failure(), _terminations(), _restarts()]),
    ]
    return dashboard(
        "querypulse-query",
        "querypulse / Query",
        "One streaming query: does it commit, what takes its time, does it keep up, what failed.",
        rows,
        one_query=True,
        other=("Fleet", "querypulse-fleet", "Every query at a glance"),
    )


def _numbers() -> list[Json]:
    """What matters now, as large numbers."""
    return [
        stat(
            "State",
            "The query's health as querypulse evaluates it. Green or light blue is good; "
            "docs/rules.md explains each state.",
            {"{{query}}": state_number()},
            "not seen",
            mappings=STATE_WORDS,
        ),
        stat(
            "Window used up",
            "How much of the time allowed without a commit is used up. 100 % is a stall. Proof of "
            "idleness counts as a commit.",
            {"{{query}}": share_of_window()},
            "not yet, or over",
            good_below({0.5: ORANGE, 1: VERMILLION}),
            unit="percentunit",
            decimals=0,
        ),
        stat(
            "Last commit",
            "How long ago the current run committed a batch.",
            {"{{query}}": age(streaming("query_last_commit_timestamp_seconds"))},
            "no commit yet",
            unit="s",
            decimals=0,
        ),
        stat(
            "Lag",
            "Unread offsets in all its sources. Good: small, or falling. <StreamingQueryLagging>.",
            {"{{query}}": sum_by(streaming("source_lag_offsets"))},
            "its sources do not report it",
            unit="short",
        ),
        stat(
            "Restarts in this time",
            "In the time shown. Good: 0, or planned ones. <StreamingQueryFlapping>.",
            {"{{query}}": growth(streaming("query_restarts_total"))},
            "not known yet",
            good_below({1: ORANGE, 3: VERMILLION}),
        ),
        stat(
            "Running since",
            "When the current run started, or was first seen.",
            {"{{query}}": f"{max_by(streaming('query_start_timestamp_seconds'))} * 1000"},
            "not known yet",
            unit="dateTimeFromNow",
        ),
    ]


def _states() -> Json:
    return timeline(
        "State over time",
        "Good: green or light blue up to the right edge. A gap: no data, because the driver or "
        "its monitor was down (<StreamingDriverDown>).",
        "{{query}}",
    )


def _alerts() -> Json:
    return table(
        "Open alerts",
        "Alerts of this query, and of its whole application (`*`). The alert links to its runbook; "
        "both times count the last six hours.",
        {
            "severity": None,
            "alertname": None,
            "query": None,
            "in querypulse for": open_for(OPEN_ALERTS),
            "in Prometheus for": open_for(PROMETHEUS_ALERTS),
            "app": None,
        },
        column("severity", mappings=SEVERITY_WORDS, custom__cellOptions=GROUND),
        RUNBOOK,
        column("in querypulse for", unit="dtdurations"),
        column("in Prometheus for", unit="dtdurations"),
        sort=("severity", False),
        empty="no alert is open",
    )


def _run() -> Json:
    widths = {"app": 130, "query": 130, "last batch": 95, "trigger": 150, "sink": 140}
    widths |= {"query_id": 290, "run_id": 290}
    there = f"{RUN}, trigger, sink, query_id, run_id"
    return table(
        "Current run",
        "The current run, with the ids that Spark's UI, its logs and the checkpoint use. The "
        "driver links to its status page.",
        {
            "app": None,
            "query": None,
            "last batch": max_by(streaming("query_last_commit_batch_id"), RUN),
            "trigger": None,
            "sink": None,
            "query_id": None,
            "run_id": None,
            "instance": None,
            "there": max_by(streaming("query_info"), there),
        },
        *(column(name, custom__width=width) for name, width in widths.items()),
        STATUS_PAGE,
        sort=("query", False),
        empty="no run was seen",
        unseen="there",
    )


def _committing() -> list[Json]:
    window = limit("{{query}}: window", max_by(streaming("query_stall_window_seconds")), VERMILLION)
    activity = age(streaming("query_last_activity_timestamp_seconds"))
    commit = age(streaming("query_last_commit_timestamp_seconds"))
    return [
        graph(
            "Time since the last commit, and its window",
            "Good: a sawtooth below the dashed line. *Activity* is a commit, or proof that there "
            "is nothing to do: without it for longer than the window, the query is stalled: "
            "<StreamingQueryStalled>. The window follows the trigger and recent batches.",
            "s",
            line("{{query}}: since activity", activity),
            window,
            line("{{query}}: since commit", commit, GREEN, custom__fillOpacity=0),
            color=SKY,
            empty="no commit in the time shown",
        ),
        graph(
            "Batch in flight, and its window",
            "How long the current batch has been running. Good: short teeth, or nothing. It climbs "
            "while its tasks finish: <StreamingBatchSlow>. The time without progress climbs with "
            "it because no task finishes: <StreamingQueryStalled>; the alert shows where the "
            "stream's thread is blocked.",
            "s",
            line("{{query}}: in flight", max_by(streaming("query_batch_in_flight_seconds"))),
            window,
            line("{{query}}: no progress", max_by(streaming("query_no_progress_seconds")), PURPLE),
            color=SKY,
            empty="no batch is in flight",
        ),
    ]


def _batches() -> list[Json]:
    buckets = streaming("query_batch_duration_seconds_bucket")
    half, most = (quantile(share, buckets, "app, query") for share in (0.5, 0.99))
    by_phase = max_by(streaming("query_phase_duration_seconds"), "app, query, phase")
    trigger = limit("{{query}}: trigger", max_by(streaming("query_trigger_interval_seconds")), GREY)
    return [
        graph(
            "Batch duration",
            "Batches that ended recently, from a histogram. Good: flat, and below the dashed line, "
            "the trigger interval if there is one; above it the query cannot keep up. Rising: "
            "<StreamingBatchSlow>. No line: no batch has ended.",
            "s",
            line("{{query}}: half are faster", half, SKY),
            line("{{query}}: 99 % are faster", most, BLUE),
            trigger,
            empty="no batch ended in the time shown",
        ),
        graph(
            "Where the last batch spent its time",
            "Spark's phases, stacked; the dashed line is the trigger interval. *addBatch* is your "
            "own work and the sink; *latestOffset* and *getBatch* the source; *walCommit* and "
            "*commitOffsets* the checkpoint's storage; *queryPlanning* grows with the number of "
            "files or columns. Investigate the phase that grows.",
            "s",
            line("{{query}}: {{phase}}", by_phase),
            trigger,
            stacked=True,
            overrides=[
                lines_like(f": {phase}$", color=fixed(color)) for phase, color in PHASES.items()
            ],
            empty="no batch ended in the time shown",
        ),
        graph(
            "Commits",
            "Batches committed per minute. Good: steady. At 0 it is idle, or stalled: the state "
            "above shows which.",
            "cpm",
            line("{{query}}", per_minute(streaming("query_commits_total"))),
            color=GREEN,
            bars=True,
        ),
    ]


def _rows_read() -> list[Json]:
    read = max_by(streaming("query_last_input_timestamp_seconds"))
    began = max_by(streaming("query_start_timestamp_seconds"))
    allowed = max_by(streaming("query_expected_input_seconds"))
    arriving = max_by(streaming("query_input_rows_per_second"))
    possible = max_by(streaming("query_processed_rows_per_second"))
    return [
        graph(
            "Rows",
            "*arriving* and *could process* are Spark's own figures for the last batch; *read* and "
            "*written* are counted. Good: it could process more than arrives. Less for a long "
            "time: <StreamingQueryLagging>. *written* is 0 for sinks that do not count rows, such "
            "as foreachBatch.",
            "rowsps",
            line("{{query}}: arriving", arriving, SKY),
            line("{{query}}: could process", possible, GREEN),
            line("{{query}}: read", per_second(streaming("query_input_rows_total")), BLUE),
            line("{{query}}: written", per_second(streaming("query_output_rows_total")), PURPLE),
        ),
        graph(
            "Time without rows",
            "Time since the current run last read rows, or since it started. The dashed line is "
            "the setting *expected_input_seconds*: above it, and above the window, expected data "
            "is missing: <StreamingInputMissing>. The alert also counts earlier runs. No dashed "
            "line: the query may be idle.",
            "s",
            line("{{query}}: without rows", f"time() - ({read} or {began})"),
            limit("{{query}}: allowed", allowed, ORANGE),
            color=BLUE,
            empty="no run was seen",
        ),
    ]


def _behind() -> list[Json]:
    """Lag, and how old the results are by three clocks."""
    lag = max_by(streaming("source_lag_offsets"), SOURCE)
    reported = max_by(streaming("source_lag_reported_offsets"), SOURCE)
    return [
        graph(
            "Lag by source",
            "Unread offsets in each source, by its position in the query. The figure is the "
            "broker's where it answers, also while the query hangs or is dead. *Spark's* figure is "
            "from the planning of the last batch, and 0 where nothing limits a batch. Good: small, "
            "or falling. Rising steadily: <StreamingQueryLagging>; constant while nothing is "
            "committed: <StreamingOffsetsStalled>.",
            "short",
            line("{{query}}: source {{source}}", lag),
            line("{{query}}: {{source}}, Spark's", reported, GREY),
            at_least=1,
            empty="its sources do not report their lag",
        ),
        graph(
            "Freshness",
            "How old the results are: since the last commit, and behind the event-time watermark "
            "(which does not advance when no data arrives). *last event* is the age of Spark's "
            "last event about the query: if it climbs while batches commit, "
            "<QuerypulseEventsMissing>.",
            "s",
            *(
                line(f"{{{{query}}}}: {legend}", age(streaming(f"query_{metric}_seconds")), color)
                for legend, metric, color in (
                    ("last commit", "last_commit_timestamp", GREEN),
                    ("watermark", "watermark_timestamp", ORANGE),
                    ("last event", "last_event_timestamp", GREY),
                )
            ),
        ),
    ]


def _broker() -> list[Json]:
    waits = max_by(streaming("topic_lag_seconds"), TOPIC)
    waits_in_source = max_by(streaming("source_lag_seconds"), SOURCE)
    asked = age(streaming("source_last_success_timestamp_seconds"), SOURCE)
    return [
        graph(
            "Lag by topic",
            "Unread offsets in each topic, from the broker. If one topic of many lags, it receives "
            "more data, or has too few partitions.",
            "short",
            line(OF_TOPIC, sum_by(streaming("topic_lag_offsets"), TOPIC)),
            at_least=1,
            empty=NOBODY_TO_ASK,
        ),
        graph(
            "Age of the oldest unread record",
            "How long the oldest unread record has waited, by the record's own timestamp: how far "
            "the results are behind. Good: a few seconds. *broker answered* is how long ago the "
            "broker last answered: if it climbs, the age is unknown.",
            "s",
            line(OF_TOPIC, waits),
            line("{{query}}: {{source}}", waits_in_source),
            line("{{query}}: {{source}}, broker answered", asked, GREY),
            empty=NOBODY_TO_ASK,
        ),
    ]


def _retention() -> list[Json]:
    """The unread backlog against the retention of its source."""
    left = streaming("topic_retention_left_seconds")
    return [
        graph(
            "Retention used by the unread backlog",
            "How much of what a topic retains, by age or by size, is unread, in its worst "
            "partition. Good: near 0, or falling. At 100 % records are deleted unread: "
            "<StreamingDataLossRisk>. It is high and falls while a query catches up.",
            "percentunit",
            line(OF_TOPIC, max_by(streaming("topic_retention_used_ratio"), RETAINED)),
            at_least=1,
            color=BLUE,
            thresholds=thresholds(GREEN, {0.7: ORANGE, 0.9: VERMILLION}),
            empty=RETENTION_UNKNOWN,
        ),
        graph(
            "Time until data is lost",
            "When the oldest unread record is deleted, at the earliest, if nothing more is read: "
            "Kafka deletes whole segments. Good: level, near the topic's retention time. Falling "
            "as fast as the clock: the query reads nothing; <StreamingDataLossRisk>.",
            "s",
            line(OF_TOPIC, f"min by ({RETAINED}) ({left})"),
            color=ORANGE,
            empty=RETENTION_UNKNOWN,
        ),
    ]


def _backlog(counted: str, unit: str) -> Json:
    """The backlog of a source, for sources that report it (Databricks')."""
    return graph(
        f"Backlog by source, {counted}",
        f"Unread {counted} in each source after the last batch, as the source itself reports "
        "(Delta and cloudFiles on Databricks do). Good: small, or falling. Rising steadily: "
        "<StreamingBatchSlow>, <StreamingQueryLagging>.",
        unit,
        line(
            "{{query}}: source {{source}}", max_by(streaming(f"source_backlog_{counted}"), SOURCE)
        ),
        at_least=1,
        color=BLUE,
        empty="its sources do not report their backlog",
    )


def _event_time() -> list[Json]:
    watermark = streaming("query_watermark_timestamp_seconds")
    return [
        graph(
            "Speed of the watermark",
            "Seconds of event time per second. 1: it keeps up. Above 1: it catches up. At 0 while "
            "rows arrive: <StreamingWatermarkStuck>, state is neither emitted nor removed. Only "
            "for queries with a watermark.",
            "none",
            line("{{query}}", max_by(f"deriv({watermark}[{PER_STEP}])")),
            color=ORANGE,
            empty="the query has no watermark",
        ),
        graph(
            "Late rows, dropped",
            "Rows behind the watermark: the result does not contain them. Good: 0. Otherwise a "
            "source is late, or the watermark's delay is too short.",
            "rowsps",
            line("{{query}}", per_second(streaming("query_late_rows_dropped_total"))),
            at_least=1,
            color=PURPLE,
            bars=True,
        ),
        graph(
            "Rows in state",
            "In all its state stores. Good: level over a day. Growing steadily: no watermark, or "
            "one that does not advance (<StreamingWatermarkStuck>).",
            "short",
            line("{{query}}", max_by(streaming("query_state_rows"))),
            color=BLUE,
            empty="the query keeps no state",
        ),
        graph(
            "Memory of state",
            "All its state stores, on the executors. Good: level, and far below the executors' "
            "memory.",
            "bytes",
            line("{{query}}", max_by(streaming("query_state_memory_bytes"))),
            color=BLUE,
            empty="the query keeps no state",
        ),
    ]


def _open_failure() -> Json:
    return table(
        "Open failure",
        "The class of the exception that ended the last run, until the query recovers. Its "
        "message is in the alert and on the status page. <StreamingQueryFailed>.",
        {
            "query": None,
            "error_class": None,
            "instance": None,
            "open": max_by(streaming("query_failure_info"), "app, query, error_class, instance"),
            "app": None,
        },
        STATUS_PAGE,
        sort=("query", False),
        empty="no open failure",
        unseen="open",
    )


def _terminations() -> Json:
    ended = growth(streaming("query_terminations_total"), "app, query, outcome", PER_STEP)
    return graph(
        "Runs that ended",
        "By outcome: *failed* with an exception, *stopped* by the application, *completed* by "
        "themselves. Good: only planned ones. <StreamingQueryFailed>, <StreamingQueryStopped>.",
        "none",
        line("{{query}}: {{outcome}}", ended),
        at_least=1,
        bars=True,
        overrides=[
            lines_like(": failed$", color=fixed(VERMILLION)),
            lines_like(": stopped$", color=fixed(GREY)),
            lines_like(": completed$", color=fixed(SKY)),
        ],
    )


def _restarts() -> Json:
    return graph(
        "Restarts",
        "Runs that followed an earlier run. Good: only planned ones. Several in a row: "
        "<StreamingQueryFlapping>.",
        "none",
        line("{{query}}", growth(streaming("query_restarts_total"), over=PER_STEP)),
        at_least=1,
        color=ORANGE,
        bars=True,
    )
