"""Recorded events of real Spark, from tests/fixtures."""

from __future__ import annotations

import json
from pathlib import Path

from querypulse.listener.events import EventKind

FIXTURES = Path(__file__).parent.parent / "fixtures"


def recorded(
    kind: str | None = None, shape: str | None = None, spark: str = "*"
) -> list[tuple[EventKind, str]]:
    """Recorded events as (kind, JSON text), of one Spark version or of all."""
    lines = [
        json.loads(line)
        for path in sorted(FIXTURES.glob(f"events-spark-{spark}.jsonl"))
        for line in path.read_text().splitlines()
    ]
    return [
        (EventKind(line["kind"]), line["text"])
        for line in lines
        if kind in (None, line["kind"]) and shape in (None, line["shape"])
    ]
