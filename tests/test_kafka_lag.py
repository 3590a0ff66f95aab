"""Lag as the broker has it: on a real broker, against the broker's own figures."""

from __future__ import annotations

import pytest
from support.queries import Trap, shown, start, until

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def test_the_lag_of_a_hung_query_grows_as_the_brokers_own_figure(spark, kafka, watch):
    topic = kafka.topic(partitions=2)
    sidecar = watch(source_interval_seconds=0.5)
    trap = Trap()
    kafka.produce(topic, ["a"] * 10)
    query = start(kafka.stream(spark, topic), "hung", trap)
    until(lambda: shown(sidecar, "hung") and shown(sidecar, "hung").lag_offsets == 0, "no lag")
    trap.hold.set()
    kafka.produce(topic, ["b"])
    assert trap.held.wait(10)
    kafka.produce(topic, ["c"] * 20)
    try:
        until(lambda: shown(sidecar, "hung").lag_offsets == 21, "the lag grows")
    finally:
        trap.hold.clear()
        trap.free.set()
    until(lambda: shown(sidecar, "hung").lag_offsets == 0, "the lag is gone")
    query.stop()
