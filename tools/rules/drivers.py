"""Alerts about a whole driver, its monitor, and the delivery of alerts."""

from __future__ import annotations

from tools.rules.expressions import (
    ALIVE,
    BEAT,
    BY_APP,
    CONTINUOUS,
    HEARTBEAT_STUCK,
    WATCHED,
    indented,
    measured,
)
from tools.rules.rule import Rule

LOST = 'querypulse_alerts_lost_total{reason!="obsolete"}'

GONE = f"""\
# at its last scrape, within a day, it had queries that should keep running
max by (app) (last_over_time(querypulse_driver_expected_timestamp_seconds[1d]))
>= on (app) max by (app) (last_over_time({BEAT}[1d]))
# and it has no heartbeat that advances
unless on (app) (
  {BEAT}
  unless {BEAT} == {BEAT} offset 2m
)"""

EVENTS_MISSING = f"""\
# the probe saw a commit two minutes after the last event
max by (app) (
  (
    spark_streaming_query_last_commit_timestamp_seconds
    - spark_streaming_query_last_event_timestamp_seconds
  ) > 120
{indented(ALIVE, 2)}
{indented(WATCHED, 2)}
  # continuous queries send no event for a commit
  unless on (app, query) {CONTINUOUS}
)"""

BLIND = f"""\
# no probe of Spark for three minutes, although the probe worked before
max by (app) (
  {BEAT}
  and on (job, instance) (
    querypulse_probe_duration_seconds_count > 0
    and querypulse_probe_duration_seconds_count == querypulse_probe_duration_seconds_count offset 3m
  )
)
# another alert already reports that the JVM does not answer or is gone
unless on (app)
  max by (app) (spark_streaming_query_alert{{
    alertname=~"StreamingQueryStalled|StreamingQueryStopped"
  }})"""

NOT_DELIVERED = f"""\
max by (app) (
  {BEAT}
  and on (job, instance) (
    # alerts that a receiver has not accepted
    querypulse_outbox_pending > 0
    # or alerts that were given up within the hour
    or {LOST} > min_over_time({LOST}[1h])
  )
)
# the figures of a dead driver stay at a Pushgateway
{HEARTBEAT_STUCK}"""

DRIVERS = (
    Rule(
        name="StreamingDriverDown",
        severity="critical",
        query="*",
        wait="2m",
        comment="Resolves when the app is back, or after a day. Does not fire after a planned end: "
        "at the last scrape, every query had stopped or completed, or was announced to "
        "stop (expect_stop), or has a trigger that ends by itself.",
        expr=GONE,
        summary="The driver of {{ $labels.app }} is down",
        description="Prometheus no longer gets metrics of {{ $labels.app }}, or its monitor has "
        "not advanced for minutes. At the last scrape it had queries that should keep running.",
        reason="last heartbeat at {{ $value | humanizeTimestamp }}",
    ),
    Rule(
        name="QuerypulseEventsMissing",
        severity="warning",
        query="*",
        wait="2m",
        expr=measured("QuerypulseEventsMissing", EVENTS_MISSING, BY_APP),
        summary="querypulse in {{ $labels.app }} does not receive Spark's events",
        description="Queries of {{ $labels.app }} commit without an event, or Spark's "
        "listener queue drops events. The probe still detects failures and stalls; rates, lags "
        "and durations are old.",
    ),
    Rule(
        name="QuerypulseMonitoringDegraded",
        severity="warning",
        query="*",
        wait="2m",
        expr=measured("QuerypulseMonitoringDegraded", BLIND, BY_APP),
        summary="querypulse in {{ $labels.app }} cannot see its queries",
        description="The probe gets no answer from the JVM of {{ $labels.app }}, or a required "
        "checkpoint cannot be read. Events still report failures; a query that hangs may go "
        "undetected.",
    ),
    Rule(
        name="QuerypulseDeliveryFailing",
        severity="warning",
        query="*",
        wait="10m",
        keep="10m",
        expr=NOT_DELIVERED,
        summary="querypulse in {{ $labels.app }} cannot deliver its alerts",
        description="A receiver of querypulse in {{ $labels.app }} has not accepted an alert for "
        "ten minutes, or an alert was given up. Problems of its queries reach people "
        "through Prometheus only.",
    ),
)

WATCHDOG = (
    Rule(
        name="QuerypulseWatchdog",
        severity="none",
        app="*",
        query="*",
        comment="Not about any driver. Route it to an external service that alerts on its absence.",
        expr="vector(1)",
        summary="Prometheus can deliver alerts to Alertmanager",
        description="This alert always fires. Its receiver raises the alarm when the alert stops: "
        "then Prometheus, Alertmanager or the connection between them is broken, and no other "
        "alert arrives.",
    ),
)
