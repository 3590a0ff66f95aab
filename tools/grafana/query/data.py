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
NOBODY_TO_ASK = "no broker tells of its sources"


def rates() -> Json:
    """Rows in, rows out, and what it could do."""
    return graph(
        "Rows",
        "*arriving* and *could process* are Spark's own figures of the last batch; *read* and "
        "*written* are counted. Good: it could process more than arrives. Less, for long: "
        f"{runbook('StreamingQueryLagging')}. *written* is 0 for sinks that do not count, such as "
        "foreachBatch.",
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
    """For how long it has read nothing, under what its settings allow."""
    read, began = (query(f"{what}_timestamp_seconds") for what in ("last_input", "start"))
    return graph(
        "Time without rows",
        "Since the present run last read rows, or since it began. Dashed is the setting "
        "*expected_input_seconds*: above it, and above the window, data that must come is missing: "
        f"{runbook('StreamingInputMissing')}. The alert also counts the runs before. No dashed "
        "line: the query may be idle.",
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
    """What waits, by source."""
    by = "app, query, source"
    return graph(
        "Lag by source",
        "Offsets that wait in each source, by its place in the query: as the broker has it where "
        "it can be asked, also while the query hangs or is dead. *Spark's* is of the moment the "
        "last batch was planned, 0 where nothing limits a batch. Good: small, or falling. Rising "
        f"without an end: {runbook('StreamingQueryLagging')}; constant, while nothing is "
        f"committed: {runbook('StreamingOffsetsStalled')}.",
        [
            drawn(each(source("lag_offsets"), by=by), "{{query}}: source {{source}}"),
            drawn(each(source("lag_reported_offsets"), by=by), "{{query}}: {{source}}, Spark's"),
        ],
        HALF,
        unit="short",
        at_least=1,
        empty="its sources do not tell their lag",
        overrides=[target_lines("B", color=fixed(GREY))],
    )


def lag_of_topics() -> Json:
    """What waits, by topic."""
    return graph(
        "Lag by topic",
        "Offsets that wait in each topic, as the broker has it. One topic of many: more comes "
        "there, or its partitions are too few.",
        [drawn(each(topic("lag_offsets"), by="app, query, topic", how="sum"), LEGEND)],
        HALF,
        unit="short",
        at_least=1,
        empty=NOBODY_TO_ASK,
    )


def age_of_what_waits() -> Json:
    """For how long the first record has waited."""
    asked = age(source("last_success_timestamp_seconds"), by="app, query, source")
    return graph(
        "Age of what waits",
        "How long the first record that the query has not read has waited, by the record's own "
        "time: what a reader of the results misses. Good: a few seconds. *asked* is how long ago "
        "the broker last answered: if it climbs, nobody knows.",
        [
            drawn(each(topic("lag_seconds"), by="app, query, topic"), LEGEND),
            drawn(each(source("lag_seconds"), by="app, query, source"), "{{query}}: {{source}}"),
            drawn(asked, "{{query}}: {{source}}, asked"),
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
        "(which also stands still when no data comes). *last heard* is the age of Spark's last "
        f"event about the query: if it climbs while batches go on, "
        f"{runbook('QuerypulseEventsMissing')}.",
        [
            drawn(age(query("last_commit_timestamp_seconds")), "{{query}}: last commit"),
            drawn(age(query("watermark_timestamp_seconds")), "{{query}}: watermark"),
            drawn(age(query("last_event_timestamp_seconds")), "{{query}}: last heard"),
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
    """Event time against the clock on the wall."""
    speed = each(f"deriv({query('watermark_timestamp_seconds')}[$__rate_interval])")
    return graph(
        "Speed of the watermark",
        "Seconds of event time in each second. 1: it keeps pace. Above: it catches up. At 0 while "
        f"rows arrive: {runbook('StreamingWatermarkStuck')}, nothing is ever emitted or forgotten. "
        "Only for queries with a watermark.",
        [drawn(speed, "{{query}}")],
        QUARTER,
        unit="none",
        color=ORANGE,
        empty="the query has no watermark",
    )


def late_rows() -> Json:
    """Rows that came too late."""
    return graph(
        "Late rows, dropped",
        "Rows behind the watermark: they are lost to the result. Good: 0. Otherwise a source is "
        "late, or the watermark's delay is too short.",
        [drawn(per_second(query("late_rows_dropped_total")), "{{query}}")],
        QUARTER,
        unit="rowsps",
        at_least=1,
        color=PURPLE,
        bars=True,
    )


def state_rows() -> Json:
    """How much the query remembers."""
    return graph(
        "Rows in state",
        "In all its state stores. Good: level over a day. Growing without an end: no watermark, "
        f"or one that stands ({runbook('StreamingWatermarkStuck')}).",
        [drawn(each(query("state_rows")), "{{query}}")],
        QUARTER,
        unit="short",
        color=BLUE,
        empty="the query keeps no state",
    )


def state_memory() -> Json:
    """What remembering costs."""
    return graph(
        "Memory of state",
        "Of all its state stores, on the executors. Good: level, and far below their memory.",
        [drawn(each(query("state_memory_bytes")), "{{query}}")],
        QUARTER,
        unit="bytes",
        color=BLUE,
        empty="the query keeps no state",
    )
