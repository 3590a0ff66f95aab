"""The cause of a failure is found in Spark's exception text, without its secrets."""

from __future__ import annotations

import pytest
from support.failures import delta_conflict, real_deaths
from support.planted import PLANTED, in_lines, joined

from querypulse.listener.failure import describe_failure, died_of_stopped_context


@pytest.mark.parametrize(
    ("spark", "error_class", "prefix"),
    [
        ("4.3.0", "USER_RAISED_EXCEPTION", "[USER_RAISED_EXCEPTION] "),
        ("3.5.9", "RuntimeException", ""),
    ],
)
def test_real_failure_is_reported_by_its_innermost_cause(spark, error_class, prefix):
    failures = {name: describe_failure(text, kind) for name, text, kind in real_deaths(spark)}
    of_python, of_java, of_jvm = (
        failures[name] for name in ("python_failure", "java_failure", None)
    )

    assert of_python.error_class == "RuntimeError"
    assert of_python.message.startswith("Files were added to partition [day=2024-05-01]")
    assert {of_java.error_class, of_jvm.error_class} == {error_class}
    assert of_java.message.startswith(f"{prefix}java side says no")
    assert of_jvm.message.startswith(f"{prefix}plain jvm failure")
    for failure in (of_python, of_java, of_jvm):
        assert "\tat " not in failure.message
        assert "hunter2" not in failure.message


def test_delta_conflict_in_a_java_call_of_foreach_batch_is_named():
    text = (
        "py4j.Py4JException: An exception was raised by the Python Proxy. Return Message: "
        "Traceback (most recent call last):\n"
        '  File "job.py", line 9, in merge\n    table.merge(df)\n'
        "py4j.protocol.Py4JJavaError: An error occurred while calling o1.execute.\n"
        ": io.delta.exceptions.ConcurrentAppendException: Files were added to the root.\n"
        "\tat io.delta.X.y(X.scala:1)\n"
    )

    failure = describe_failure(text, "FOREACH_BATCH_USER_FUNCTION_ERROR")

    assert failure.reason == "ConcurrentAppendException: Files were added to the root."


@pytest.mark.parametrize(
    "table", ["spark_catalog.fleet.alert_resolution", "delta.`file:/tables/alert_resolution`"]
)
def test_real_delta_conflict_names_condition_exception_and_table(table):
    failure = describe_failure(delta_conflict(table), "FOREACH_BATCH_USER_FUNCTION_ERROR")

    assert failure.error_class == "DELTA_CONCURRENT_APPEND.WITHOUT_HINT"
    assert failure.exception == "ConcurrentAppendException"
    assert failure.table == table
    assert failure.headline == f"ConcurrentAppendException on table {table}"
    assert failure.reason.startswith(
        "ConcurrentAppendException: [DELTA_CONCURRENT_APPEND.WITHOUT_HINT] Transaction conflict"
    )


def test_only_a_named_table_is_reported():
    tables = {
        "deleted data from table lake.db.orders (committed at version 3)": "lake.db.orders",
        "The metadata of the Delta table a.b has been changed by a concurrent update.": "a.b",
        "[TABLE_OR_VIEW_NOT_FOUND] The table or view `a`.`b c` cannot be found.": "`a`.`b c`",
        "The table or view `orders` cannot be found.": "`orders`",
        "added data to table my-lake.db.orders. Please retry": "my-lake.db.orders",
        "The protocol version of the Delta table has been changed.": "",
        "since the current transaction read the table. Please try again": "",
        "Files were added to the root of the table by a concurrent update": "",
        "vegetable a.b": "",
        "": "",
    }

    assert {message: describe_failure(f"a.b.C: {message}").table for message in tables} == tables


def test_secret_in_a_table_name_is_removed():
    text = "a.b.C: in table delta.`abfss://c@h/t?sig=hunter2%3D` no"

    assert "hunter2" not in describe_failure(text).table


