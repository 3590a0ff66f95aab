"""``docs/faults.md`` has a row for each fault that a test makes happen, and for nothing else."""

from __future__ import annotations

import ast
import re

from support.repository import ROOT

TESTS = ROOT / "tests"
PAGE = ROOT / "docs" / "faults.md"
MARK = "pytest.mark.fault("


def marked():
    """The tests marked with a fault, as ``path::name``."""
    return {
        f"{path.relative_to(ROOT).as_posix()}::{function.name}"
        for path in TESTS.rglob("test_*.py")
        if MARK in path.read_text()
        for function in ast.parse(path.read_text()).body
        if isinstance(function, ast.FunctionDef)
        for decorator in function.decorator_list
        if ast.unparse(decorator).startswith(MARK)
    }


def listed():
    rows = re.findall(r"\[`(\w+)`\]\(\.\./(\S+?)\)", PAGE.read_text())
    return {f"{path}::{name}" for name, path in rows}


def test_every_fault_has_a_row_and_every_row_a_test():
    assert listed() == marked()
    assert len(marked()) > 50
