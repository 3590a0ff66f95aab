"""Alerts about single queries."""

from __future__ import annotations

from tools.rules.expressions import (
    ALIVE,
    BEAT,
    BY_SEVERITY,
    CONTINUOUS,
    PROGRESSES,
    WATCHED,
    WINDOW,
    measured_unless_reported,
    reported_by_querypulse,
)
from tools.rules.rule import AS_REPORTED, Rule

REPORTED = "{{ else }}reported by querypulse{{ end }}"
OFFSETS = "Offsets are not in the metrics, only their distance from the latest ones."
FAILURES = 'spark_streaming_query_terminations_total{outcome="failed"}'
LAG = "spark_streaming_source_lag_offsets"

SUPERVISED = """\
# supervise restarts it, or reports that it has given up
unless on (app, query) max by (app, query) (spark_streaming_query_supervised)"""

FAILED = f"""\
max by (app, query) (spark_streaming_query_failure_info)
{WATCHED}
{SUPERVISED}"""

STALLED = f"""\
# seconds without a commit or proof of idleness, beyond the window
(
  max by (app) ({BEAT})
  - on (app) group_right () max by (app, query) (
    spark_streaming_query_last_activity_timestamp_seconds
    or spark_streaming_query_start_timestamp_seconds
  )
) > on (app, query) {WINDOW}
{ALIVE}
{WATCHED}
# its tasks finish: StreamingBatchSlow
unless on (app, query) {PROGRESSES}
# no signal has ever seen it: StreamingQueryMissing
unless on (app, query) max by (app, query) (
  spark_streaming_query_state{{state=~"missing|stopped_unexpectedly"}} == 1
)
# continuous queries show progress only in the commit log, which only querypulse can evaluate
unless on (app, query) {CONTINUOUS}
# one cause for all queries: the alert has query "*"
unless on (app)
  max by (app) (spark_streaming_query_alert{{alertname="StreamingQueryStalled", query="*"}})"""

FLAPPING = f"""\
# failures within ten minutes
max by (app, query) ({FAILURES} - min_over_time({FAILURES}[10m]))
>= on (app, query) max by (app, query) (spark_streaming_query_restart_budget)
{WATCHED}
{SUPERVISED}"""

SLOW = f"""\
max by (app, query) (spark_streaming_query_batch_in_flight_seconds)
> on (app, query) {WINDOW}
# its tasks finish; if they do not, it is StreamingQueryStalled
and on (app, query) {PROGRESSES}
# the first batch of a run may take long: only querypulse decides when that is critical
and on (app, query) max by (app, query) (spark_streaming_query_last_commit_timestamp_seconds)
{WATCHED}"""

LAGGING = f"""\
# for ten minutes the lag of a source exceeded the limit, and its minimum of the last four minutes
# is no less than its maximum of the first four: lag falls with each commit and rises between them
max by (app, query) (
  min_over_time({LAG}[10m])
  and ({LAG} > {LAG} offset 10m)
  and (min_over_time({LAG}[4m]) >= max_over_time({LAG}[4m] offset 6m))
) > on (app, query) max by (app, query) (spark_streaming_query_lag_allowed_offsets)
# batches are committed
and on (app, query) (
  max by (app, query) (increase(spark_streaming_query_commits_total[10m])) >= 3
)
# no more severe alert covers it
unless on (app, query) max by (app, query) (
  spark_streaming_query_state{{
    state=~"failed|missing|stopped_unexpectedly|stalled|slow|stopped|completed"
  }} == 1
)
{WATCHED}"""

