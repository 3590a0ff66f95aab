"""What waits against what its source keeps: whether data is in danger."""

from __future__ import annotations

from tools.grafana.fields import Json, thresholds
from tools.grafana.links import runbook
from tools.grafana.palette import BLUE, GREEN, ORANGE, VERMILLION
from tools.grafana.panels import drawn, graph
from tools.grafana.promql import each, topic

HALF = (12, 8)
BY_TOPIC = "app, query, source, topic"
LEGEND = "{{query}}: {{topic}}"
UNKNOWN = "nobody tells what its sources keep"


def used() -> Json:
    """How near the edge is."""
    return graph(
        "Retention used up by what waits",
        "How much of what a topic keeps, by age or by size, has not been read yet, in its worst "
        "partition. Good: near 0, or falling. At 100 % it is deleted unread: "
        f"{runbook('StreamingDataLossRisk')}. It stands high and falls while a query catches up.",
        [drawn(each(topic("retention_used_ratio"), by=BY_TOPIC), LEGEND)],
        HALF,
        unit="percentunit",
        at_least=1,
        color=BLUE,
        thresholds=thresholds(GREEN, {0.7: ORANGE, 0.9: VERMILLION}),
        empty=UNKNOWN,
    )


def left() -> Json:
    """How much time is left."""
    return graph(
        "Time until data is lost",
        "When the first record that waits would be deleted if nothing were read from now on, at "
        "least: segments are deleted whole. Good: level, near the topic's retention time. Falling "
        f"as fast as the clock runs: the query stands; {runbook('StreamingDataLossRisk')}.",
        [drawn(each(topic("retention_left_seconds"), by=BY_TOPIC, how="min"), LEGEND)],
        HALF,
        unit="s",
        color=ORANGE,
        empty=UNKNOWN,
    )
