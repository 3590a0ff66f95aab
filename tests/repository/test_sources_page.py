"""Every claim on the page of sources, sinks and triggers has a test."""

from __future__ import annotations

import ast
import re

import pytest
from support.repository import ROOT

PAGE = (ROOT / "docs" / "sources.md").read_text()
SHOWN_BY = dict(re.findall(r"^(\d+)\. `([\w./:]+)`$", PAGE, re.MULTILINE))


def rows():
    """The cells of each row of the tables with a 'shown by' column."""
    tables = re.findall(r"^\|.*shown by \|\n\|[-|]+\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for table in tables
        for line in table.splitlines()
    ]


@pytest.mark.parametrize("number", SHOWN_BY)
def test_each_named_test_exists(number):
    name, _, function = SHOWN_BY[number].partition("::")
    (file,) = (ROOT / "tests").glob(f"*/{name}")
    tree = ast.parse(file.read_text())

    assert function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_each_row_names_a_test(row):
    numbers = re.findall(r"\d+", row[-1])

    assert numbers
    assert set(numbers) <= set(SHOWN_BY)


def test_each_named_test_is_used_by_a_row():
    assert {number for row in rows() for number in re.findall(r"\d+", row[-1])} == set(SHOWN_BY)
    assert len(rows()) == 20
