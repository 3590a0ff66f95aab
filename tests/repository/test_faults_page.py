"""``docs/faults.md`` has a row for each fault that a test makes happen, and for nothing else."""

from __future__ import annotations

from support.faults import marked
from support.faults_page import beginning, link
from support.repository import ROOT

PAGE = ROOT / "docs" / "faults.md"


def test_every_fault_has_a_row_and_every_row_a_test():
    faults = marked()
    rows = [row for row in PAGE.read_text().splitlines() if "](../tests/" in row]
    missing = [
        test
        for test, fault in faults.items()
        if not any(row.startswith(beginning(fault)) and link(test) in row for row in rows)
    ]

    assert missing == []
    assert len(rows) == len(faults)
    assert len(faults) > 50
