"""The guard and all our loggers log no secret."""

from __future__ import annotations

import logging

import pytest
import requests
from support.planted import HUNTER, PLANTED
from urllib3.connectionpool import HTTPConnectionPool
from urllib3.exceptions import MaxRetryError

from querypulse.core.guard import Guard, Problem
from querypulse.core.redaction import WITHHELD, RedactedLog, Redactor

log = logging.getLogger("querypulse")


@pytest.fixture
def logged(caplog):
    """Everything logged so far, as a handler writes it."""
    formatter = logging.Formatter()
    return lambda: "\n".join(formatter.format(record) for record in caplog.records)


@pytest.fixture
def redacted_log():
    """Put a filter on our logger, as a sidecar does."""
    filters = []

    def put(redactor):
        filters.append(RedactedLog(redactor if callable(redactor) else redactor.text))
        log.addFilter(filters[-1])

    yield put
    for entry in filters:
        log.removeFilter(entry)


def failing(text):
    def fail():
        try:
            {}[text]
        except KeyError as error:
            raise RuntimeError(f"while at it: {text}") from error

    return fail


@pytest.mark.contains_errors
def test_contained_error_is_logged_with_its_traceback_and_without_secrets(logged, caplog):
    logs = {}
    for secret in PLANTED:
        caplog.clear()
        Guard().attempt("here", failing(secret.text))
        logs[secret] = logged()

    assert [secret.kind for secret, log in logs.items() if secret.secret in log] == []
    for words in ("contained error in here: RuntimeError", "in fail", "KeyError"):
        assert [secret.kind for secret, log in logs.items() if words not in log] == []


@pytest.mark.contains_errors
def test_error_that_cannot_be_printed_is_still_reported(logged):
    class Odd(Exception):
        def __str__(self):
            raise ValueError(HUNTER)

    def fail():
        raise Odd

    Guard().attempt("here", fail)

    assert "contained error in here: Odd" in logged()
    assert HUNTER not in logged()


@pytest.mark.contains_errors
def test_url_in_an_error_of_the_http_client_is_not_logged(logged):
    url = f"/hook/{HUNTER}"
    pool = HTTPConnectionPool("127.0.0.1", 1)

    def with_urllib3():
        raise MaxRetryError(pool, url, OSError("refused"))

    def with_requests():
        requests.get(f"http://127.0.0.1:1{url}", timeout=1)

    Guard().attempt("urllib3", with_urllib3)
    Guard().attempt("requests", with_requests)

    assert HUNTER not in logged()
    assert logged().count("Max retries exceeded with url: [redacted]") >= 2


def test_traceback_in_our_log_is_redacted(redacted_log, logged):
    redacted_log(Redactor([HUNTER]))
    try:
        failing(HUNTER)()
    except RuntimeError:
        log.exception("querypulse: it happened")

    assert HUNTER not in logged()
    assert "it happened" in logged()
    assert "RuntimeError: while at it: [redacted]" in logged()


@pytest.mark.parametrize("arguments", [("a", "b"), ("a", 3, 4)])
def test_record_that_cannot_be_formatted_is_withheld(redacted_log, arguments):
    redacted_log(Redactor())
    record = log.makeRecord("querypulse", logging.ERROR, __file__, 1, "%s of %d", arguments, None)

    assert log.filter(record)
    assert record.getMessage() == WITHHELD
    assert "a" not in record.args


def test_record_whose_redaction_fails_is_withheld(redacted_log, logged):
    def fail(_):
        raise ValueError(HUNTER)

    redacted_log(fail)
    log.warning("querypulse: %s", HUNTER)

    assert logged().endswith(WITHHELD)
    assert HUNTER not in logged()


def test_problem_is_logged_when_it_is_new(caplog):
    problem = Problem("querypulse: %s was not taken: %s", "heartbeat")
    for text in ("", "refused", "refused", "silent", "", "silent"):
        problem.note(text)
        assert problem.text == text

    assert [record.getMessage() for record in caplog.records] == [
        f"querypulse: heartbeat was not taken: {text}" for text in ("refused", "silent", "silent")
    ]
