"""The incident that started this project, on real Kafka and Delta Lake with a second writer."""

from __future__ import annotations

import re
from itertools import takewhile

import pytest
from support.demo import ON_DELTA, demo

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.delta]

TABLE = "spark_catalog.fleet.alert_resolution"
FAILURE = ("firing", "StreamingQueryFailed", "alert_resolution")
ENDED_BY_FAILURE = 3


def facts(output):
    """The facts that the demo prints at the end; a line after them begins with a time."""
    _, _, text = output.partition("\nThe facts\n")
    lines = takewhile(lambda line: line.startswith("  "), text.splitlines())
    return dict(re.split(r"\s{2,}", line.strip(), maxsplit=1) for line in lines)


@pytest.mark.parametrize("time", ["  93.9", " 100.0", "1000.0"])
def test_facts_end_where_a_line_begins_with_a_time_of_any_length(time):
    printed = (
        f"\nThe facts\n  job                ended\n  committed since    1 of 2\n[{time} s] stop\n"
    )

    assert facts(printed) == {"job": "ended", "committed since": "1 of 2"}


def names_the_table(page):
    """Check that a page says what happened to whom."""
    assert page.annotations["error_class"].startswith("DELTA_CONCURRENT_APPEND")
    assert page.annotations["exception"] == "ConcurrentAppendException"
    assert page.annotations["table"] == TABLE
    assert page.annotations["summary"].endswith(
        f"] alert_resolution failed: ConcurrentAppendException on table {TABLE}"
    )
    assert "a concurrent MERGE added data" in page.annotations["reason"]
    assert page.annotations["python_line"].endswith("in merge")


def test_supervised_failure_ends_the_process_for_its_scheduler_to_restart(pages):
    arguments = ("--supervised", "--queries", 2, "--after", 0, "--webhook-url", pages.url)
    result = demo(*arguments, command=ON_DELTA)

    assert result.returncode == ENDED_BY_FAILURE, result.stdout + result.stderr
    assert pages.reported == [FAILURE]
    names_the_table(pages.pages[0])
    assert pages.pages[0].annotations["all_queries"].startswith("1 of 2 healthy")
    assert "await_any_failure() raises QueryFailure: ConcurrentAppendException" in result.stdout
    assert facts(result.stdout)["job"] == "ended by its own await_any_failure()"
    assert "Traceback" not in result.stdout + result.stderr


@pytest.mark.thorough
def test_delta_conflict_fails_one_of_eight_queries_and_its_page_names_the_table(pages):
    result = demo("--after", 1, "--webhook-url", pages.url, command=ON_DELTA)

    assert result.returncode == 0, result.stdout + result.stderr
    assert pages.reported == [FAILURE]
    names_the_table(pages.pages[0])
    assert pages.pages[0].annotations["all_queries"].startswith("7 of 8 healthy")
    printed = facts(result.stdout)
    assert printed["job"] == (
        "RUNNING all the time, 7 of 8 queries active; Python waits in awaitTermination()"
    )
    assert printed["committed since"] == "7 of 8 queries"
    assert "Traceback" not in result.stdout + result.stderr
