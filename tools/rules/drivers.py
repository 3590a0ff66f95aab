"""Alerts about a whole driver, its monitor, and the way alerts take."""

from __future__ import annotations

from tools.rules.expressions import ALIVE, BEAT, BY_APP, CONTINUOUS, WATCHED, indented, measured
from tools.rules.rule import Rule

LOST = 'querypulse_alerts_lost_total{reason!="obsolete"}'

GONE = f"""\
# when last heard of, within a day, it had queries that should go on
max by (app) (last_over_time(querypulse_driver_expected_timestamp_seconds[1d]))
>= on (app) max by (app) (last_over_time({BEAT}[1d]))
# and it is not there with a heart that beats
unless on (app) (
  {BEAT}
  unless {BEAT} == {BEAT} offset 2m
)"""

DEAF = f"""\
# the probe has seen a commit two minutes after the last event
max by (app) (
  (
    spark_streaming_query_last_commit_timestamp_seconds
    - spark_streaming_query_last_event_timestamp_seconds
  ) > 120
{indented(ALIVE, 2)}
{indented(WATCHED, 2)}
  # no event tells of its commits
  unless on (app, query) {CONTINUOUS}
)"""

BLIND = f"""\
# three minutes without a look at Spark, of a probe that has looked before
max by (app) (
  {BEAT}
  and on (job, instance) (
    querypulse_probe_duration_seconds_count > 0
    and querypulse_probe_duration_seconds_count == querypulse_probe_duration_seconds_count offset 3m
  )
)
# that the JVM does not answer, or is gone, is told already
unless on (app)
  max by (app) (spark_streaming_query_alert{{
    alertname=~"StreamingQueryStalled|StreamingQueryStopped"
  }})"""

NOT_DELIVERED = f"""\
max by (app) (
  {BEAT}
  and on (job, instance) (
    # alerts that a receiver has not taken
    querypulse_outbox_pending > 0
    # or that were given up within the hour
    or {LOST} > min_over_time({LOST}[1h])
  )
)"""

DRIVERS = (
    Rule(
        name="StreamingDriverDown",
        severity="critical",
        query="*",
        wait="2m",
        comment="Ends when the app is back, or after a day. Silent about what ended in good order: "
        "when Prometheus last looked, every query had stopped or completed, or was announced to "
        "stop (expect_stop), or has a trigger that ends by itself.",
        expr=GONE,
        summary="The driver of {{ $labels.app }} is gone",
        description="Prometheus gets no metrics of {{ $labels.app }} any more, or its monitor "
        "has stood still for minutes. When last heard of, it had queries that should go on.",
        reason="last heard of at {{ $value | humanizeTimestamp }}",
    ),
    Rule(
        name="QuerypulseEventsMissing",
        severity="warning",
        query="*",
        wait="2m",
        expr=measured("QuerypulseEventsMissing", DEAF, BY_APP),
        summary="querypulse in {{ $labels.app }} does not hear Spark's events",
        description="Queries of {{ $labels.app }} commit and no event tells of it, or Spark's "
        "listener queue drops events. Deaths and stalls are still seen by the probe; rates, lags "
        "and durations are old.",
    ),
    Rule(
        name="QuerypulseMonitoringDegraded",
        severity="warning",
        query="*",
        wait="2m",
        expr=measured("QuerypulseMonitoringDegraded", BLIND, BY_APP),
        summary="querypulse in {{ $labels.app }} cannot see its queries",
        description="The probe gets no answer from the JVM of {{ $labels.app }}, or a checkpoint "
        "that must be read cannot be. Events still tell of deaths; a query that hangs may go "
        "unseen.",
    ),
    Rule(
        name="QuerypulseDeliveryFailing",
        severity="warning",
        query="*",
        wait="10m",
        keep="10m",
        expr=NOT_DELIVERED,
        summary="querypulse in {{ $labels.app }} cannot tell its alerts",
        description="A receiver of querypulse in {{ $labels.app }} has not taken an alert for ten "
        "minutes, or an alert was given up. What is wrong with its queries reaches people "
        "through Prometheus only.",
    ),
)

WATCHDOG = (
    Rule(
        name="QuerypulseWatchdog",
        severity="none",
        app="*",
        query="*",
        comment="Not about any driver. Goes to a service outside that misses it.",
        expr="vector(1)",
        summary="Alerts get through from Prometheus to Alertmanager",
        description="This alert always fires. Who is told of it raises the alarm when it stays "
        "away: then Prometheus, Alertmanager or the way between them is broken, and no other "
        "alert arrives.",
    ),
)
