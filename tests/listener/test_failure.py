"""The cause of a failure, and the line of user code that raised it, are found in Spark's text."""

from __future__ import annotations

import json

import pytest
from support.event_log import recorded
from support.story import Story

from querypulse.alerting.evaluate import Evaluation
from querypulse.alerting.redaction import redacted
from querypulse.core.redaction import REDACTED, Redactor
from querypulse.listener.failure import (
    MAX_CHARACTERS,
    describe_failure,
    died_of_stopped_context,
    raised_at,
)

HEAD = "org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"


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


@pytest.mark.parametrize(
    "table", ["spark_catalog.fleet.alert_resolution", "delta.`file:/tables/alert_resolution`"]
)
def test_real_delta_conflict_names_condition_exception_and_table(table):
    failure = describe_failure(delta_conflict(table), "FOREACH_BATCH_USER_FUNCTION_ERROR")

    assert failure.error_class == "DELTA_CONCURRENT_APPEND.WITHOUT_HINT"
    assert failure.exception == "ConcurrentAppendException"
    assert failure.table == table
    assert failure.raised_at.line == "/job/alerts.py:28 in merge"
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


@pytest.mark.parametrize(
    ("begin", "error_class"),
    [
        ("org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 3.0 "
         "failed 4 times, most recent failure: Lost task 0.3 in stage 3.0 (TID 9) (10.0.0.7 executor 2): "
         "org.apache.spark.api.python.PythonException: ", None),
        ("org.apache.spark.api.python.PythonException: [PYTHON_EXCEPTION] An exception was thrown "
         "from Python worker:\n", "PYTHON_EXCEPTION"),
    ],
    ids=["in a task", "with the class of Spark 4.3 for it"],
)  # fmt: skip
def test_failure_of_a_python_worker_is_reported_by_its_python_error(begin, error_class):
    """That a Python worker failed explains nothing."""
    traceback = (
        "Traceback (most recent call last):\n"
        '  File "udf.py", line 3, in f\n    return 1 / x\nZeroDivisionError: division by zero\n\n'
        "\tat org.apache.spark.api.python.X.y(X.scala:1)\n"
    )
    failure = describe_failure(begin + traceback, error_class)

    assert failure.reason == failure.headline == "ZeroDivisionError: division by zero"
    assert failure.error_class == "ZeroDivisionError"
    assert failure.raised_at.line == "udf.py:3 in f"


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

    other = [
        "io.delta.exceptions.ConcurrentAppendException: Files",
        "org.apache.spark.SparkException: [INTERNAL_ERROR] The Spark SQL phase planning failed",
        'java.lang.NullPointerException: Cannot invoke "com.acme.Rules.apply()" because the return '
        'value of "com.acme.Rules.load()" is null',
    ]

    assert [text for text in [*texts, *other] if died_of_stopped_context(text)] == texts


def frame(path: str, line: int, function: str, code: str = "work()") -> str:
    return f'  File "{path}", line {line}, in {function}\n    {code}\n'


@pytest.mark.parametrize("spark", ["3.5.9", "4.3.0"])
@pytest.mark.parametrize("query", ["python_failure", "java_failure"])
def test_real_foreach_batch_failure_has_its_line(spark, query):
    """``java_failure`` fails in Spark's own code, below the user's line."""
    exception = next(text for name, text, _ in real_deaths(spark) if name == query)
    raised = raised_at(exception)

    assert "record_events.py" in raised.line
    assert raised.line.endswith((" in conflicting_merge", " in java_failure"))
    assert "record_events.py" in raised.traceback
    assert "pyspark" not in raised.traceback
    assert "hunter2" not in raised.traceback


LIBRARIES = [
    "/opt/spark/python/lib/pyspark.zip/pyspark/sql/utils.py",
    "/opt/spark/python/lib/py4j-0.10.9.9-src.zip/py4j/protocol.py",
    "/databricks/python/lib/python3.11/site-packages/requests/api.py",
    "/usr/lib/python3.12/socket.py",
    "/usr/lib/python3/dist-packages/yaml/__init__.py",
]


