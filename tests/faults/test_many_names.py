"""Many query names cost a bounded scrape, and a new name for each run costs no memory."""

from __future__ import annotations

import pytest
from support.exporter_exposition import text
from support.published_states import published
from support.story import Story

from querypulse.exporter.metrics import MAX_QUERIES
from querypulse.listener.state.state import MAX_GONE_QUERIES

MANY = MAX_GONE_QUERIES + 1_000
RUNNING = MAX_QUERIES + 200
HOSTILE = "\"} 1\nfake{x=\"\u202e🙂<script>alert('x')</script>" + "x" * 10_000
SCRAPE_BYTES = 40_000_000
"""What 1,000 queries take, with room to spare."""


@pytest.mark.slow
@pytest.mark.fault(
    "Names and texts",
    "1,200 running queries with hostile names of 10 KB",
    "1,000 have series, the rest is counted, each label is short, no name forges a line",
)
def test_many_hostile_names_give_a_bounded_scrape_and_forge_no_line():
    story = Story()
    for number in range(RUNNING):
        story.started(f"{number} {HOSTILE}", at=0)
    shown = published(story)
    scraped = text(shown)

    lines = [
        line for line in scraped.splitlines() if line.startswith("spark_streaming_query_active{")
    ]
    assert len(lines) == MAX_QUERIES
    assert f'querypulse_queries_without_series{{app="shop"}} {RUNNING - MAX_QUERIES}.0' in scraped
    assert not any(line.startswith("fake") for line in scraped.splitlines())
    assert max(map(len, lines)) < 300
    assert len(scraped.encode()) < SCRAPE_BYTES


@pytest.mark.slow
@pytest.mark.fault(
    "Names and texts",
    "A new name for each of 2,000 runs",
    "The names of ended runs are forgotten in order",
)
def test_a_new_name_for_each_run_is_forgotten_in_time():
    story = Story()
    for number in range(MANY):
        story.started(f"run-{number}", at=number).ended(f"run-{number}", at=number + 0.5)
        if number % 100 == 0:
            story.state.forget(number + 1.0)
    story.state.forget(float(MANY))

    kept = story.state.snapshot(float(MANY)).queries
    assert len(kept) <= MAX_GONE_QUERIES
    assert kept[-1].name == f"run-{MANY - 1}"
