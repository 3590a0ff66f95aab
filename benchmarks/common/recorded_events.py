"""Progress events of many queries, in the shapes that real Spark wrote."""

import json
import uuid
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).resolve().parents[2] / "tests" / "fixtures" / "events-spark-4.3.0.jsonl"


def shapes() -> list[dict[str, Any]]:
    """One progress event of each shape recorded."""
    rows = [json.loads(line) for line in RECORDED.read_text().splitlines()]
    found = {row["shape"]: json.loads(row["text"]) for row in rows if row["kind"] == "progress"}
    return list(found.values())


class Fleet:
    """So many queries, of all shapes in turn; ``batch`` gives one event of each."""

    def __init__(self, queries: int) -> None:
        self._members = [
            (str(uuid.uuid4()), str(uuid.uuid4()), f"query-{number}", shape)
            for number, shape in zip(range(queries), cycle(shapes()), strict=False)
        ]

    def batch(self, number: int) -> Iterator[str]:
        """The JSON text of each query's progress with this batch."""
        for query_id, run_id, name, shape in self._members:
            shape["progress"] |= {
                "id": query_id,
                "runId": run_id,
                "name": name,
                "batchId": number,
            }
            yield json.dumps(shape)
