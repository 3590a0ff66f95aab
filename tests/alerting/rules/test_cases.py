"""Every row of ``support/rules/``: a story has its alerts, its state and the rules that hold."""

from __future__ import annotations

import re

import pytest
from support.rules import CASES, TABLES
from support.rules.case import expected, outcome


def hyphened(words):
    """The words as ``pytest -k`` can select them."""
    return "-".join(re.findall(r"\w+", words))


@pytest.mark.parametrize("words", CASES, ids=hyphened)
def test_story_has_its_alerts_and_its_state(words):
    row = CASES[words]

    assert outcome(row) == expected(row), words


def test_no_two_rows_have_the_same_words():
    assert len(CASES) == sum(len(table.CASES) for table in TABLES)


def test_more_rows_are_silent_than_fire():
    firing = [case for case in CASES.values() if case.alerts]

    assert len(CASES) - len(firing) > len(firing)
