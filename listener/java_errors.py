"""What Java throws when a storage refuses, as errors of ours with a short reason."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from .checkpoint import short_reason

# PySpark turns some Java exceptions, such as an IllegalArgumentException, into its own. A lost
# connection is no more than that either: Py4J drops one whose file system lacks a class.
THROWN = (Py4JError, PySparkException)


def reason_of(error: Exception) -> str:
    """What was thrown, redacted and in one line."""
    return short_reason(str(error)) or type(error).__name__


@contextmanager
def java_errors(of: type[Exception]) -> Iterator[None]:
    """Raise an exception of that type, redacted and in one line, for whatever Java throws."""
    try:
        yield
    except THROWN as error:
        raise of(reason_of(error)) from error
