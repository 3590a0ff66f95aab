"""Fixtures of the tests of what settings make."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from pyspark import SparkContext
from pyspark.sql.streaming.query import StreamingQueryManager


@pytest.fixture
def file(tmp_path):
    """Write a file; returns its path."""

    def write(content, name="secret"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    return write


@pytest.fixture
def streams(driver, monkeypatch):
    """PySpark's own ``spark.streams``, whose methods read the listener's Java object."""
    context = SimpleNamespace(_gateway=SimpleNamespace(jvm=None))
    monkeypatch.setattr(SparkContext, "_gateway", context._gateway)
    monkeypatch.setattr("py4j.java_gateway.java_import", lambda jvm, name: None)
    monkeypatch.setattr("pyspark.java_gateway.ensure_callback_server_started", lambda gateway: None)
    return lambda: StreamingQueryManager(driver.manager)
