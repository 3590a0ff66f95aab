"""Who is compared with querypulse: PySpark's own way, a peer, and the least possible."""

import logging
import os
from functools import cached_property
from typing import Any

from pyspark import SparkContext
from pyspark.sql.streaming.listener import StreamingQueryListener

NONE = "no listener"
NOTHING = "nothing"
OURS = "querypulse"
STOCK = "stock"
PEER = "pyspark-prometheus"


class _Empty:
    def onQueryStarted(self, event: Any) -> None: ...

    def onQueryProgress(self, event: Any) -> None: ...

    def onQueryIdle(self, event: Any) -> None: ...

    def onQueryTerminated(self, event: Any) -> None: ...


class StockListener(_Empty, StreamingQueryListener):
    """PySpark's documented way, doing nothing."""


class NothingListener:
    """The least that Python code called by the JVM can do: a Py4J proxy with empty methods."""

    class Proxy(_Empty):
        class Java:
            implements = ("org.apache.spark.sql.streaming.PythonStreamingQueryListener",)

    @cached_property
    def _jlistener(self) -> Any:
        jvm: Any = SparkContext._jvm
        streaming = jvm.org.apache.spark.sql.streaming
        return streaming.PythonStreamingQueryListenerWrapper(self.Proxy())


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
