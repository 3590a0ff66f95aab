"""The compatibility page shows what each environment's run found."""

from __future__ import annotations

import pytest
from support.compatibility_page import page, parsed

PASSED = '<testcase classname="tests.spark.test_a" name="test_one[3]" time="1"/>'
FAILED = '<testcase classname="tests.spark.test_a" name="test_two"><failure>no</failure></testcase>'
SKIPPED = '<testcase classname="tests.spark.test_b" name="test_three"><skipped/></testcase>'
ENDED = '<testcase classname="" name=""><failure>worker gone</failure></testcase>'


def run(*cases, name="4.0.5-python3.10.13.xml"):
    suite = "".join(cases)
    return parsed(
        name,
        f'<testsuites><testsuite timestamp="2026-11-24T10:00:00">{suite}</testsuite></testsuites>',
    )


def test_each_run_is_a_column_and_each_file_a_row():
    newer = run(PASSED, PASSED, SKIPPED, name="4.3.0-python3.11.7.xml")
    text = page([newer, run(PASSED)], {"tests/spark/test_a.py": "Deaths"})

    assert "|  | Spark 4.0.5, Python 3.10.13 | Spark 4.3.0, Python 3.11.7 |" in text
    assert "| run on | 2026-11-24 | 2026-11-24 |" in text
    assert "| [Deaths](../tests/spark/test_a.py) | 1 | 2 |" in text
    assert "| [tests/spark/test_b.py](../tests/spark/test_b.py) | not run | 0, 1 skipped |" in text
    assert "Failed" not in text


def test_failures_are_counted_and_named():
    text = page([run(PASSED, FAILED)], {})

    assert "| 1, 1 failed |" in text
    assert "* Spark 4.0.5, Python 3.10.13: `test_two`" in text


def test_run_that_was_ended_early_is_refused():
    with pytest.raises(ValueError, match=r"4\.0\.5-python3\.10\.13\.xml: the run was ended"):
        run(PASSED, ENDED)
