"""Alerts about one query each."""

from __future__ import annotations

from tools.rules.expressions import (
    ALIVE,
    BEAT,
    BY_SEVERITY,
    CONTINUOUS,
    GETS_ON,
    WATCHED,
    WINDOW,
    measured,
    measured_unless_reported,
    reported_by_querypulse,
)
from tools.rules.rule import AS_REPORTED, Rule

SAYS_SO = "{{ else }}querypulse says so{{ end }}"
OFFSETS = "Offsets are not in the metrics, only their distance from the latest ones."
FAILURES = 'spark_streaming_query_terminations_total{outcome="failed"}'
LAG = "spark_streaming_source_lag_offsets"

FAILED = f"""\
max by (app, query) (spark_streaming_query_failure_info)
{WATCHED}"""

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
unless on (app, query) {GETS_ON}
# no witness has ever seen it: StreamingQueryMissing
unless on (app, query) max by (app, query) (
  spark_streaming_query_state{{state=~"missing|stopped_unexpectedly"}} == 1
)
# it tells nothing but its commit log, which only querypulse can judge
unless on (app, query) {CONTINUOUS}
# one cause for all queries: that is told of query "*"
unless on (app)
  max by (app) (spark_streaming_query_alert{{alertname="StreamingQueryStalled", query="*"}})"""

FLAPPING = f"""\
# failures within ten minutes
max by (app, query) ({FAILURES} - min_over_time({FAILURES}[10m]))
>= on (app, query) max by (app, query) (spark_streaming_query_restart_budget)
{WATCHED}"""

SLOW = f"""\
max by (app, query) (spark_streaming_query_batch_in_flight_seconds)
> on (app, query) {WINDOW}
# its tasks finish; where they do not, it is StreamingQueryStalled
and on (app, query) {GETS_ON}
# the first batch of a run may take long: only querypulse says when that is critical
and on (app, query) max by (app, query) (spark_streaming_query_last_commit_timestamp_seconds)
{WATCHED}"""

LAGGING = f"""\
# for ten minutes the lag of a source was more than is allowed, and its lowest of the last four is
# no less than its highest of the first four: it falls with each commit, and rises between them
max by (app, query) (
  min_over_time({LAG}[10m])
  and ({LAG} > {LAG} offset 10m)
  and (min_over_time({LAG}[4m]) >= max_over_time({LAG}[4m] offset 6m))
) > on (app, query) max by (app, query) (spark_streaming_query_lag_allowed_offsets)
# batches come
and on (app, query) (
  max by (app, query) (increase(spark_streaming_query_commits_total[10m])) >= 3
)
# nothing worse is told of it
unless on (app, query) max by (app, query) (
  spark_streaming_query_state{{
    state=~"failed|missing|stopped_unexpectedly|stalled|slow|stopped|completed"
  }} == 1
)
{WATCHED}"""

QUERIES = (
    Rule(
        name="StreamingQueryFailed",
        severity="critical",
        wait="1m",
        expr=measured("StreamingQueryFailed", FAILED),
        summary="Streaming query {{ $labels.query }} of {{ $labels.app }} is dead",
        description="A run of {{ $labels.query }} has ended with an exception, and no later run "
        "has committed a batch or was idle. The other queries and the driver may well run on.",
        reason='{{ with printf "spark_streaming_query_failure_info{app=%q,query=%q}" '
        "$labels.app $labels.query | query }}"
        '{{ . | first | label "error_class" }}{{ else }}it is heard of no more{{ end }}',
    ),
    Rule(
        name="StreamingQueryStopped",
        severity="critical",
        wait="1m",
        comment="Whether a stop was announced, and what the grace is, only querypulse knows.",
        expr=reported_by_querypulse("StreamingQueryStopped"),
        summary="Streaming query {{ $labels.query }} of {{ $labels.app }} has ended "
        "and is not back",
        description="{{ $labels.query }} has ended without an exception, though its trigger has "
        "no end and nobody announced a stop, and was not back within gone_grace_seconds. "
        "A query of * is all of them: their SparkContext stopped by itself.",
    ),
    Rule(
        name="StreamingQueryMissing",
        severity="critical",
        wait="1m",
        comment="The roster and the grace only querypulse knows.",
        expr=reported_by_querypulse("StreamingQueryMissing"),
        summary="Streaming query {{ $labels.query }} of {{ $labels.app }} is not there",
        description="{{ $labels.query }} is on the roster expected_queries and was not seen "
        "within start_grace_seconds, or it was started and has shown no sign of life since.",
    ),
    Rule(
        name="StreamingQueryStalled",
        severity=AS_REPORTED,
        wait="1m",
        comment="Why a batch makes no progress only querypulse knows: its warning is no critical "
        "alert here.",
        expr=measured_unless_reported("StreamingQueryStalled", STALLED, "critical"),
        summary="Streaming query {{ $labels.query }} of {{ $labels.app }} has stopped committing",
        description="{{ $labels.query }} is alive, and has neither committed a batch nor been "
        "known to be idle for longer than its window (spark_streaming_query_stall_window_seconds). "
        "Spark goes on to call it active. A query of * is all of them: their JVM does not answer.",
        reason="{{ if gt $value 1.0 }}no commit and no idleness for "
        "{{ $value | humanizeDuration }}" + SAYS_SO,
    ),
    Rule(
        name="StreamingOffsetsStalled",
        severity="critical",
        wait="2m",
        comment=OFFSETS,
        expr=reported_by_querypulse("StreamingOffsetsStalled"),
        summary="Streaming query {{ $labels.query }} of {{ $labels.app }} commits, "
        "but its offsets do not move",
        description="Batches of {{ $labels.query }} come and go, and some partition has ended "
        "every one of them at the same offset, though more data waits there.",
    ),
    Rule(
        name="StreamingQueryFlapping",
        severity="critical",
        wait="1m",
        comment="Ten minutes are the default of restart_window_seconds. What failed before the "
        "first scrape is known to querypulse only.",
        expr=measured("StreamingQueryFlapping", FLAPPING),
        summary="Streaming query {{ $labels.query }} of {{ $labels.app }} fails again and again",
        description="{{ $labels.query }} was started again after a failure and failed again: "
        "as often within a while as its restart_budget says, or each time in the same batch.",
    ),
    Rule(
        name="StreamingDataLossRisk",
        severity=AS_REPORTED,
        wait="1m",
        comment="Whether the query outruns what is deleted only querypulse knows; a warning that "
        "becomes critical is another alert here.",
        expr=reported_by_querypulse("StreamingDataLossRisk", BY_SEVERITY),
        summary="What streaming query {{ $labels.query }} of {{ $labels.app }} has not read "
        "is about to be deleted",
        description="A source of {{ $labels.query }} soon deletes what has not been read yet, or "
        "has begun to, and the query does not outrun it. Warning and critical are shares of the "
        "retention: data_loss_warning_ratio, data_loss_critical_ratio.",
    ),
    Rule(
        name="StreamingOffsetsRewound",
        severity="warning",
        wait="2m",
        comment=OFFSETS,
        expr=reported_by_querypulse("StreamingOffsetsRewound"),
        summary="Streaming query {{ $labels.query }} of {{ $labels.app }} has gone back",
        description="A source of {{ $labels.query }} ends below where it once was, and stays "
        "there: rows come twice, or others never.",
    ),
    Rule(
        name="StreamingBatchSlow",
        severity=AS_REPORTED,
        wait="2m",
        comment="When a slow batch is critical only querypulse knows.",
        expr=measured_unless_reported("StreamingBatchSlow", SLOW, "warning"),
        summary="Streaming query {{ $labels.query }} of {{ $labels.app }} is slow",
        description="The batch of {{ $labels.query }} in flight takes longer than its window "
        "(spark_streaming_query_stall_window_seconds). Its tasks still finish.",
        reason="{{ if gt $value 1.0 }}a batch has been in flight for "
        "{{ $value | humanizeDuration }}" + SAYS_SO,
    ),
    Rule(
        name="StreamingQueryLagging",
        severity=AS_REPORTED,
        wait="1m",
        comment="Ten minutes are twice the default of trend_window_seconds. What lag in seconds "
        "is certain, and when it is critical, only querypulse knows (lag_allowed_seconds).",
        expr=measured_unless_reported("StreamingQueryLagging", LAGGING, "warning"),
        summary="Streaming query {{ $labels.query }} of {{ $labels.app }} falls behind",
        description="The lag of {{ $labels.query }} has been above what is allowed for minutes "
        "and does not fall, though batches come: more arrives than is worked off.",
        reason="{{ if gt $value 1.0 }}at least {{ $value | humanize }} offsets "
        "behind all the time" + SAYS_SO,
    ),
    Rule(
        name="StreamingWatermarkStuck",
        severity="warning",
        wait="2m",
        comment="Whether each source brings rows, or a join waits rightly for its other side, "
        "is not in the metrics.",
        expr=reported_by_querypulse("StreamingWatermarkStuck"),
        summary="Streaming query {{ $labels.query }} of {{ $labels.app }} "
        "makes no event-time progress",
        description="Rows arrive from every source of {{ $labels.query }}, and its watermark has "
        "not moved: state grows, and windows do not close.",
    ),
    Rule(
        name="StreamingInputMissing",
        severity="warning",
        wait="1m",
        comment="Whether a batch in flight has rows, and whether another alert explains why none "
        "come, only querypulse knows.",
        expr=reported_by_querypulse("StreamingInputMissing"),
        summary="Streaming query {{ $labels.query }} of {{ $labels.app }} gets no data",
        description="{{ $labels.query }} runs, and has read no rows for longer than "
        "expected_input_seconds, though its settings say that data must come.",
    ),
)