QUERIES = (
    Rule(
        name="StreamingQueryGivenUp",
        severity="critical",
        wait="1m",
        comment="Only querypulse knows what it restarts.",
        expr=reported_by_querypulse("StreamingQueryGivenUp"),
        summary="Streaming query {{ $labels.query }} of {{ $labels.app }} "
        "is not restarted any more",
        description="supervise has given up {{ $labels.query }}: its restarts are used up, or the "
        "same batch fails each time. It does not run.",
    ),
    Rule(
        name="StreamingQueryFailed",
        severity=AS_REPORTED,
        wait="1m",
        comment="A warning while supervise restarts the query.",
        expr=measured_unless_reported("StreamingQueryFailed", FAILED, "critical"),
        summary="Streaming query {{ $labels.query }} of {{ $labels.app }} has failed",
        description="A run of {{ $labels.query }} has ended with an exception, and no later run "
        "has committed a batch or was idle. The other queries and the driver may still run.",
        reason='{{ with printf "spark_streaming_query_failure_info{app=%q,query=%q}" '
        "$labels.app $labels.query | query }}"
        '{{ . | first | label "error_class" }}{{ else }}its metrics have ended{{ end }}',
    ),
    Rule(
        name="StreamingQueryStopped",
        severity="critical",
        wait="1m",
        comment="Only querypulse knows whether a stop was announced, and the grace period.",
        expr=reported_by_querypulse("StreamingQueryStopped"),
        summary="Streaming query {{ $labels.query }} of {{ $labels.app }} has ended "
        "and is not back",
        description="{{ $labels.query }} has ended without an exception, although its trigger has "
        "no end and nobody announced a stop, and was not back within gone_grace_seconds. "
        "The query * means all of them: their SparkContext stopped unexpectedly.",
    ),
    Rule(
        name="StreamingQueryMissing",
        severity="critical",
        wait="1m",
        comment="Only querypulse knows the expected queries and the grace period.",
        expr=reported_by_querypulse("StreamingQueryMissing"),
        summary="Streaming query {{ $labels.query }} of {{ $labels.app }} is missing",
        description="{{ $labels.query }} is in expected_queries and was not seen "
        "within start_grace_seconds, or it was started and has shown no activity since.",
    ),
    Rule(
        name="StreamingQueryStalled",
        severity=AS_REPORTED,
        wait="1m",
        comment="Only querypulse knows why a batch makes no progress: while it reports a warning, "
        "the measured alert, which is critical, does not fire.",
        expr=measured_unless_reported("StreamingQueryStalled", STALLED, "critical"),
        summary="Streaming query {{ $labels.query }} of {{ $labels.app }} has stopped committing",
        description="{{ $labels.query }} is running and has neither committed a batch nor been "
        "idle for longer than its window (spark_streaming_query_stall_window_seconds). "
        "Spark still calls it active. The query * means all of them: their JVM does not answer.",
        reason="{{ if gt $value 1.0 }}no commit and not idle for "
        "{{ $value | humanizeDuration }}" + REPORTED,
    ),
    Rule(
        name="StreamingOffsetsStalled",
        severity="critical",
        wait="2m",
        comment=OFFSETS,
        expr=reported_by_querypulse("StreamingOffsetsStalled"),
        summary="Streaming query {{ $labels.query }} of {{ $labels.app }} commits, "
        "but its offsets do not advance",
        description="{{ $labels.query }} commits batches, but in each of them some partition ends "
        "at the same offset, although it has unread data.",
    ),
    Rule(
        name="StreamingQueryFlapping",
        severity=AS_REPORTED,
        wait="1m",
        comment="Ten minutes are the default of restart_window_seconds. Only querypulse knows "
        "failures before the first scrape. A warning while supervise restarts the query.",
        expr=measured_unless_reported("StreamingQueryFlapping", FLAPPING, "critical"),
        summary="Streaming query {{ $labels.query }} of {{ $labels.app }} fails repeatedly",
        description="{{ $labels.query }} was restarted after a failure and failed again: "
        "restart_budget times within restart_window_seconds, or each time in the same batch.",
    ),
    Rule(
        name="StreamingDataLossRisk",
        severity=AS_REPORTED,
        wait="1m",
        comment="Only querypulse knows whether the query reads faster than the source deletes. "
        "Warning and critical are two alerts in Prometheus.",
        expr=reported_by_querypulse("StreamingDataLossRisk", BY_SEVERITY),
        summary="Unread data of streaming query {{ $labels.query }} of {{ $labels.app }} "
        "is about to be deleted",
        description="A source of {{ $labels.query }} soon deletes unread data, or has begun to, "
        "and the query does not read fast enough. Warning and critical are shares of the "
        "retention: data_loss_warning_ratio, data_loss_critical_ratio.",
    ),
    Rule(
        name="StreamingOffsetsRewound",
        severity="warning",
        wait="2m",
        comment=OFFSETS,
        expr=reported_by_querypulse("StreamingOffsetsRewound"),
        summary="Offsets of streaming query {{ $labels.query }} of {{ $labels.app }} went back",
        description="A source of {{ $labels.query }} ends at lower offsets than before, and stays "
        "there: rows are read twice, or never.",
    ),
    Rule(
        name="StreamingBatchSlow",
        severity=AS_REPORTED,
        wait="2m",
        comment="Only querypulse knows when a slow batch is critical.",
        expr=measured_unless_reported("StreamingBatchSlow", SLOW, "warning"),
        summary="Streaming query {{ $labels.query }} of {{ $labels.app }} is slow",
        description="The running batch of {{ $labels.query }} takes longer than its window "
        "(spark_streaming_query_stall_window_seconds). Its tasks still finish.",
        reason="{{ if gt $value 1.0 }}a batch has been running for "
        "{{ $value | humanizeDuration }}" + REPORTED,
    ),
    Rule(
        name="StreamingQueryLagging",
        severity=AS_REPORTED,
        wait="1m",
        comment="Ten minutes are twice the default of trend_window_seconds. Only querypulse knows "
        "a lag in seconds for certain, and when it is critical (lag_allowed_seconds).",
        expr=measured_unless_reported("StreamingQueryLagging", LAGGING, "warning"),
        summary="Streaming query {{ $labels.query }} of {{ $labels.app }} falls behind",
        description="The lag of {{ $labels.query }} has exceeded its limit for minutes "
        "and does not fall, although batches are committed: more arrives than is processed.",
        reason="{{ if gt $value 1.0 }}always at least {{ $value | humanize }} offsets "
        "behind" + REPORTED,
    ),
    Rule(
        name="StreamingWatermarkStuck",
        severity="warning",
        wait="2m",
        comment="The metrics do not show whether each source delivers rows, or whether a join "
        "correctly waits for its other side.",
        expr=reported_by_querypulse("StreamingWatermarkStuck"),
        summary="Streaming query {{ $labels.query }} of {{ $labels.app }} "
        "makes no event-time progress",
        description="Rows arrive from every source of {{ $labels.query }}, but its watermark does "
        "not advance: state grows, and windows do not close.",
    ),
    Rule(
        name="StreamingInputMissing",
        severity="warning",
        wait="1m",
        comment="Only querypulse knows whether a running batch has rows, and whether another alert "
        "explains the missing rows.",
        expr=reported_by_querypulse("StreamingInputMissing"),
        summary="Streaming query {{ $labels.query }} of {{ $labels.app }} gets no data",
        description="{{ $labels.query }} runs and has read no rows for longer than "
        "expected_input_seconds, the setting that says how often data must arrive.",
    ),
)
