"""A failed ``foreachBatch`` reports the line of user code that raised, as a hung one does."""

from __future__ import annotations

import pytest
from support.failures import delta_conflict, real_deaths
from support.messages import IN_PYTHON
from support.story import Story

from querypulse.alerting.evaluate import Evaluation
from querypulse.core.redaction import REDACTED, Redactor
from querypulse.listener.failure import MAX_CHARACTERS, describe_failure, raised_at
from querypulse.settings.secrets import redacted

HEAD = "org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"


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


@pytest.mark.parametrize("spark", ["3.5.9", "4.3.0"])
def test_real_failure_without_python_has_no_line(spark):
    exception = next(text for name, text, _ in real_deaths(spark) if name is None)

    assert raised_at(exception).line == raised_at(exception).traceback == ""


def test_innermost_line_of_user_code_is_reported():
    raised = raised_at(IN_PYTHON)

    assert raised.line == "/jobs/billing.py:17 in charge"
    assert raised.traceback == (
        'File "/jobs/billing.py", line 41, in write\n  charge(row)\n'
        'File "/jobs/billing.py", line 17, in charge\n  raise ValueError("negative amount")'
    )


def test_delta_conflict_has_the_line_that_called_spark():
    assert raised_at(delta_conflict("a.b")).line == "/job/alerts.py:28 in merge"


@pytest.mark.parametrize(
    "library",
    [
        "/opt/spark/python/lib/pyspark.zip/pyspark/sql/utils.py",
        "/opt/spark/python/lib/py4j-0.10.9.9-src.zip/py4j/protocol.py",
        "/databricks/python/lib/python3.11/site-packages/requests/api.py",
        "/usr/lib/python3.12/socket.py",
        "/usr/lib/python3/dist-packages/yaml/__init__.py",
    ],
)
def test_library_line_is_not_user_code(library):
    text = HEAD + frame("/jobs/a.py", 3, "f") + frame(library, 9, "call") + "ValueError: no\n"

    assert raised_at(text).line == "/jobs/a.py:3 in f"


def test_failure_only_in_libraries_shows_their_last_lines():
    text = HEAD + frame("/opt/pyspark.zip/pyspark/worker.py", 9, "call", "f()") + "ValueError: no"

    assert raised_at(text).line == ""
    assert raised_at(text).traceback.endswith("line 9, in call\n  f()")


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
        "java.lang.RuntimeException: boom",
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
    known = frame("/jobs/a.py", 3, "f", call) + frame("/jobs/a.py", 9, "g", 'send("s3cr3t")')
    story = Story().started(at=0).ended(at=1, exception=HEAD + known + "ValueError: no")
    evaluated = redacted(Evaluation(story.evaluate(2).findings), Redactor(secrets=["s3cr3t"]).text)
    evidence = evaluated.findings[0].evidence

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


def test_alert_of_a_failed_query_has_the_python_line():
    story = Story().started(at=0).ended(at=1, exception=IN_PYTHON)
    (finding,) = story.evaluate(2).findings

    assert finding.evidence["python_line"] == "/jobs/billing.py:17 in charge"
    assert describe_failure(IN_PYTHON).headline == "ValueError: negative amount"
