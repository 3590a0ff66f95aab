"""The building blocks of the PromQL expressions."""

from __future__ import annotations

import textwrap

BEAT = "querypulse_driver_heartbeat_timestamp_seconds"
BY_QUERY = "app, query, occurrence"
BY_APP = "app"
BY_SEVERITY = "app, query, severity, occurrence"

WATCHED = "and on (app, query) max by (app, query) (spark_streaming_query_alerting_enabled == 1)"
ALIVE = "and on (app, query) max by (app, query) (spark_streaming_query_active == 1)"
WINDOW = "max by (app, query) (spark_streaming_query_stall_window_seconds)"
PROGRESSES = f"""\
(
  max by (app, query) (spark_streaming_query_no_progress_seconds)
  <= on (app, query) {WINDOW}
)"""
CONTINUOUS = 'max by (app, query) (spark_streaming_query_info{trigger=~"Continuous.*"})'
HEARTBEAT_STUCK = f"""\
unless on (app) (
  max by (app) ({BEAT})
  == max by (app) ({BEAT} offset 5m)
)"""


def own(name: str, by: str = BY_QUERY) -> str:
    """Querypulse's own alert; for a driver that is no longer scraped, as of its last scrape.

    The heartbeat identifies the last scrape: an alert that resolved before has an older sample.
    """
    alert = f'spark_streaming_query_alert{{alertname="{name}"}}'
    return f"""\
max by ({by}) (
  {alert}
  or (
    last_over_time({alert}[5m])
    and (
      # the alert was open at the driver's last scrape
      {_scraped_at(alert)}
      >= on (app) group_left ()
      max by (app) ({_scraped_at(BEAT)})
    )
  )
  unless on (app) {BEAT}
)"""


def _scraped_at(series: str) -> str:
    """The time of the last scrape, to within the resolution of 5 s."""
    return f"last_over_time(timestamp({series})[5m:5s])"


def reported_by_querypulse(name: str, by: str = BY_QUERY) -> str:
    """For alerts that only querypulse's own evaluation can find."""
    return f"{own(name, by)}\n{HEARTBEAT_STUCK}"


def measured(name: str, what: str, by: str = BY_QUERY) -> str:
    """For alerts that follow from the measurement ``what``, or that querypulse reports."""
    return f"(\n{indented(what, 4)}\n  or\n{indented(own(name, by), 4)}\n)\n{HEARTBEAT_STUCK}"


def measured_unless_reported(name: str, what: str, severity: str) -> str:
    """The measured alert has this severity, unless querypulse reports the alert with its own.

    Once it lasts, querypulse reports it as another alert, and has resolved this one.
    """
    alert = f'unless on (app, query) spark_streaming_query_alert{{alertname="{name}"'
    reported = f'{alert}, severity!="{severity}"}}\n{alert}, occurrence!=""}}'
    mine = f"{what}\n# querypulse's own severity counts, and its own occurrence\n{reported}"
    labelled = f'label_replace(\n{indented(mine, 2)},\n  "severity", "{severity}", "", ""\n)'
    theirs = own(name, BY_SEVERITY)
    return f"(\n{indented(labelled, 4)}\n  or\n{indented(theirs, 4)}\n)\n{HEARTBEAT_STUCK}"


def indented(text: str, spaces: int) -> str:
    """The text with every line indented."""
    return textwrap.indent(text, " " * spaces)
