"""On real Spark: an alert has the failed line of Python, and a resolve the current state."""

from __future__ import annotations

import logging
import re

import pytest
import requests
from pyspark.sql.functions import udf
from support.patience import PATIENCE_SECONDS
from support.queries import Trap, commits, rate, start

pytestmark = [pytest.mark.spark, pytest.mark.thorough]


def test_foreach_batch_failure_has_headline_line_and_resolve_text(spark, watch, pages, caplog):
    with caplog.at_level(logging.INFO, "querypulse"):
        sidecar = watch(app_name="orders", external_url="https://driver.example/")
    assert 'watching "orders": 1 receiver (webhook), status page at https://driver' in caplog.text
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    trap = Trap()
    start(rate(spark), "billing", trap)
    commits(sidecar, "billing")
    trap.die.set()
    failed = pages.wait_for("StreamingQueryFailed", "billing", timeout=PATIENCE_SECONDS)
    shown = failed.annotations

    assert shown["summary"].startswith("[orders] billing failed: Boom: files were added")
    assert "support/queries.py:" in shown["python_line"]
    assert shown["python_line"].endswith(" in __call__")
    assert "raise" in shown["traceback"].splitlines()[-1]
    assert shown["next_steps"].startswith("1. ")
    assert shown["runbook_url"] == "https://driver.example/runbooks/StreamingQueryFailed"
    runbook = requests.get(
        f"{sidecar.url}/runbooks/StreamingQueryFailed", timeout=PATIENCE_SECONDS
    ).text
    assert "# StreamingQueryFailed" in runbook
    assert "hunter2" not in str(pages.requests)

    start(rate(spark), "billing", Trap())
    resolved = pages.wait_for(
        "StreamingQueryFailed", "billing", status="resolved", timeout=PATIENCE_SECONDS
    )
    over = resolved.annotations

    back = r"Resolved: \[orders\] billing (commits again|is healthy again and idle) after \d+ s"
    assert re.fullmatch(back, over["summary"])
    assert over["description"] == f"was: {shown['summary']}"


def test_udf_failure_has_its_python_line(spark, watch, pages):
    def divide(value):
        return 1 // (value - value)

    watch(app_name="orders")
    start(rate(spark).select(udf(divide, "long")("value")), "divided")
    shown = pages.wait_for("StreamingQueryFailed", "divided", timeout=PATIENCE_SECONDS).annotations

    assert "[orders] divided failed: " in shown["summary"]
    assert "ZeroDivisionError" in shown["summary"]
    assert "test_spark_messages.py:" in shown["python_line"]
    assert shown["python_line"].endswith(" in divide")
