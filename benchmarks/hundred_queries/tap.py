"""Counts what the probe does, and finds the two threads it does it with."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from py4j.clientserver import ClientServerConnection
from pyspark.sql import SparkSession

from querypulse.listener.probe import ProbeReport
from querypulse.listener.spark.probe import SparkProbe


class Tap:
    """Polls and Py4J commands of the probe's thread since the start."""

    def __init__(self) -> None:
        self.polls = 0
        self.commands = 0
        self._thread: threading.Thread | None = None
        self._java_thread = 0

    def seconds(self, spark: SparkSession) -> tuple[float, float]:
        """Processor seconds: the Python thread's, and of the JVM's that serves its connection.

        What the JVM's collector and compiler do for it is in neither.
        """
        if self._thread is None:
            raise RuntimeError("the probe has not polled yet")
        clock = time.pthread_getcpuclockid(self._thread.ident or 0)
        nanoseconds = _management(spark).getThreadCpuTime(self._java_thread)
        return time.clock_gettime(clock), int(nanoseconds) / 1e9

    def polled(self, spark: SparkSession) -> None:
        """Count one poll; the probe's own thread calls it after each poll."""
        self.polls += 1
        if self._thread is None:
            java_thread = getattr(_jvm(spark), "java.lang.Thread").currentThread()
            self._java_thread = int(java_thread.getId())
            self._thread = threading.current_thread()

    def sent(self) -> None:
        """Called by any thread before a Py4J command."""
        self.commands += threading.current_thread() is self._thread


@contextmanager
def tapped(spark: SparkSession) -> Iterator[Tap]:
    """While entered, the tap counts what every probe and every connection does."""
    tap, poll, send = Tap(), SparkProbe.poll, ClientServerConnection.send_command

    def polling(probe: SparkProbe, clock: Callable[[], float]) -> ProbeReport:
        report = poll(probe, clock)
        tap.polled(spark)
        return report

    def sending(connection: Any, command: str) -> Any:
        tap.sent()
        return send(connection, command)

    SparkProbe.poll = polling
    ClientServerConnection.send_command = sending
    try:
        yield tap
    finally:
        SparkProbe.poll = poll
        ClientServerConnection.send_command = send


def _management(spark: SparkSession) -> Any:
    return getattr(_jvm(spark), "java.lang.management.ManagementFactory").getThreadMXBean()


def _jvm(spark: SparkSession) -> Any:
    return spark.sparkContext._jvm
