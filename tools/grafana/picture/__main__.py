"""``python -m tools.grafana.picture PROMETHEUS DASHBOARD.json PICTURE.svg [options]``."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tools.grafana.picture.answers import Answers
from tools.grafana.picture.graph import draw_graph
from tools.grafana.picture.notes import notes
from tools.grafana.picture.stat import draw_stat
from tools.grafana.picture.svg import FAINT, GROUND, PAPER, RULE, Box, document, fit, rect, text
from tools.grafana.picture.table import draw_table
from tools.grafana.picture.timeline import draw_timeline
from tools.grafana.picture.values import Json

CELL, GAP = Box(0, 0, 54, 36), 6
MARGIN, HEAD = 10, 56
Draw = Callable[[Json, Answers, Box], list[str]]
SAID = (
    "Drawn by querypulse's own tooling from the dashboard's JSON and a real Prometheus; "
    "not a screenshot of Grafana."
)


def picture(dashboard: Json, answers: Answers) -> str:
    """All panels of a dashboard as an SVG."""
    panels = dashboard["panels"]
    bottom = max(one["gridPos"]["y"] + one["gridPos"]["h"] for one in panels)
    width, height = 24 * CELL.w + 2 * MARGIN, bottom * CELL.h + HEAD + MARGIN
    parts = [
        rect(Box(0, 0, width, height), GROUND),
        text(MARGIN + 4, 26, dashboard["title"], size=18, bold=True),
        text(MARGIN + 4, 45, SAID, size=11, fill=FAINT),
    ]
    kinds: dict[str, Draw] = {
        "stat": draw_stat,
        "table": draw_table,
        "timeseries": partial(draw_graph, noted=notes(dashboard, answers)),
        "state-timeline": draw_timeline,
    }
    for panel in panels:
        parts += _panel(panel, answers, kinds)
    return document(width, height, parts)


def _panel(panel: Json, answers: Answers, kinds: dict[str, Draw]) -> list[str]:
    place = panel["gridPos"]
    box = Box(
        MARGIN + place["x"] * CELL.w,
        HEAD + place["y"] * CELL.h,
        place["w"] * CELL.w,
        place["h"] * CELL.h,
    ).inset(GAP / 2, GAP / 2, GAP / 2, GAP / 2)
    if panel["type"] == "row":
        return [text(box.x + 4, box.y + box.h - 9, panel["title"], size=14, bold=True)]
    title = text(box.x + 10, box.y + 19, fit(panel["title"], box.w - 20, 13), size=13, bold=True)
    inside = kinds[panel["type"]](panel, answers, box.inset(8, 28, 8, 8))
    return [rect(box, PAPER, stroke=RULE, radius=4), title, *inside]


def main() -> None:
    """Read the arguments, ask, draw, write."""
    parser = argparse.ArgumentParser(prog="python -m tools.grafana.picture", description=__doc__)
    parser.add_argument("prometheus", help="its base URL")
    parser.add_argument("dashboard", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--minutes", type=float, default=60, help="how much time is shown")
    parser.add_argument("--until", type=float, default=time.time(), help="Unix seconds")
    parser.add_argument("--query", default=".+", help="which queries, as a regex")
    parser.add_argument("--app", default=".+", help="which applications, as a regex")
    asked = parser.parse_args()
    start = asked.until - 60 * asked.minutes
    answers = Answers(
        asked.prometheus, start, asked.until, {"query": asked.query, "app": asked.app}
    )
    dashboard = json.loads(asked.dashboard.read_text(encoding="utf-8"))
    asked.picture.parent.mkdir(parents=True, exist_ok=True)
    asked.picture.write_text(picture(dashboard, answers), encoding="utf-8")


if __name__ == "__main__":
    main()