def test_any_text_has_an_error_class():
    texts = ["", "\n\n", "boom", ": : :", "Traceback (most recent call last):"]

    assert [text for text in texts if not describe_failure(text).error_class] == []


def test_python_worker_failure_in_a_task_is_reported_by_its_python_error():
    text = (
        "org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 3.0 "
        "failed 4 times, most recent failure: Lost task 0.3 in stage 3.0 (TID 9) (10.0.0.7 executor 2): "
        "org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
        '  File "udf.py", line 3, in f\n    return 1 / x\nZeroDivisionError: division by zero\n\n'
        "\tat org.apache.spark.api.python.X.y(X.scala:1)\n"
    )

    assert describe_failure(text).reason == "ZeroDivisionError: division by zero"


def test_python_error_wins_over_sparks_class_for_python_workers():
    """Spark 4.3: that a Python worker failed explains nothing."""
    text = (
        "org.apache.spark.api.python.PythonException: [PYTHON_EXCEPTION] An exception was thrown "
        "from Python worker:\nTraceback (most recent call last):\n"
        '  File "udf.py", line 3, in f\n    return 1 / x\nZeroDivisionError: division by zero\n\n'
        "\tat org.apache.spark.api.python.X.y(X.scala:1)\n"
    )
    failure = describe_failure(text, "PYTHON_EXCEPTION")

    assert failure.headline == "ZeroDivisionError: division by zero"
    assert failure.error_class == "ZeroDivisionError"
    assert failure.raised_at.line == "udf.py:3 in f"


def test_sparks_own_class_wins_over_the_java_class():
    assert describe_failure("a.b.C: text", "DELTA_CONCURRENT_APPEND").error_class == (
        "DELTA_CONCURRENT_APPEND"
    )


def test_errors_of_a_stopped_context_are_recognised():
    texts = [
        "org.apache.spark.SparkException: Job 6 cancelled because SparkContext was shut down",
        "java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.",
        'java.lang.NullPointerException: Cannot invoke "org.apache.spark.scheduler.DAGScheduler.'
        'cleanupQueryJobs(long)" because the return value of '
        '"org.apache.spark.SparkContext.dagScheduler()" is null',
        "org.apache.spark.SparkException: [INTERNAL_ERROR] The Spark SQL phase planning failed with "
        "an internal error.\n\tat org.apache.spark.SparkException$.internalError(SparkException.scala)"
        '\nCaused by: java.lang.NullPointerException: Cannot invoke "org.apache.spark.sql.classic.'
        'SparkSession.sparkContext()" because the return value of '
        '"org.apache.spark.sql.execution.SparkPlan.session()" is null',
        "org.apache.spark.SparkException: Exception thrown in awaitResult:\n"
        "Caused by: org.apache.spark.rpc.RpcEnvStoppedException: RpcEnv already stopped.",
    ]

    assert [text for text in texts if not died_of_stopped_context(text)] == []


def test_other_failures_are_not_a_stopped_context():
    texts = [
        "io.delta.exceptions.ConcurrentAppendException: Files",
        "org.apache.spark.SparkException: [INTERNAL_ERROR] The Spark SQL phase planning failed",
        'java.lang.NullPointerException: Cannot invoke "com.acme.Rules.apply()" because the return '
        'value of "com.acme.Rules.load()" is null',
    ]

    assert [text for text in texts if died_of_stopped_context(text)] == []


def test_each_planted_secret_would_be_seen_in_its_line():
    """Otherwise tests that plant whole lines would prove nothing about it."""

    def is_seen(planted, line):
        texts = ("in-the-open" if one is planted else one.text for one in line)
        failure = describe_failure(f"java.lang.IllegalStateException: {joined(texts)}")
        return "in-the-open" in failure.message

    lines = in_lines()
    assert [one.kind for line in lines for one in line if not is_seen(one, line)] == []
    assert sorted(one for line in lines for one in line) == sorted(PLANTED)
