"""On real Kafka: queries whose topics look sick and are well are told to nobody."""

from __future__ import annotations

import pytest
from support.kafka_cage import KafkaCage
from support.kafka_zoo import AFTER, BEFORE, SETTINGS, rows
from support.queries import until
from support.zoo import Diary
from support.zoo_healthy import FLOOR, TREND

# A busy machine takes minutes to bring all animals in.
pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.delta, pytest.mark.timeout(900)]

ZOO = (*BEFORE, *AFTER)
WATCH_SECONDS = 45
assert 2 * max(FLOOR, TREND) < WATCH_SECONDS


@pytest.fixture
def cage(spark, kafka, watch, tmp_path):
    """Depends on ``watch`` in order to be closed before its queries are stopped."""
    cage = KafkaCage(spark, tmp_path, kafka)
    yield cage
    cage.close()


def test_a_zoo_of_healthy_queries_at_a_broker_is_told_to_nobody(cage, watch, pages):
    queries = {animal.name: animal.start(cage) for animal in BEFORE}
    until(lambda: all(cage.committed(name) >= 0 for name in queries), "all commit", 300)
    sidecar = watch(**SETTINGS)
    diary = Diary(cage, sidecar)
    queries |= {animal.name: animal.start(cage) for animal in AFTER}

    brisk = [animal.name for animal in ZOO if not animal.leisurely]
    until(lambda: diary.seconds > WATCH_SECONDS, "the time is over", 90)
    until(lambda: diary.seconds > 2 * max(diary[name].window for name in brisk), "twice", 300)

    assert pages.pages == []
    assert sidecar.alerts() == ()
    lives = {animal: diary[animal.name] for animal in ZOO}
    states = {animal.name: life.state for animal, life in lives.items()}
    assert {a.name: states[a.name] for a in ZOO if states[a.name] not in a.states} == {}
    assert [a.name for a, life in lives.items() if not a.lived(life, queries[a.name])] == []
    read = rows(queries["to_delta"])
    table = cage.spark.read.format("delta").load(str(cage.folder("to_delta") / "table"))
    assert table.count() >= read > 5
