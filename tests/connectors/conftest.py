"""Fixtures of the tests at a broker."""

from __future__ import annotations

import pytest


@pytest.fixture
def harness(spark, kafka, watch, tmp_path):
    """Depends on ``watch`` so that it is closed before its queries are stopped."""
    from support.connectors import KafkaHarness

    harness = KafkaHarness(spark, tmp_path, kafka)
    yield harness
    harness.close()
