"""On real Spark: an outage of what several queries need is few pages, and a later failure is one."""

from __future__ import annotations

import json
import threading

import pytest
import requests
from support.http_double import HttpDouble
from support.queries import SPARK_PATIENCE_SECONDS, Trap, commits, rate, shown, start, until

from querypulse.alerting.incidents import lifecycle

pytestmark = [pytest.mark.spark, pytest.mark.slow]

FAILED = "StreamingQueryFailed"
QUERIES = [f"orders-{number}" for number in range(6)]


class StoreWriter:
    """A ``foreachBatch`` function that posts each batch to a server, once ``writes`` is set."""

    def __init__(self, url: str) -> None:
        self.writes = threading.Event()
        self.writes.set()
        self.is_held = threading.Event()
        self._url = url

    def __call__(self, batch, batch_id):
        if not self.writes.is_set():
            self.is_held.set()
        if not self.writes.wait(SPARK_PATIENCE_SECONDS):
            raise TimeoutError("it was not allowed to write")
        requests.post(f"{self._url}/batches/{batch_id}", data=str(batch.count()), timeout=60)


def messages(pages):
    """What the webhook got, by message: the incident's key, its status, and its queries."""
    received = [json.loads(request.body) for request in pages.requests]
    return [
        (
            message["groupKey"],
            message["status"],
            sorted({alert["labels"]["query"] for alert in message["alerts"]}),
        )
        for message in received
    ]


def test_outage_of_one_server_that_six_queries_write_to_is_three_incidents(
    spark, watch, pages, monkeypatch
):
    """Each fails when it next writes, after the ten seconds within which an error class is enough."""
    monkeypatch.setattr(lifecycle, "GROUP_SECONDS", 0.0)
    sidecar = watch()
    with HttpDouble() as store:
        writers = {name: StoreWriter(store.url) for name in QUERIES}
        for name, writer in writers.items():
            start(rate(spark), name, writer)
        for name in QUERIES:
            commits(sidecar, name)
        for writer in writers.values():
            writer.writes.clear()
        # A post that is under way when the server ends would be the first failure.
        for writer in writers.values():
            until(writer.is_held.is_set, "it is about to write")

    for name, writer in writers.items():
        writer.writes.set()
        pages.wait_for(FAILED, name)
    assert sidecar.flush()

    incidents = {key for key, *_ in messages(pages)}
    keys = {key.rpartition("/")[2] for key in incidents}
    assert keys == {"orders-0", "orders-1", "*"}
    assert messages(pages)[-1][1:] == ("firing", QUERIES[2:])
    assert len(messages(pages)) == len(QUERIES)


def test_failure_in_a_later_batch_is_a_second_page_and_in_the_same_batch_none(
    spark, watch, pages, tmp_path, monkeypatch
):
    monkeypatch.setattr(lifecycle, "NEWS_SECONDS", 0.0)
    sidecar = watch(resolve_after_seconds=3600, restart_budget=16)
    trap = Trap()

    def run():
        return start(rate(spark), "orders", trap, checkpoint=tmp_path / "checkpoint")

    def fails(query):
        def is_known():
            status = shown(sidecar, "orders")
            return (status.run_id, status.state) == (query.runId, "failed")

        until(query.exception, "it fails")
        until(is_known, "it is known to have failed")
        assert sidecar.flush()

    query = run()
    commits(sidecar, "orders", 2)
    trap.die.set()
    fails(query)
    again = run()
    fails(again)
    assert len(messages(pages)) == 1

    trap.die.clear()
    later = run()
    until(lambda: len(later.recentProgress) > 1, "it commits two batches")
    until(lambda: shown(sidecar, "orders").state == "running", "it is known to commit")
    trap.die.set()
    fails(later)
    assert messages(pages) == [(messages(pages)[0][0], "firing", ["orders"])] * 2
