"""Who listens to the job: nobody, querypulse with all it has, PySpark's own way, a peer."""

import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from querypulse.listener.spark.event_paths import BusPath
from querypulse.sidecar import Sidecar, attach

from ..common.listeners import NONE, OURS, PEER, STOCK, StockListener, listening, peer
from ..common.pushgateway import pushgateway
from .job import QUERIES
from .scraper import scraping

Candidate = Callable[[], AbstractContextManager[Any]]


@contextmanager
def all_candidates(spark: SparkSession) -> Iterator[dict[str, Candidate]]:
    """Each by name, to be entered for its turn; what they need runs in other processes."""
    port = _free_port()
    with ExitStack() as stack:
        receiver = stack.enter_context(pushgateway())
        gateway = stack.enter_context(pushgateway())
        stop_scraping = stack.enter_context(scraping(f"http://127.0.0.1:{port}/metrics"))
        yield {
            NONE: nullcontext,
            OURS: partial(_ours, spark, port, receiver.url),
            STOCK: partial(listening, spark, StockListener()),
            PEER: partial(listening, spark, peer(gateway.url)),
        }
        did = (stop_scraping(), gateway.taken().answered)
        if not all(did):
            raise RuntimeError(f"nothing scraped, or nothing pushed: {did}")


@contextmanager
def _ours(spark: SparkSession, port: int, receiver: str) -> Iterator[Sidecar]:
    sidecar = attach(spark, http_port=port, webhook_url=receiver)
    yield sidecar
    status = sidecar.snapshot()
    path, seen = status.monitor.listener_path, len(status.queries)
    if path != BusPath.name or sidecar.url is None or seen != QUERIES:
        raise RuntimeError(f"not our normal way: {path}, {sidecar.url}, {seen} queries")
    sidecar.close()


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port
