"""Rows, lag, freshness, event time and state: whether the query keeps up with its input."""

from __future__ import annotations

from tools.grafana.fields import Json, fixed, limit, target_lines
from tools.grafana.links import runbook
from tools.grafana.palette import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY
from tools.grafana.panels import drawn, graph
from tools.grafana.promql import age, each, per_second, query, source, topic

HALF = (12, 8)
QUARTER = (6, 8)
LEGEND = "{{query}}: {{topic}}"
NOBODY_TO_ASK = "none of its sources is at a broker"


def rates() -> Json:
    """Rows in, rows out, and the rate it could process."""
    return graph(
        "Rows",
        "*arriving* and *could process* are Spark's own figures for the last batch; *read* and "
        "*written* are counted. Good: it could process more than arrives. Less for a long time: "
        f"{runbook('StreamingQueryLagging')}. *written* is 0 for sinks that do not count rows, "
        "such as foreachBatch.",
        [
            drawn(each(query("input_rows_per_second")), "{{query}}: arriving"),
            drawn(each(query("processed_rows_per_second")), "{{query}}: could process"),
            drawn(per_second(query("input_rows_total")), "{{query}}: read"),
            drawn(per_second(query("output_rows_total")), "{{query}}: written"),
        ],
        HALF,
        unit="rowsps",
        overrides=[
            target_lines("A", color=fixed(SKY)),
            target_lines("B", color=fixed(GREEN)),
            target_lines("C", color=fixed(BLUE)),
            target_lines("D", color=fixed(PURPLE)),
        ],
    )


def without_rows() -> Json:
    """How long it has read nothing, and the limit in its settings."""
    read, began = (query(f"{what}_timestamp_seconds") for what in ("last_input", "start"))
    return graph(
        "Time without rows",
        "Time since the current run last read rows, or since it started. The dashed line is the "
        "setting *expected_input_seconds*: above it, and above the window, expected data is "
        f"missing: {runbook('StreamingInputMissing')}. The alert also counts earlier runs. No "
        "dashed line: the query may be idle.",
        [
            drawn(f"time() - ({each(read)} or {each(began)})", "{{query}}: without rows"),
            drawn(each(query("expected_input_seconds")), "{{query}}: allowed"),
        ],
        HALF,
        unit="s",
        color=BLUE,
        overrides=[limit("B", ORANGE)],
        empty="no run was seen",
    )


def lag() -> Json:
    """Unread offsets by source."""
    by = "app, query, source"
    return graph(
        "Lag by source",
        "Unread offsets in each source, by its position in the query. The figure is the broker's "
        "where it answers, also while the query hangs or is dead. *Spark's* figure is from the "
        "planning of the last batch, and 0 where nothing limits a batch. Good: small, or falling. "
        f"Rising steadily: {runbook('StreamingQueryLagging')}; constant while nothing is "
        f"committed: {runbook('StreamingOffsetsStalled')}.",
        [
            drawn(each(source("lag_offsets"), by=by), "{{query}}: source {{source}}"),
            drawn(each(source("lag_reported_offsets"), by=by), "{{query}}: {{source}}, Spark's"),
        ],
        HALF,
        unit="short",
        at_least=1,
        empty="its sources do not report their lag",
        overrides=[target_lines("B", color=fixed(GREY))],
    )


def lag_of_topics() -> Json:
    """Unread offsets by topic."""
    return graph(
        "Lag by topic",
        "Unread offsets in each topic, from the broker. If one topic of many lags, it receives "
        "more data, or has too few partitions.",
        [drawn(each(topic("lag_offsets"), by="app, query, topic", how="sum"), LEGEND)],
        HALF,
        unit="short",
        at_least=1,
        empty=NOBODY_TO_ASK,
    )


def age_of_what_waits() -> Json:
    """How long the oldest unread record has waited."""
    asked = age(source("last_success_timestamp_seconds"), by="app, query, source")
    return graph(
        "Age of the oldest unread record",
        "How long the oldest unread record has waited, by the record's own timestamp: how far the "
        "results are behind. Good: a few seconds. *broker answered* is how long ago the broker "
        "last answered: if it climbs, the age is unknown.",
        [
            drawn(each(topic("lag_seconds"), by="app, query, topic"), LEGEND),
            drawn(each(source("lag_seconds"), by="app, query, source"), "{{query}}: {{source}}"),
            drawn(asked, "{{query}}: {{source}}, broker answered"),
        ],
        HALF,
        unit="s",
        empty=NOBODY_TO_ASK,
        overrides=[target_lines("C", color=fixed(GREY))],
    )


def freshness() -> Json:
    """How old the results are, by three clocks."""
    return graph(
        "Freshness",
        "How old the results are: since the last commit, and behind the event-time watermark "
        "(which does not advance when no data arrives). *last event* is the age of Spark's last "
        f"event about the query: if it climbs while batches commit, "
        f"{runbook('QuerypulseEventsMissing')}.",
        [
            drawn(age(query("last_commit_timestamp_seconds")), "{{query}}: last commit"),
            drawn(age(query("watermark_timestamp_seconds")), "{{query}}: watermark"),
            drawn(age(query("last_event_timestamp_seconds")), "{{query}}: last event"),
        ],
        HALF,
        unit="s",
        overrides=[
            target_lines("A", color=fixed(GREEN)),
            target_lines("B", color=fixed(ORANGE)),
            target_lines("C", color=fixed(GREY)),
        ],
    )


def watermark() -> Json:
    """How fast event time advances against the clock."""
    speed = each(f"deriv({query('watermark_timestamp_seconds')}[$__rate_interval])")
    return graph(
        "Speed of the watermark",
        "Seconds of event time per second. 1: it keeps up. Above 1: it catches up. At 0 while "
        f"rows arrive: {runbook('StreamingWatermarkStuck')}, state is neither emitted nor removed. "
        "Only for queries with a watermark.",
        [drawn(speed, "{{query}}")],
        QUARTER,
        unit="none",
        color=ORANGE,
        empty="the query has no watermark",
    )


def late_rows() -> Json:
    """Rows that arrived too late."""
    return graph(
        "Late rows, dropped",
        "Rows behind the watermark: the result does not contain them. Good: 0. Otherwise a source "
        "is late, or the watermark's delay is too short.",
        [drawn(per_second(query("late_rows_dropped_total")), "{{query}}")],
        QUARTER,
        unit="rowsps",
        at_least=1,
        color=PURPLE,
        bars=True,
    )


def state_rows() -> Json:
    """How many rows the query keeps in state."""
    return graph(
        "Rows in state",
        "In all its state stores. Good: level over a day. Growing steadily: no watermark, or one "
        f"that does not advance ({runbook('StreamingWatermarkStuck')}).",
        [drawn(each(query("state_rows")), "{{query}}")],
        QUARTER,
        unit="short",
        color=BLUE,
        empty="the query keeps no state",
    )


def state_memory() -> Json:
    """How much memory the state takes."""
    return graph(
        "Memory of state",
        "All its state stores, on the executors. Good: level, and far below the executors' memory.",
        [drawn(each(query("state_memory_bytes")), "{{query}}")],
        QUARTER,
        unit="bytes",
        color=BLUE,
        empty="the query keeps no state",
    )
