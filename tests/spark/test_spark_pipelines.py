"""Declarative pipelines on real Spark: which flows are reported, and how each way attaches."""

from __future__ import annotations

import pytest
from support.pipeline import BROKEN, DEFINITIONS, IS_HERE, flow, run_pipeline

pytestmark = [
    pytest.mark.spark,
    pytest.mark.every_spark,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not IS_HERE, reason="Spark has pipelines from 4.1 on"),
]
ATTACHES = """
from querypulse import attach
assert attach(spark) is attach(spark)
"""
SETTINGS = {
    "QUERYPULSE_HTTP_PORT": "-1",
    "QUERYPULSE_APP_NAME": "flows",
    # A busy machine needs long for a batch, and a second for the end of a flow.
    "QUERYPULSE_STALL_FLOOR_SECONDS": "300",
}


def test_flow_that_fails_is_paged_once_and_those_that_complete_never(pages, tmp_path):
    """Spark tries it again twice: these are three runs of one query."""
    settings = SETTINGS | {"QUERYPULSE_WEBHOOK_URL": pages.url}
    with run_pipeline(DEFINITIONS + BROKEN + ATTACHES, tmp_path, **settings) as driver:
        assert driver.wait() == 1, driver.errors
        output = "\n".join([*driver.lines, driver.errors])

    assert pages.reported == [("firing", "StreamingQueryFailed", flow("broken"))], output
    assert "no such order" in pages.pages[0].annotations["reason"]
    assert f"Flow {flow('silver')} has COMPLETED" in output
    assert output.count(f"Flow {flow('broken')} is STARTING") > 1, "Spark retries"
