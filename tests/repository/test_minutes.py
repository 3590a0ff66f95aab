"""The minutes of a run by part."""

from __future__ import annotations

import pytest
from support.minutes import minutes_by_part, part_of, summary

TESTS = [
    ("tests/spark/test_spark_ends.py::test_a", 10.0),
    ("tests/spark/test_spark_ends.py::test_a", 50.0),
    ("tests/simulation/test_simulation.py::test_b[1/2]", 30.0),
    ("tests/core/test_guard.py::test_c", 20.0),
    ("tests/alerting/receivers/test_slack.py::test_d", 10.0),
]


def test_minutes_are_divided_as_the_tests_time_is():
    """Two minutes of tests in six processes may take half a minute."""
    assert minutes_by_part(TESTS, 0.5) == {"Spark": 0.25, "simulator": 0.125, "rest": 0.125}


def test_run_without_tests_has_no_parts():
    assert minutes_by_part([], 3.0) == {}


@pytest.mark.parametrize(
    ("test", "part"),
    [
        ("tests/faults/test_events.py::test_a", "faults"),
        ("tests/connectors/test_iceberg.py::test_a", "connectors"),
        ("tests/sidecar/test_spark.py::test_a", "rest"),
        ("tests/test_spark.py::test_a", "rest"),
    ],
)
def test_part_of_a_test_is_its_folder(test, part):
    assert part_of(test) == part


def test_long_run_ends_with_a_line_and_a_short_one_does_not():
    assert summary(TESTS, 12.0) == "minutes by part: Spark 6.0, simulator 3.0, rest 3.0"
    assert summary(TESTS, 0.9) == ""
