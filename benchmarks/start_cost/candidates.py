"""Who listens while queries are started: each alone, from registering to taking away.

Each begins with a query that dies, so that whoever tells somebody has something to tell.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.functions import raise_error

from querypulse.sidecar import attach

from ..common.listeners import listening
from ..common.pushgateway import Pushgateway
from ..common.session import rows

PAGE_SECONDS = 10.0
CLOSE_SECONDS = 0.5

Candidate = Callable[[SparkSession], AbstractContextManager[None]]


def nobody(spark: SparkSession) -> AbstractContextManager[None]:
    """No listener at all."""
    _let_one_die(spark)
    return nullcontext()


def alone(listener: Any) -> Candidate:
    """One listener as it is."""

    @contextmanager
    def candidate(spark: SparkSession) -> Iterator[None]:
        with listening(spark, listener):
            _let_one_die(spark)
            yield

    return candidate


def ours(receiver: Pushgateway) -> Candidate:
    """``attach()`` in full; its page is on its way to the receiver, or has just arrived."""

    @contextmanager
    def candidate(spark: SparkSession) -> Iterator[None]:
        pages = receiver.taken().begun
        sidecar = attach(spark, http_port=0, webhook_url=receiver.url)
        _let_one_die(spark)
        _await_page(receiver, pages)
        yield
        known = [query.name for query in sidecar.snapshot().queries]
        if sidecar.listener.path != "raw" or "started" not in known:
            raise RuntimeError(f"not our normal way: {sidecar.listener.path}, it knows {known}")
        sidecar.close(CLOSE_SECONDS)

    return candidate


def _let_one_die(spark: SparkSession) -> None:
    frame = rows(spark).select(raise_error("dies, as it should"))
    query = frame.writeStream.format("noop").queryName("dying").start()
    try:
        query.awaitTermination()
    except StreamingQueryException:
        return
    raise RuntimeError("the query that was to die did not")


def _await_page(receiver: Pushgateway, pages: int) -> None:
    deadline = time.monotonic() + PAGE_SECONDS
    while receiver.taken().begun == pages:
        if time.monotonic() > deadline:
            raise TimeoutError("querypulse has told nobody of the query that died")
        time.sleep(0.02)
