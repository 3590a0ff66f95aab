"""Who listens while queries are started: each alone, from registering to taking away."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.functions import raise_error

from querypulse.listener.spark.event_paths import BusPath
from querypulse.sidecar import attach

from ..common.listeners import listening
from ..common.pushgateway import Pushgateway
from ..common.session import rows

PAGE_SECONDS = 20.0
CLOSE_SECONDS = 0.5

Candidate = Callable[[SparkSession], AbstractContextManager[None]]


def nobody(_: SparkSession) -> AbstractContextManager[None]:
    """No listener at all."""
    return nullcontext()


def alone(listener: Any) -> Candidate:
    """One listener as it is."""

    @contextmanager
    def candidate(spark: SparkSession) -> Iterator[None]:
        with listening(spark, listener):
            yield

    return candidate


def ours(receiver: Pushgateway) -> Candidate:
    """``attach()`` in full, after a query has failed: its page is being sent, or just arrived."""

    @contextmanager
    def candidate(spark: SparkSession) -> Iterator[None]:
        pages = receiver.taken().begun
        sidecar = attach(spark, http_port=0, webhook_url=receiver.url)
        _let_one_fail(spark)
        _await_page(receiver, pages)
        yield
        status = sidecar.snapshot()
        names = [query.name for query in status.queries]
        if status.monitor.listener_path != BusPath.name or "started" not in names:
            raise RuntimeError(
                f"not {BusPath.name}: {status.monitor.listener_path}, it knows {names}"
            )
        sidecar.close(CLOSE_SECONDS)

    return candidate


def _let_one_fail(spark: SparkSession) -> None:
    frame = rows(spark).select(raise_error("fails, as it should"))
    query = frame.writeStream.format("noop").queryName("failing").start()
    try:
        query.awaitTermination()
    except StreamingQueryException:
        return
    raise RuntimeError("the query that was to fail did not")


def _await_page(receiver: Pushgateway, pages: int) -> None:
    deadline = time.monotonic() + PAGE_SECONDS
    while receiver.taken().begun == pages:
        if time.monotonic() > deadline:
            raise TimeoutError("querypulse has sent no page for the query that failed")
        time.sleep(0.02)
