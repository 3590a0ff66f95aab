"""Thousands of query names cost a bounded scrape, and a new name for each run costs no memory."""

from __future__ import annotations

import time

import pytest
from support.exporter_exposition import text
from support.published_states import published
from support.story import Story

from querypulse.exporter.query_metrics import MAX_QUERIES
from querypulse.listener.state import MAX_GONE_QUERIES

MANY = 10_000
RUNNING = 3_000
HOSTILE = "\"} 1\nfake{x=\"\u202e🙂<script>alert('x')</script>" + "x" * 10_000
SCRAPE_BYTES = 40_000_000
"""What 1,000 queries take, with room to spare."""


@pytest.mark.slow
@pytest.mark.fault(
    "Names and texts",
    "3,000 running queries with hostile names of 10 KB",
    "1,000 have series, the rest is counted, each label is short, no name forges a line",
)
def test_thousands_of_names_give_a_bounded_scrape(measured):
    story = Story()
    for number in range(RUNNING):
        story.started(f"{number} {HOSTILE}", at=0)
    shown = published(story)
    began = time.monotonic()
    scraped = text(shown)
    seconds = time.monotonic() - began

    measured(f"{len(scraped.encode()) / 1e6:.1f} MB in {seconds:.2f} s")
    lines = [one for one in scraped.splitlines() if one.startswith("spark_streaming_query_active{")]
    assert len(lines) == MAX_QUERIES
    assert f'querypulse_queries_without_series{{app="shop"}} {RUNNING - MAX_QUERIES}.0' in scraped
    assert not any(line.startswith("fake") for line in scraped.splitlines())
    assert max(map(len, lines)) < 300
    assert len(scraped.encode()) < SCRAPE_BYTES


@pytest.mark.slow
@pytest.mark.fault(
    "Names and texts",
    "A new name for each of 10,000 runs",
    "The names of ended runs are forgotten in order",
)
def test_a_new_name_for_each_run_is_forgotten_in_time(measured):
    story = Story()
    for number in range(MANY):
        story.started(f"run-{number}", at=number).ended(f"run-{number}", at=number + 0.5)
        if number % 100 == 0:
            story.state.forget(number + 1.0)
    story.state.forget(float(MANY))

    kept = story.state.snapshot(float(MANY)).queries
    measured(f"{len(kept)} queries kept")
    assert len(kept) <= MAX_GONE_QUERIES
    assert kept[-1].name == f"run-{MANY - 1}"
