"""The parts that the expressions are made of, in PromQL."""

from __future__ import annotations

import textwrap

BEAT = "querypulse_driver_heartbeat_timestamp_seconds"
BY_QUERY = "app, query"
BY_APP = "app"
BY_SEVERITY = "app, query, severity"

WATCHED = "and on (app, query) max by (app, query) (spark_streaming_query_alerting_enabled == 1)"
ALIVE = "and on (app, query) max by (app, query) (spark_streaming_query_active == 1)"
WINDOW = "max by (app, query) (spark_streaming_query_stall_window_seconds)"
GETS_ON = f"""\
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
    """Querypulse's own alert; of a driver that is not scraped any more, what its last scrape had.

    The heartbeat tells which scrape was the last: what had resolved before is older than it.
    """
    alert = f'spark_streaming_query_alert{{alertname="{name}"}}'
    return f"""\
max by ({by}) (
  {alert}
  or (
    last_over_time({alert}[5m])
    and (
      # it was there at the driver's last scrape
      {_scraped_at(alert)}
      >= on (app) group_left ()
      max by (app) ({_scraped_at(BEAT)})
    )
  )
  unless on (app) {BEAT}
)"""


def _scraped_at(series: str) -> str:
    """When it was scraped last, to within a few seconds, as a gap may end it in between."""
    return f"last_over_time(timestamp({series})[5m:5s])"


def reported_by_querypulse(name: str, by: str = BY_QUERY) -> str:
    """Where only its judging can tell."""
    return f"{own(name, by)}\n{HEARTBEAT_STUCK}"


def measured(name: str, what: str, by: str = BY_QUERY) -> str:
    """Where ``what`` was measured is enough to tell, or querypulse says so."""
    return f"(\n{indented(what, 4)}\n  or\n{indented(own(name, by), 4)}\n)\n{HEARTBEAT_STUCK}"


def measured_unless_reported(name: str, what: str, severity: str) -> str:
    """What was measured has this severity; where querypulse reports the alert, its own counts."""
    reported = f'spark_streaming_query_alert{{alertname="{name}", severity!="{severity}"}}'
    mine = f"{what}\n# querypulse knows more about it\nunless on (app, query) {reported}"
    labelled = f'label_replace(\n{indented(mine, 2)},\n  "severity", "{severity}", "", ""\n)'
    theirs = own(name, BY_SEVERITY)
    return f"(\n{indented(labelled, 4)}\n  or\n{indented(theirs, 4)}\n)\n{HEARTBEAT_STUCK}"


def indented(text: str, spaces: int) -> str:
    """Each line further to the right."""
    return textwrap.indent(text, " " * spaces)
