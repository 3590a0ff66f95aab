"""The idioms of our queries: which series, and how they become one line for each query.

Series are put together by what they are about: a driver that comes back under another address
goes on in the same line.
"""

from __future__ import annotations

from tools.grafana.palette import STATES

OF_DRIVER = 'job=~"$job", instance=~"$instance"'
OF_APP = f'{OF_DRIVER}, app=~"$app"'
OF_QUERY = f'{OF_APP}, query=~"$query"'
OF_ALERT = 'app=~"$app", query=~"$query|[*]"'
"""An alert of a whole driver has ``query="*"``."""
ALERT_LABELS = "app, query, alertname, severity"
OPEN_ALERTS = f"spark_streaming_query_alert{{{OF_DRIVER}, {OF_ALERT}}}"
"""1 for each alert that querypulse itself has open."""
PROMETHEUS_ALERTS = f'ALERTS{{alertstate="firing", alertname!="QuerypulseWatchdog", {OF_ALERT}}}'
"""1 for each alert that fires in Prometheus; it has no ``job`` and no ``instance``."""

NUMBERS = {state: len(STATES) - place for place, state in enumerate(STATES)}
"""A state as a number, the worst the highest: Grafana draws numbers and shows words."""


def query(name: str, *matchers: str) -> str:
    """Series of the chosen queries: ``spark_streaming_query_<name>``."""
    return _series(f"spark_streaming_query_{name}", OF_QUERY, *matchers)


def source(name: str) -> str:
    """Series of the sources of the chosen queries: ``spark_streaming_source_<name>``."""
    return _series(f"spark_streaming_source_{name}", OF_QUERY)


def topic(name: str) -> str:
    """Series of the topics that the chosen queries read: ``spark_streaming_topic_<name>``."""
    return _series(f"spark_streaming_topic_{name}", OF_QUERY)


def monitor(name: str, *matchers: str) -> str:
    """Series of the monitors of the chosen drivers: ``querypulse_<name>``."""
    return _series(f"querypulse_{name}", OF_DRIVER, *matchers)


def driver(name: str) -> str:
    """Series of the chosen applications as a whole: ``querypulse_driver_<name>``."""
    return _series(f"querypulse_driver_{name}", OF_APP)


def each(expression: str, *, by: str = "app, query", how: str = "max") -> str:
    """One series for each query, or for what ``by`` names."""
    return f"{how} by ({by}) ({expression})"


def per_second(counter: str, *, by: str = "app, query") -> str:
    """How fast a counter grows."""
    return f"sum by ({by}) (rate({counter}[$__rate_interval]))"


def per_minute(counter: str, *, by: str = "app, query") -> str:
    """How fast a counter grows, in a minute."""
    return f"60 * {per_second(counter, by=by)}"


def meanwhile(counter: str, *, by: str = "app, query") -> str:
    """By how much a counter grew in the time shown, as a whole number."""
    return f"round(sum by ({by}) (increase({counter}[$__range])))"


def quantile(share: float, buckets: str, *, by: str) -> str:
    """A quantile of a histogram over the recent batches, events or polls."""
    return f"histogram_quantile({share}, {per_second(buckets, by=f'{by}, le')})"


def age(timestamp: str, *, by: str = "app, query") -> str:
    """Seconds since a moment."""
    return f"time() - {each(timestamp, by=by)}"


def or_none(counted: str, *, by: str) -> str:
    """0 for each monitor of which nothing was counted, so that its table keeps the column."""
    return f"{counted} or 0 * {each(monitor('mailbox_depth'), by=by)}"


def state_number(*, by: str = "app, query") -> str:
    """The state of each query as one of ``NUMBERS``; the worst, where two drivers run it."""
    numbered = "\n  or ".join(
        f"{number} * {query('state', matcher('state', state))}" for state, number in NUMBERS.items()
    )
    return f"max by ({by}) (\n  {numbered}\n)"


def meanwhile_each_step(counter: str, *, by: str = "app, query") -> str:
    """By how much a counter grew from one drawn point to the next, and a little before."""
    return f"round(sum by ({by}) (increase({counter}[$__rate_interval])))"


def share_of_window(*, by: str = "app, query") -> str:
    """Time since the last activity divided by the window, 1 at a stall; not of ended queries."""
    since = age(query("last_activity_timestamp_seconds"), by=by)
    window = each(query("stall_window_seconds"), by=by)
    over = query("state", matcher("state", "stopped", "completed"))
    return f"({since}) / {window} unless {each(over, by=by)} == 1"


def silent_apps() -> str:
    """The last heartbeat of each application that should keep running and is silent.

    That is the alert ``StreamingDriverDown`` without its patience.
    """
    received = each(driver("heartbeat_timestamp_seconds"), by="app")
    last = each(f"last_over_time({driver('heartbeat_timestamp_seconds')}[1d])", by="app")
    needed = each(f"last_over_time({driver('expected_timestamp_seconds')}[1d])", by="app")
    return f"({needed} >= {last} unless time() - {received} < 60)"


def open_for(alerts: str) -> str:
    """For each alert that is open now: seconds it was open in the last six hours."""
    # One that lasts continues under another occurrence.
    by_occurrence = each(f"sum_over_time({alerts}[6h:15s])", by=f"{ALERT_LABELS}, occurrence")
    known = f"sum by ({ALERT_LABELS}) ({by_occurrence})"
    opened = each(alerts, by=ALERT_LABELS)
    # One that is younger than a step is not counted yet, but is open.
    return f"15 * ({known} or 0 * {opened}) and {opened}"


def in_state(*states: str) -> str:
    """How many of the chosen queries are in one of ``states``."""
    return f"sum({each(query('state', matcher('state', *states)))})"


def matcher(label: str, *values: str) -> str:
    """The label has one of these values, none of which contains a regex metacharacter."""
    return f'{label}{"=~" if len(values) > 1 else "="}"' + "|".join(values) + '"'


def _series(name: str, *matchers: str) -> str:
    return f"{name}{{{', '.join(matchers)}}}"
