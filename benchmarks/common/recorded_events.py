"""Progress events of many queries, in the shapes that real Spark wrote."""

import json
import uuid
from collections.abc import Iterator, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

FIXTURES = Path(__file__).resolve().parents[2] / "tests" / "fixtures"
EVENTS = FIXTURES / "events-spark-4.3.0.jsonl"
DELTA = FIXTURES / "sources-spark-4.2.0.jsonl"


def shapes() -> list[dict[str, Any]]:
    """Every batch that was recorded of rate, file and Delta sources, as a listener is given it."""
    events = [row["text"] for row in _rows(EVENTS) if (row["kind"], row["shape"]) == _CALLBACK]
    tables = [row["text"] for row in _rows(DELTA) if row["source"] == "delta"]
    found = [json.loads(text) for text in events]
    found += [{"progress": json.loads(text)} for text in tables]
    return [event for event in found if "addBatch" in event["progress"]["durationMs"]]


_CALLBACK = ("progress", "json")


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def new_ids(number: int) -> list[str]:
    """So many ids, as Spark makes them."""
    return [str(uuid.uuid4()) for _ in range(number)]


class RecordedRuns:
    """Runs of so many queries, of all shapes in turn; ``batch`` gives one event of each."""

    def __init__(self, query_ids: Sequence[str]) -> None:
        self.query_ids = query_ids
        self._texts = [
            _around_batch_id(shape, query_id, f"query-{number}")
            for number, (query_id, shape) in enumerate(
                zip(query_ids, cycle(shapes()), strict=False)
            )
        ]

    def batch(self, number: int) -> Iterator[str]:
        """The JSON text of each query's progress with this batch."""
        return (f"{before}{number}{after}" for before, after in self._texts)


def _around_batch_id(shape: dict[str, Any], query_id: str, name: str) -> tuple[str, str]:
    """The event's text before and after its batch id."""
    ids = {"id": query_id, "runId": str(uuid.uuid4()), "name": name}
    marked = {"progress": {**shape["progress"], **ids, "batchId": _HERE}}
    before, after = json.dumps(marked).split(json.dumps(_HERE))
    return before, after


_HERE = "the batch id"
