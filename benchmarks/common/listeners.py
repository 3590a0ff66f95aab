"""Who is compared with querypulse: PySpark's own way, a peer, and the least possible."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

NONE = "no listener"
NOTHING = "nothing"
OURS = "querypulse"
STOCK = "stock"
PEER = "pyspark-prometheus"


class StockListener(StreamingQueryListener):
    """PySpark's documented way, doing nothing."""

    def onQueryStarted(self, event: Any) -> None: ...

    def onQueryProgress(self, event: Any) -> None: ...

    def onQueryIdle(self, event: Any) -> None: ...

    def onQueryTerminated(self, event: Any) -> None: ...


class NothingProxy:
    """The least that Python code called by the JVM can do."""

    def onQueryStarted(self, event: Any) -> None: ...

    def onQueryProgress(self, event: Any) -> None: ...

    def onQueryIdle(self, event: Any) -> None: ...

    def onQueryTerminated(self, event: Any) -> None: ...

    class Java:
        implements = ("org.apache.spark.sql.streaming.PythonStreamingQueryListener",)


class NothingListener:
    """What ``addListener`` needs of a listener, around the empty proxy."""

    @cached_property
    def _jlistener(self) -> Any:
        jvm: Any = SparkContext._jvm
        streaming = jvm.org.apache.spark.sql.streaming
        return streaming.PythonStreamingQueryListenerWrapper(NothingProxy())


@contextmanager
def listening(spark: SparkSession, listener: Any) -> Iterator[None]:
    """Registered within the block."""
    spark.streams.addListener(listener)
    yield
    spark.streams.removeListener(listener)


def peer(gateway_url: str) -> Any:
    """pyspark-prometheus' listener, which pushes to a Pushgateway from within its callbacks.

    Its import turns on the log of all libraries at INFO, Py4J's line for each callback among
    them. Its own lines are still written, to nowhere; the others would burden every candidate.
    """
    before = logging.root.handlers[:], logging.root.level
    try:
        from pyspark_prometheus.listener import PrometheusStreamingQueryListener, logger
    except ModuleNotFoundError as error:
        raise SystemExit("pyspark-prometheus is missing: run `make bench`") from error
    logging.root.handlers[:], logging.root.level = before
    logger.setLevel(logging.INFO)
    logger.propagate = False
    if not logger.handlers:
        logger.addHandler(logging.FileHandler(os.devnull))
    return PrometheusStreamingQueryListener(gateway_url)
