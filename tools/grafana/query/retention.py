"""The unread backlog against the retention of its source: whether data is at risk."""

from __future__ import annotations

from tools.grafana.fields import Json, thresholds
from tools.grafana.links import runbook
from tools.grafana.palette import BLUE, GREEN, ORANGE, VERMILLION
from tools.grafana.panels import drawn, graph
from tools.grafana.promql import each, topic

HALF = (12, 8)
BY_TOPIC = "app, query, source, topic"
LEGEND = "{{query}}: {{topic}}"
UNKNOWN = "the retention of its sources is unknown"


def used() -> Json:
    """How much of the retention the backlog uses."""
    return graph(
        "Retention used by the unread backlog",
        "How much of what a topic retains, by age or by size, is unread, in its worst partition. "
        "Good: near 0, or falling. At 100 % records are deleted unread: "
        f"{runbook('StreamingDataLossRisk')}. It is high and falls while a query catches up.",
        [drawn(each(topic("retention_used_ratio"), by=BY_TOPIC), LEGEND)],
        HALF,
        unit="percentunit",
        at_least=1,
        color=BLUE,
        thresholds=thresholds(GREEN, {0.7: ORANGE, 0.9: VERMILLION}),
        empty=UNKNOWN,
    )


def left() -> Json:
    """How much time is left before records are deleted unread."""
    return graph(
        "Time until data is lost",
        "When the oldest unread record is deleted, at the earliest, if nothing more is read: Kafka "
        "deletes whole segments. Good: level, near the topic's retention time. Falling as fast as "
        f"the clock: the query reads nothing; {runbook('StreamingDataLossRisk')}.",
        [drawn(each(topic("retention_left_seconds"), by=BY_TOPIC, how="min"), LEGEND)],
        HALF,
        unit="s",
        color=ORANGE,
        empty=UNKNOWN,
    )
