"""Failures as Spark and Delta report them."""

from __future__ import annotations

import json

from .recorded import recorded


def real_deaths(spark):
    names = {
        json.loads(text)["runId"]: json.loads(text)["name"]
        for _, text in recorded("started", "json", spark)
    }
    for _, text in recorded("terminated", "json", spark):
        event = json.loads(text)
        if event["exception"]:
            yield names[event["runId"]], event["exception"], event["errorClassOnException"]


def delta_conflict(table):
    """The text from Spark 4.2 and Delta Lake 4.4 when a MERGE in ``foreachBatch`` loses."""
    return (
        "py4j.Py4JException: An exception was raised by the Python Proxy. Return Message: "
        "Traceback (most recent call last):\n"
        '  File "/opt/pyspark/sql/utils.py", line 163, in call\n'
        "    self.func(DataFrame(jdf, wrapped_session_jdf), batch_id)\n"
        '  File "/job/alerts.py", line 28, in merge\n    batch.sparkSession.sql(MERGE)\n'
        "py4j.protocol.Py4JJavaError: An error occurred while calling o136.sql.\n"
        ": io.delta.exceptions.ConcurrentAppendException: [DELTA_CONCURRENT_APPEND.WITHOUT_HINT] "
        f"Transaction conflict detected. a concurrent MERGE added data to table {table} committed "
        "at version 7. The concurrent operation modified data that should have been read by this "
        "operation. Please retry the operation. Refer to "
        "https://docs.delta.io/latest/concurrency-control.html for more information.\n"
        "\tat io.delta.exceptions.ConcurrentAppendException$.apply(DeltaConcurrentExceptions.scala:136)\n"
    )
