"""Converts Java's exceptions into errors of ours with a short reason."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from .checkpoint import short_reason

# PySpark converts some Java exceptions, such as an IllegalArgumentException, into its own. A lost
# connection (Py4JNetworkError) is included: Py4J drops it when a file system lacks a class.
THROWN = (Py4JError, PySparkException)


def reason_of(error: Exception) -> str:
    """The exception in one redacted line."""
    return short_reason(str(error)) or type(error).__name__


@contextmanager
def java_errors(of: type[Exception]) -> Iterator[None]:
    """Raise any Java exception as one of type ``of``, in one redacted line."""
    try:
        yield
    except THROWN as error:
        raise of(reason_of(error)) from error
