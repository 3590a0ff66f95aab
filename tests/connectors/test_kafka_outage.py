"""A broker is killed and returns while we watch: the stall is reported, and so is its end."""

from __future__ import annotations

import pytest
from support import connectors
from support.queries import commits, rate, shown, start, until

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.thorough]

SETTINGS = {
    "source_interval_seconds": 0.5,
    "stall_floor_seconds": 60.0,
}
IMPATIENT = {
    "kafka.default.api.timeout.ms": "20000",
    "kafka.request.timeout.ms": "10000",
    "fetchOffset.numRetries": "1",
}
"""Such a query fails in an outage; with Kafka's defaults it waits for minutes. Its patience is
longer than a living broker takes on a busy machine, and ends before the query is called stalled."""


@pytest.fixture
def mortal(tmp_path_factory):
    """A broker of this test's own, to be killed."""
    broker = connectors.Kafka(tmp_path_factory.mktemp("mortal"))
    yield broker
    broker.close()


@pytest.mark.nightly
def test_broker_outage_stalls_one_query_fails_another_and_both_recover(
    spark, mortal, watch, pages, tmp_path
):
    topic = mortal.topic()
    mortal.produce(topic, ["a"])
    sidecar = watch(**SETTINGS)
    start(mortal.stream(spark, topic), "patient")
    impatient = mortal.stream(spark, topic, **IMPATIENT)
    start(impatient, "impatient", checkpoint=tmp_path / "impatient")
    start(rate(spark), "elsewhere")
    for name in ("patient", "impatient", "elsewhere"):
        commits(sidecar, name)

    mortal.broker.kill()
    dead = pages.wait_for("StreamingQueryFailed", "impatient")
    stalled = pages.wait_for("StreamingQueryStalled", "patient")
    assert stalled.annotations["reason"].startswith("source_hung: ")
    assert "Timeout" in dead.annotations["reason"]
    unread = until(lambda: sidecar.snapshot().monitor.sources_unread, "the broker is silent")
    assert "Timeout" in str(unread)
    assert shown(sidecar, "elsewhere").state == "running"

    mortal.broker.start()
    start(impatient, "impatient", checkpoint=tmp_path / "impatient")
    for name in ("StreamingQueryStalled", "patient"), ("StreamingQueryFailed", "impatient"):
        pages.wait_for(*name, status="resolved")
    mortal.produce(topic, ["b"])
    until(lambda: shown(sidecar, "patient").state in {"running", "idle"}, "the query is healthy")
    until(lambda: shown(sidecar, "patient").lag_offsets == 0, "the broker is asked again")
    assert {page.what for page in pages.pages} == {
        ("StreamingQueryStalled", "patient"),
        ("StreamingQueryFailed", "impatient"),
    }
