"""Every row of every rule: what was observed, and the alert, or none. ``case.py`` says what a row is."""

from __future__ import annotations

from support.rules import (
    complete_by,
    data_loss,
    driver,
    failed,
    falling_behind,
    healthy,
    input_missing,
    lagging,
    offsets,
    skipped,
    slow,
    stalled,
    state_growth,
    stopped,
    watermark,
)
from support.rules.case import Case

TABLES = (
    healthy,
    failed,
    stopped,
    complete_by,
    stalled,
    slow,
    offsets,
    lagging,
    falling_behind,
    data_loss,
    skipped,
    watermark,
    state_growth,
    input_missing,
    driver,
)
CASES: dict[str, Case] = {words: case for table in TABLES for words, case in table.CASES.items()}
