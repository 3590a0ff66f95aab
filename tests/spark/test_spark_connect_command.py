"""``querypulse connect-server`` on real Spark: what its clients run is watched from the start."""

from __future__ import annotations

import signal

import pytest
from support.connect_command import command, served

from querypulse.core import COULD_NOT_BEGIN

pytestmark = [
    pytest.mark.spark,
    pytest.mark.every_spark,
    pytest.mark.connect,
    pytest.mark.timeout(600),
]


def start(spark, name, *, fails=False):
    from pyspark.sql.connect import functions as F

    rows = spark.readStream.format("rate").option("rowsPerSecond", 5).load()
    if fails:
        rows = rows.withColumn("x", F.raise_error(F.lit("no such order")))
    return rows.writeStream.format("noop").queryName(name).start()


def test_failure_of_a_clients_query_is_paged_and_the_end_by_a_signal_is_not(pages, tmp_path):
    from pyspark.sql.connect.session import SparkSession

    settings = {
        "QUERYPULSE_WEBHOOK_URL": pages.url,
        "QUERYPULSE_HTTP_PORT": "0",
        "QUERYPULSE_APP_NAME": "served",
    }
    with served(tmp_path, **settings) as server:
        assert ", status page http://127.0.0.1:" in server.driver.line("Spark Connect is served")
        spark = SparkSession.Builder().remote(server.remote).create()
        start(spark, "silver")
        start(spark, "bronze", fails=True)
        page = pages.wait_for("StreamingQueryFailed", "bronze")

        (other := tmp_path / "other").mkdir()
        port = server.remote.rpartition(":")[2]
        with command(other, port) as second:
            assert second.wait() == COULD_NOT_BEGIN, second.errors
            assert f"port {port} cannot be opened: is it taken?" in second.errors

        assert server.end(signal.SIGINT) == 0, server.driver.errors
        # ``stop()`` would wait for a server that has ended.
        spark.client.close()

    assert "no such order" in page.annotations["reason"]
    assert page.labels["app"] == "served"
    assert pages.reported == [("firing", "StreamingQueryFailed", "bronze")]
