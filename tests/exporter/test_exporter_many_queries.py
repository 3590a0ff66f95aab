"""However many queries a driver has, a scrape stays bounded, and what it leaves out is counted."""

from __future__ import annotations

import pytest
from support.exporter_exposition import samples
from support.published_states import published
from support.story import CONFLICT, Story

from querypulse.exporter import metrics

LIMIT = 5


@pytest.fixture(autouse=True)
def small_limit(monkeypatch):
    monkeypatch.setattr(metrics, "MAX_QUERIES", LIMIT)


def driver(*, ended=0, running=0):
    """A story of queries that have ended, and then of queries that run."""
    story = Story()
    for number in range(ended):
        story.started(f"ended-{number}", at=0).ended(f"ended-{number}", at=1 + number / 100)
    for number in range(running):
        story.started(f"running-{number}", at=2)
    return story


def active(shown):
    """The queries that have a series."""
    return [
        sample.labels["query"]
        for sample in samples(shown)
        if sample.name == "spark_streaming_query_active"
    ]


def without_series(shown):
    (result,) = [
        sample for sample in samples(shown) if sample.name == "querypulse_queries_without_series"
    ]
    return result.value


@pytest.mark.parametrize("more", [1, 20])
def test_queries_beyond_the_limit_are_counted(more):
    shown = published(driver(running=LIMIT + more))
    assert active(shown) == [f"running-{number}" for number in range(LIMIT)]
    assert without_series(shown) == more


def test_running_queries_come_before_those_that_have_ended():
    shown = published(driver(ended=LIMIT, running=LIMIT))
    assert active(shown) == [f"running-{number}" for number in range(LIMIT)]


def test_query_that_fails_keeps_its_series_beside_many_that_have_ended():
    story = driver(ended=2 * LIMIT, running=1)
    story.started("doomed", at=2).ended("doomed", at=3, exception=CONFLICT)
    shown = published(story)

    newest = [f"ended-{number}" for number in reversed(range(2 * LIMIT))]
    assert active(shown) == ["running-0", "doomed", *newest[: LIMIT - 2]]
    assert [s.labels["query"] for s in samples(shown) if s.name.endswith("failure_info")] == [
        "doomed"
    ]


def test_expected_queries_come_first():
    shown = published(driver(running=LIMIT), expected=("bronze", "running-4"))
    assert set(active(shown)) == {"bronze", "running-4", "running-0", "running-1", "running-2"}