def test_lines_of_libraries_are_not_user_code():
    for library in LIBRARIES:
        inner = frame(library, 9, "call", "f()") + "ValueError: no\n"
        only = raised_at(HEAD + inner)

        assert raised_at(HEAD + frame("/jobs/a.py", 3, "f") + inner).line == "/jobs/a.py:3 in f"
        assert only.line == ""
        assert only.traceback.endswith("line 9, in call\n  f()")


def test_last_of_chained_exceptions_is_reported():
    text = (
        HEAD + frame("/jobs/a.py", 3, "f") + "KeyError: 1\n\n"
        "During handling of the above exception, another exception occurred:\n\n"
        "Traceback (most recent call last):\n" + frame("/jobs/a.py", 8, "g") + "ValueError: no\n"
    )

    assert raised_at(text).line == "/jobs/a.py:8 in g"


@pytest.mark.parametrize(
    "text",
    [
        "",
        *(text for spark in ("3.5.9", "4.3.0") for name, text, _ in real_deaths(spark) if not name),
        HEAD,
        HEAD + "ValueError: no",
        HEAD + '  File "no line", in f\n',
        'File "/jobs/a.py", line 3, in f',
    ],
)
def test_text_without_a_traceback_has_no_line(text):
    assert raised_at(text).line == raised_at(text).traceback == ""


def test_secret_in_a_code_line_is_redacted():
    call = 'connect("jdbc:postgresql://db/x?user=etl&password=hunter2")'
    frames = frame("/jobs/a.py", 3, "f", call) + frame("/jobs/a.py", 9, "g", 'send("s3cr3t")')
    story = Story().started(at=0).ended(at=1, exception=HEAD + frames + "ValueError: no")
    evaluated = redacted(Evaluation(story.evaluate(2).findings), Redactor(secrets=["s3cr3t"]).text)
    evidence = evaluated.findings[0].words.evidence

    assert evidence["python_line"] == "/jobs/a.py:9 in g"
    assert REDACTED in evidence["traceback"]
    assert "hunter2" not in str(evidence)
    assert "s3cr3t" not in str(evidence)


def test_long_traceback_is_bounded():
    """In quadratic time, these two megabytes would take hours."""
    deep = HEAD + frame("/jobs/a.py", 3, "f", "x" * 900) * 2000 + "RecursionError: too deep\n"
    raised = raised_at(deep + "\tat java.lang.X\n" * 100)

    assert len(raised.traceback) <= MAX_CHARACTERS
    assert raised.line in {"", "/jobs/a.py:3 in f"}
    named = raised_at(HEAD + frame("/jobs/a.py", 3, "f" * 9000, "x") + "RecursionError: too deep\n")
    assert named.line == f"/jobs/a.py:3 in {'f' * 200}"


# -- the place that a failure names -------------------------------------------------------------

