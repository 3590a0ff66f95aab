"""On real Spark: queries that read, through files, what other queries write."""

from __future__ import annotations

import json

import pytest
from support.queries import shown, until

pytestmark = [pytest.mark.spark, pytest.mark.thorough]


class FileChain:
    """``bronze`` reads JSON files; ``silver`` reads bronze; ``gold`` reads silver."""

    def __init__(self, spark, folder) -> None:
        self.spark, self.folder = spark, folder
        for name in ("in", "bronze", "silver"):
            (folder / name).mkdir()
        self.number = 0

    def put(self):
        """One more file of one row."""
        self.number += 1
        hidden = self.folder / f".{self.number}"
        hidden.write_text(json.dumps({"a": self.number}))
        hidden.rename(self.folder / "in" / f"{self.number}.json")

    def start(self):
        files = self.spark.readStream.schema("a long")
        self._write("bronze", files.json(str(self.folder / "in")))
        self._write("silver", files.parquet(str(self.folder / "bronze")))
        silver = files.parquet(str(self.folder / "silver"))
        self._writer("gold", silver).foreachBatch(lambda batch, _: batch.count()).start()

    def block_commits(self, name):
        """Put a file in the place of the commit log: the next commit fails."""
        log = self.folder / "checkpoints" / name / "commits"
        log.rename(log.with_name("saved"))
        log.touch()

    def _write(self, name, rows):
        self._writer(name, rows).format("parquet").start(str(self.folder / name))

    def _writer(self, name, rows):
        checkpoint = str(self.folder / "checkpoints" / name)
        writer = rows.writeStream.queryName(name).option("checkpointLocation", checkpoint)
        return writer.trigger(processingTime="300 milliseconds")


def test_failed_query_names_those_that_starve_and_they_say_so(spark, tmp_path, watch, pages):
    lake = FileChain(spark, tmp_path)
    lake.put()
    sidecar = watch(queries={"gold": {"writes": ["delta:/lake/gold"]}})
    lake.start()

    def aged():
        queries = {query.name: query for query in sidecar.snapshot().queries}
        if "gold" not in queries or queries["gold"].end_to_end_age_seconds is None:
            lake.put()
            return None
        return queries

    queries = until(aged, "data has passed through the chain")
    bronze, silver, gold = (queries[name] for name in ("bronze", "silver", "gold"))
    assert gold.upstream == bronze.downstream == ("silver",)
    assert silver.upstream == ("bronze",)
    assert gold.end_to_end_age_seconds >= bronze.end_to_end_age_seconds >= 0

    lake.block_commits("bronze")
    lake.put()
    page = pages.wait_for("StreamingQueryFailed", "bronze")
    assert page.annotations["downstream"] == "gold, silver get no data from it"

    def starving(name):
        query = shown(sidecar, name)
        return (query.state, query.reason) == ("idle", "upstream bronze failed")

    until(lambda: starving("silver") and starving("gold"), "both starve")
    assert [alert.labels["query"] for alert in sidecar.alerts()] == ["bronze"]
