"""On real Spark: queries that look sick and are well, all in one driver, are told to nobody."""

from __future__ import annotations

import pytest
from support.queries import until
from support.zoo import Cage, Diary
from support.zoo_healthy import AFTER, BEFORE, GRACE, SETTINGS, TREND

# A busy machine takes minutes to bring all animals in.
pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

ZOO = (*BEFORE, *AFTER)
WATCH_SECONDS = 45
assert 2 * max(GRACE, TREND) < WATCH_SECONDS


@pytest.fixture
def cage(spark, watch, tmp_path):
    """Depends on ``watch`` in order to be closed before its queries are stopped."""
    cage = Cage(spark, tmp_path)
    yield cage
    cage.close()


def test_a_zoo_of_healthy_queries_is_told_to_nobody(cage, watch, pages):
    queries = {animal.name: animal.start(cage) for animal in BEFORE}
    until(lambda: all(cage.committed(name) > 1 for name in queries), "all commit", 120)
    sidecar = watch(**SETTINGS)
    diary = Diary(cage, sidecar)
    queries |= {animal.name: animal.start(cage) for animal in AFTER}
    labels = {name: query.name or query.id[:8] for name, query in queries.items()}

    until(lambda: len(diary[labels["planned_stop"]].commits) > 6, "it commits", 60)
    sidecar.expect_stop("planned_stop")
    queries["planned_stop"].stop()
    brisk = [labels[animal.name] for animal in ZOO if not animal.leisurely]
    until(lambda: diary.seconds > WATCH_SECONDS, "the time is over", 90)
    until(lambda: diary.seconds > 2 * max(diary[label].window for label in brisk), "twice", 90)

    assert pages.told == []
    assert sidecar.alerts() == ()
    lives = {animal: diary[labels[animal.name]] for animal in ZOO}
    assert {animal.name: life.state for animal, life in lives.items()} == {
        animal.name: animal.state for animal in ZOO
    }
    unlike = [a.name for a, life in lives.items() if not a.lived(life, queries[a.name])]
    assert unlike == []
    # Its events tell of batch 2, and its log never will.
    assert cage.committed("async_tracking_idle") == 0