NO_PLACE = [
    "ValueError: negative amount 12",
    "ValueError: line 3:1400 is not valid",
    "ValueError: read 17 of 20 at 2026-11-29T12:30:00 offset: 12345",
    "ConnectionRefusedError: [Errno 111] Connection refused",
    "TimeoutException: Timed out waiting for a node assignment. Call: listTopics",
    "SparkException: Foo.java:120 was interrupted",
    "SocketException: Connection reset",
    "UnknownHostException: null",
    "CommunicationsException: Communications link failure",
    "AnalysisException: For more information see https://spark.apache.org/docs/latest/x.html",
    "ClientError: An error occurred (503) when calling the PutObject operation: Slow Down",
    "AnalysisException: the Delta table has been changed",
    "KeyError: '/a/b/c'",
    # what two defects in single files have in common, too
    "IllegalStateException: bad schema in s3a://lake/bronze/orders",
    "FileNotFoundException: File does not exist: hdfs://nn:8020/bronze/orders/part-17",
    "FileNotFoundException: /mnt/store/orders/part-17 (No such file or directory)",
    "FileNotFoundError: [Errno 2] No such file or directory: '/opt/jobs/a/x.json'",
    "AnalysisException: Path does not exist: file:/data/in/orders",
    "JSONDecodeError: bad value in kafka://orders",
    "SQLException: No suitable driver for jdbc:postgresql://db:5432/shop?user=x",
    # a port of ours
    "IOException: Connection reset by peer, local=/10.0.0.1:41234",
]
PLACES = [
    (
        "store:8020",
        "ConnectException: Call From driver-7/10.1.1.1 to store:8020 failed on connection exception:"
        " java.net.ConnectException: Connection refused; For more details see: "
        "http://wiki.apache.org/hadoop/ConnectionRefused",
    ),
    (
        "store:8020",
        "NoRouteToHostException: No Route to Host from  driver/10.1.1.1 to store:8020 failed",
    ),
    (
        "store:8020",
        "UnknownHostException: Invalid host name: local host is: (unknown); "
        'destination host is: "store":8020; java.net.UnknownHostException',
    ),
    ("store", "UnknownHostException: store"),
    ("store", "UnknownHostException: store: Name or service not known"),
    ("store", "MaxRetryError: Failed to resolve 'store' ([Errno -2] Name or service not known)"),
    ("store", "curl: Could not resolve host: store"),
    ("10.0.0.7:9000", "AnnotatedConnectException: Connection refused: /10.0.0.7:9000"),
    ("store:9000", "AnnotatedConnectException: Connection refused: Store/10.0.0.7:9000"),
    ("store:9000", "ConnectTimeoutException: connection timed out: store/<unresolved>:9000"),
    (
        "kafka-1:9092",
        "KafkaException: Connection to node -1 (kafka-1/10.0.0.9:9092) could not be established.",
    ),
    ("kafka-1:9092", "KafkaError: bootstrap broker kafka-1:9092 (id: -1 rack: null) disconnected"),
    (
        "store:9000",
        "ConnectionError: HTTPConnectionPool(host='store', port=9000): Max retries exceeded with "
        "url: /batch/17?id=3",
    ),
    (
        "store:9000",
        "ClientConnectorError: Cannot connect to host store:9000 ssl:default [Connect call failed]",
    ),
    ("store:9000", "HTTPError: 503 Server Error: x for url: http://store:9000/api/batch/17"),
    (
        "b.s3.amazonaws.com",
        'EndpointConnectionError: Could not connect to the endpoint URL: "https://b.s3.amazonaws.com/k"',
    ),
    (
        "acc.dfs.core.windows.net",
        'AbfsRestOperationException: Operation failed: "busy", 503, PUT, '
        "https://acc.dfs.core.windows.net/c/part-17?timeout=90",
    ),
    ("db:5432", "PSQLException: Connection to db:5432 refused. Check that the hostname is correct"),
    ("db:5432", 'OperationalError: connection to server at "db", port 5432 failed: refused'),
    ("db:5432", 'OperationalError: connection to server at "db" (10.0.0.7), port 5432 failed: x'),
    ("db:1433", "SQLServerException: The TCP/IP connection to the host db, port 1433 has failed."),
    ("db", "OperationalError: (2003, \"Can't connect to MySQL server on 'db' ([Errno 111] x)\")"),
    ("db:27017", "ServerSelectionTimeoutError: db:27017: [Errno 111] Connection refused (17 ms)"),
    ("store:6379", "ConnectionError: Error 111 connecting to store:6379. Connection refused."),
    (
        "10.0.0.7:9000",
        "RpcError: last error: UNKNOWN: ipv4:10.0.0.7:9000: Failed to connect to remote host",
    ),
    ("[fe80::1]:9000", "ConnectException: [fe80::1]:9000: Connection refused"),
    ("db:5432", "SQLException: jdbc:postgresql://db:5432/shop?user=x refused the connection"),
    (
        "10.0.0.9:9866",
        "SocketTimeoutException: 60000 millis timeout while waiting for channel to be ready for "
        "read. ch : SocketChannel[connected local=/10.0.0.1:41234 remote=/10.0.0.9:9866]",
    ),
    ("db:1433", "SQLException: jdbc:sqlserver://db:1433;databaseName=shop does not answer"),
    ("store:6379", "RedisError: redis://user:hunter2@store:6379/0 does not answer"),
    ("bucket", "AWSS3IOException: getFileStatus on s3a://bucket/orders/17.json: Slow Down"),
    ("acc.dfs.core.windows.net", "IOException: abfss://c@acc.dfs.core.windows.net/x/17 is busy"),
    ("nn:8020", "IOException: hdfs://nn:8020/orders/part-17 could only be written to 0 nodes"),
    ("fleet.alerts", "X: a concurrent MERGE added data to table spark_catalog.fleet.alerts at 7"),
    ("delta.s3a://b/tables/orders", "X: Delta table delta.`s3a://b/tables/orders` is not there"),
    ("/mnt/store", "IOException: /mnt/store/orders/part-17 (Stale file handle)"),
    ("/mnt/store", "OSError: [Errno 28] No space left on device: '/mnt/store/y/18.json'"),
    ("/data/in", "AnalysisException: Permission denied: file:/data/in/orders"),
]


