"""What sources report in public reports raises what it must, and nothing else."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace
from support.event_log import FIXTURES
from support.story import Story, run

from querypulse.listener.events import EventKind, decode

EVERY_SECONDS = 120
RAISES = {
    "databricks_auto_loader": {"StreamingQueryLagging"},
    "databricks_pubsub": {"StreamingQueryLagging"},
    "late_rows_watermark_moves": {"StreamingRowsDropped"},
}
AVAILABLE_NOW = {"available_now_two_sources"}
SHAPES = {
    line["shape"]: line["events"]
    for line in map(json.loads, (FIXTURES / "public-sources.jsonl").read_text().splitlines())
}


def lived(shape):
    """The alerts of a query that commits these batches, one every two minutes."""
    story, raised = Story(), set()
    trigger = "AvailableNowTrigger" if shape in AVAILABLE_NOW else "ProcessingTimeTrigger(0)"
    for batch, event in enumerate(SHAPES[shape], 1):
        at = batch * EVERY_SECONDS
        text = json.dumps({"progress": event["progress"] | {"batchId": batch}})
        decoded = decode(EventKind.PROGRESS, text)
        ids = {"query_id": decoded.query_id, "run_id": decoded.run_id, "name": decoded.name}
        seen = run(trigger=trigger, batch=batch)
        story.probe(replace(seen, facts=replace(seen.facts, **ids)), at=at - 1)
        story.state.apply_event(decoded, at)
        raised |= {found.alertname for found in story.evaluate(at + 1).findings}
    return raised


@pytest.mark.parametrize("shape", SHAPES)
def test_public_reports_raise_what_they_must_and_nothing_else(shape):
    assert lived(shape) == RAISES.get(shape, set())
