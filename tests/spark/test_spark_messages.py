"""On real Spark: an alert has the failed line of Python, and a resolve the current state."""

from __future__ import annotations

import logging
import re

import pytest
import requests
from pyspark.sql.functions import udf
from support.queries import Trap, commits, rate, start, until

pytestmark = pytest.mark.spark


def test_foreach_batch_failure_has_headline_line_and_resolve_text(spark, watch, pages):
    sidecar = watch(app_name="orders", external_url="https://driver.example/")
    trap = Trap()
    start(rate(spark), "billing", trap)
    commits(sidecar, "billing")
    trap.die.set()
    shown = pages.wait_for("StreamingQueryFailed", "billing").annotations

    assert shown["summary"].startswith("[orders] billing failed: Boom: files were added")
    assert "support/queries.py:" in shown["python_line"]
    assert shown["python_line"].endswith(" in __call__")
    assert "raise" in shown["traceback"].splitlines()[-1]
    assert shown["next_steps"].startswith("1. ")
    assert shown["runbook_url"] == "https://driver.example/runbooks/StreamingQueryFailed"
    assert (
        "# StreamingQueryFailed"
        in requests.get(f"{sidecar.url}/runbooks/StreamingQueryFailed", timeout=10).text
    )
    assert "hunter2" not in str(pages.requests)

    start(rate(spark), "billing", Trap())
    over = pages.wait_for(
        "StreamingQueryFailed", "billing", status="resolved", timeout=60
    ).annotations

    back = r"Resolved: \[orders\] billing (commits again|is healthy again and idle) after \d+ s"
    assert re.fullmatch(back, over["summary"])
    assert over["description"] == f"was: {shown['summary']}"


def test_udf_failure_has_its_python_line(spark, watch, pages):
    def divide(value):
        return 1 // (value - value)

    watch(app_name="orders")
    start(rate(spark).select(udf(divide, "long")("value")), "divided")
    shown = pages.wait_for("StreamingQueryFailed", "divided", timeout=60).annotations

    assert "[orders] divided failed: " in shown["summary"]
    assert "ZeroDivisionError" in shown["summary"]
    assert "test_spark_messages.py:" in shown["python_line"]
    assert shown["python_line"].endswith(" in divide")


def test_start_log_names_app_receivers_and_status_page(watch, caplog):
    with caplog.at_level(logging.INFO, "querypulse"):
        sidecar = watch(app_name="orders")

    assert f'watching "orders": 1 receiver (webhook), status page at {sidecar.url}' in caplog.text
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_log_warns_when_no_receiver_is_configured(watch, caplog):
    watch(webhook_url=None)

    (record,) = [one for one in caplog.records if one.levelno >= logging.WARNING]
    assert "no receiver is configured" in record.getMessage()


def test_failed_query_shows_no_rates(spark, watch, pages):
    sidecar = watch()
    trap = Trap()
    start(rate(spark), "fast", trap)
    commits(sidecar, "fast")

    def shown():
        return sidecar.snapshot().queries[0].input_rows_per_second

    until(lambda: shown() is not None, "its rate is shown")
    trap.die.set()
    pages.wait_for("StreamingQueryFailed", "fast")

    assert shown() is None
