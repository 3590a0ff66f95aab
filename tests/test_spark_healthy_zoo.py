"""On real Spark: sixteen healthy queries that look sick, in one driver, and nobody is told."""

from __future__ import annotations

import time

import pytest
from support.queries import shown, until
from support.zoo import Cage, Diary
from support.zoo_healthy import AFTER, BEFORE, GRACE, SETTINGS, TREND

pytestmark = pytest.mark.spark

WATCH_SECONDS = 45
assert WATCH_SECONDS > 2 * max(GRACE, TREND)


@pytest.fixture
def cage(spark, watch, tmp_path):
    """Depends on ``watch`` in order to be closed before its queries are stopped."""
    cage = Cage(spark, tmp_path)
    yield cage
    cage.close()


def test_a_zoo_of_healthy_queries_is_told_to_nobody(cage, watch, pages):
    queries = {animal.name: animal.start(cage) for animal in BEFORE}
    until(lambda: queries["older"].lastProgress, "older commits")
    sidecar, diary = watch(**SETTINGS), Diary()
    queries |= {animal.name: animal.start(cage) for animal in AFTER}
    diary.watch(sidecar, WATCH_SECONDS / 2)
    sidecar.expect_stop("planned_stop")
    queries["planned_stop"].stop()
    diary.watch(sidecar, WATCH_SECONDS / 2)

    assert pages.told == []
    assert sidecar.alerts() == ()
    lives = {name: diary[query.name or query.id[:8]] for name, query in queries.items()}
    zoo = (*BEFORE, *AFTER)
    assert {animal.name: lives[animal.name].last_state for animal in zoo} == {
        animal.name: animal.state for animal in zoo
    }
    assert [animal.name for animal in zoo if not animal.lived(lives[animal.name])] == []