@pytest.mark.parametrize("text", NO_PLACE)
def test_failure_names_no_place_if_nothing_says_what_a_word_is(text):
    assert describe_failure(f"{text}\n\tat x.Y.z(Y.scala:1)").place == ""


@pytest.mark.parametrize(("place", "text"), PLACES)
def test_failure_names_the_host_table_bucket_or_mount_that_others_may_need_too(place, text):
    assert describe_failure(f"{text}\n\tat x.Y.z(Y.scala:1)").place == place


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ("store", "https://a is down, PUT, https://u:hunter2@store/x; jdbc:db2://u:hunter2@db:1/x"),
        ("store", "cannot read s3a://AKIAIOSFODNN7EXAMPLE:hun/ter2/K7MDENG/bPxRfiCY@store/path"),
        ("store:3306", "could not open jdbc:mysql://scott:hun/ter2@store:3306/x"),
        ("store:3306", "mysql://scott:hunter#2@store:3306/x"),
        ("store:3306", "mysql://scott:hunter?2@store:3306/x"),
        ("store:6379", "redis://:hunter2/x@store:6379/0 failed"),
        ("store", "wasbs://user:hunter2@store/path"),
        ("store:5672", "amqp://guest:hunt,er2@store:5672"),
        ("store", "snowflake://scott:hunter2'@store"),
        ("store", "foo://store/x?password=p@hunter2"),
        ("store", "for url: https://store/services/T000/hunter2"),
        ("", "for url: https://hun/ter2@store/x"),
        ("", "password=hunter2/10.0.0.1:8080"),
        ("", "password: 'hunter2:8080'"),
        ("", "Authorization: Bearer hunter2hunter2:8080"),
        ("", "key=hunter2hunter2.zzz:8080"),
        ("", "apikey=hunter2.efgh:443"),
        ("", "--password hunter2.x:443"),
        ("", "x" * 1450 + " mysql://scott:hunter2" + "2" * 40 + "@store:3306/x"),
    ],
)
def test_place_has_no_secret(place, text):
    named = describe_failure(f"X: {text} connection refused").place

    assert "hun" not in named
    assert named == place


def test_place_is_found_in_a_cause_where_the_message_names_none():
    text = (
        "org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing rows.\n"
        "\tat org.apache.spark.X.y(X.scala:1)\n"
        "Caused by: java.net.ConnectException: Call From driver/10.0.0.1 to store:8020 failed on x\n"
    )

    assert describe_failure(text).place == "store:8020"


def test_job_of_an_installed_demo_is_the_users_code():
    folder = "/opt/venv/lib/python3.12/site-packages/querypulse"
    job = frame(f"{folder}/commands/demo/pipeline.py", 194, "merge")
    ours = frame(f"{folder}/sidecar/sidecar.py", 9, "call")

    raised = raised_at(HEAD + job + ours + "ValueError: no\n")
    assert raised.line == f"{folder}/commands/demo/pipeline.py:194 in merge"
