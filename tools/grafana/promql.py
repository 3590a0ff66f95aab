"""The idioms of our queries: which series, and how they become one line for each query.

Series are put together by what they are about: a driver that comes back under another address
goes on in the same line.
"""

from __future__ import annotations

from querypulse.core.states import STATES

NUMBERS = {state: len(STATES) - place for place, state in enumerate(STATES)}
"""A state as a number, the worst the highest: Grafana draws numbers and shows words."""

OF_DRIVER = 'job=~"$job", instance=~"$instance"'
OF_APP = f'{OF_DRIVER}, app=~"$app"'
OF_QUERY = f'{OF_APP}, query=~"$query"'
OF_ALERT = 'app=~"$app", query=~"$query|[*]"'
"""An alert of a whole driver has ``query="*"``."""
ALERT = "app, query, alertname, severity"
OPEN_ALERTS = f"spark_streaming_query_alert{{{OF_DRIVER}, {OF_ALERT}}}"
"""1 for each alert that querypulse itself has open, and 0 for a while after it ended."""
PROMETHEUS_ALERTS = f'ALERTS{{alertstate="firing", alertname!="QuerypulseWatchdog", {OF_ALERT}}}'
"""1 for each alert that fires in Prometheus; it has no ``instance``."""
QUERY = "app, query"


def streaming(name: str, *matchers: str) -> str:
    """Series of the chosen queries, their sources and topics: ``spark_streaming_<name>``."""
    return f"spark_streaming_{name}{{{', '.join((OF_QUERY, *matchers))}}}"


def monitor(name: str, *matchers: str) -> str:
    """Series of the monitors of the chosen drivers: ``querypulse_<name>``."""
    return f"querypulse_{name}{{{', '.join((OF_DRIVER, *matchers))}}}"


def driver(name: str) -> str:
    """Series of the chosen applications as a whole: ``querypulse_driver_<name>``."""
    return f"querypulse_driver_{name}{{{OF_APP}}}"


def in_states(*states: str) -> str:
    """1 for each chosen query that is in one of ``states``."""
    return streaming("query_state", f'state{"=~" if len(states) > 1 else "="}"{"|".join(states)}"')


def max_by(expression: str, by: str = QUERY) -> str:
    """One series for each query, or for what ``by`` names."""
    return f"max by ({by}) ({expression})"


def sum_by(expression: str, by: str = QUERY) -> str:
    """The sum for each query, or for what ``by`` names."""
    return f"sum by ({by}) ({expression})"


def per_second(counter: str, by: str = QUERY) -> str:
    """How fast a counter grows."""
    return sum_by(f"rate({counter}[$__rate_interval])", by)


def per_minute(counter: str, by: str = QUERY) -> str:
    """How fast a counter grows, in a minute."""
    return f"60 * {per_second(counter, by)}"


def growth(counter: str, by: str = QUERY, over: str = "$__range") -> str:
    """By how much a counter grew, as a whole number: in the time shown, or for each point."""
    return f"round({sum_by(f'increase({counter}[{over}])', by)})"


def quantile(share: float, buckets: str, by: str = "instance") -> str:
    """A quantile of a histogram over the recent batches, events or polls."""
    return f"histogram_quantile({share}, {per_second(buckets, f'{by}, le')})"


def age(timestamp: str, by: str = QUERY) -> str:
    """Seconds since a moment."""
    return f"time() - {max_by(timestamp, by)}"


def state_number(by: str = QUERY) -> str:
    """The state of each query as one of ``NUMBERS``; the worst, where two drivers run it."""
    numbered = "\n  or ".join(f"{number} * {in_states(state)}" for state, number in NUMBERS.items())
    return f"max by ({by}) (\n  {numbered}\n)"


def share_of_window(by: str = QUERY) -> str:
    """Time since the last activity divided by the window, 1 at a stall; not of ended queries."""
    since = age(streaming("query_last_activity_timestamp_seconds"), by)
    window = max_by(streaming("query_stall_window_seconds"), by)
    return f"({since}) / {window} unless {max_by(in_states('stopped', 'completed'), by)} == 1"


def silent_apps() -> str:
    """The last heartbeat of each application that should keep running and is silent.

    That is the alert ``StreamingDriverDown`` without its patience.
    """
    received = max_by(driver("heartbeat_timestamp_seconds"), "app")
    last = max_by(f"last_over_time({driver('heartbeat_timestamp_seconds')}[1d])", "app")
    needed = max_by(f"last_over_time({driver('expected_timestamp_seconds')}[1d])", "app")
    return f"({needed} >= {last} unless time() - {received} < 60)"


def now_open(alerts: str) -> str:
    """1 for each alert that is open now."""
    return f"{max_by(alerts, ALERT)} == 1"


def open_for(alerts: str) -> str:
    """For each alert that is open now: seconds it was open in the last six hours."""
    seconds = max_by(f"sum_over_time({alerts}[6h:15s])", ALERT)
    opened = now_open(alerts)
    # One that is younger than a step is not counted yet, but is open.
    return f"15 * ({seconds} or 0 * ({opened})) and {opened}"
