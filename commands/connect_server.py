"""``querypulse connect-server``: a driver that serves Spark Connect, and is watched from its start.

It does what Spark's ``start-connect-server.sh`` does, from Python, in another order: a session, the
sidecar, and then the port. Spark's plugin would open the port first; a client that comes at once
would then share no state with the session that PySpark makes a moment later.
"""

from __future__ import annotations

import argparse
import logging
import os
import shlex
import signal
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ..core import CommandError
from ..core.installed import require_spark

if TYPE_CHECKING:
    from ..sidecar import Sidecar

log = logging.getLogger("querypulse")

NAME = "Spark Connect server"
PORT = "spark.connect.grpc.binding.port"
ADDRESS = "spark.connect.grpc.binding.address"
SUBMIT_VARIABLE = "PYSPARK_SUBMIT_ARGS"
SHELL = "pyspark-shell"
"""How ``PYSPARK_SUBMIT_ARGS`` names the application; it is the last word."""
SUBMIT_OPTIONS = (
    *("archives", "conf", "driver-class-path", "driver-cores", "driver-java-options"),
    *("driver-library-path", "driver-memory", "exclude-packages", "executor-cores"),
    *("executor-memory", "files", "jars", "keytab", "master", "name", "num-executors", "packages"),
    *("principal", "properties-file", "proxy-user", "py-files", "queue", "repositories"),
    "total-executor-cores",
)
"""spark-submit's options for a driver in this process (``spark-submit --help``)."""
CHECK_SECONDS = 1.0
SPARK_HAS_ENDED = 1


def add_connect_server_arguments(parser: argparse.ArgumentParser) -> None:
    """Add ``--port``, and the options of spark-submit."""
    parser.add_argument("--port", type=_port, metavar="N", help="Spark's default is 15002; 0: any")
    group = parser.add_argument_group("options of spark-submit")
    for name in SUBMIT_OPTIONS:
        group.add_argument(f"--{name}", action="append", default=[], metavar="VALUE")


def _port(text: str) -> int:
    port = int(text) if text.isascii() and text.isdecimal() else -1
    if not 0 <= port <= 65535:  # noqa: PLR2004 - the highest port
        raise argparse.ArgumentTypeError(f"{text!r}: allowed are 0 to 65535")
    return port


def connect_server(environment: Mapping[str, str], port: int | None, **options: list[str]) -> int:
    """Serve until SIGTERM or SIGINT, then return 0; 1 if Spark ends first.

    The log goes to standard error.

    Raises:
        CommandError: Spark, or its Connect server, cannot be started.
        SettingsError: a setting is unknown or not allowed.

    """
    require_spark("connect-server")
    if port is not None:
        options["conf"] = [*options["conf"], f"{PORT}={port}"]
    os.environ[SUBMIT_VARIABLE] = submit_arguments(environment.get(SUBMIT_VARIABLE, ""), options)
    # It would make a client of the session.
    os.environ.pop("SPARK_REMOTE", None)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.WARNING)
    log.setLevel(logging.INFO)
    from ..sidecar import attach

    spark = _started_spark()
    sidecar = attach(spark)
    try:
        ended = end_by_signal()
        address = open_port(spark)
        page = f"status page {sidecar.url}/" if sidecar.url else "no status page"
        sys.stdout.write(f"Spark Connect is served at {address}, {page}\n")
        sys.stdout.flush()
        return _wait(spark, ended)
    finally:
        _close(spark, sidecar)


def submit_arguments(given: str, options: Mapping[str, list[str]]) -> str:
    """The value of ``PYSPARK_SUBMIT_ARGS``: what it was given, then our options, which win.

    Raises:
        CommandError: it cannot be read.

    """
    try:
        inherited = [word for word in shlex.split(given) if word != SHELL]
    except ValueError as error:
        raise CommandError(f"connect-server: {SUBMIT_VARIABLE}: {error}") from None
    # A ``--name``, and a later conf, are more than this one.
    words = ["--conf", f"spark.app.name={NAME}", *inherited]
    for name, values in options.items():
        for value in values:
            words += [f"--{name.replace('_', '-')}", value]
    return shlex.join([*words, SHELL])


def _started_spark() -> Any:
    """A classic session, of a driver in this process.

    Raises:
        CommandError: Spark does not start.

    """
    from pyspark.sql import SparkSession

    from ..listener.spark.jvm import THROWN, reason_of

    try:
        # Spark 4 has distributions in which a session is a client unless it is asked otherwise.
        return SparkSession.builder.config("spark.api.mode", "classic").getOrCreate()
    except THROWN as error:
        raise CommandError(f"connect-server: Spark does not start: {reason_of(error)}") from error


def open_port(spark: Any) -> str:
    """Open the port of Spark Connect, unless Spark's plugin has opened it; return its address.

    Raises:
        CommandError: this Spark does not contain the server, or the port cannot be opened.

    """
    from ..listener.spark.jvm import THROWN, reason_of
    from ..sidecar.session import CONNECT_SERVICE

    jvm = spark.sparkContext._jvm  # noqa: SLF001 - no public way
    port = spark.conf.get(PORT, "15002")
    try:
        service = getattr(getattr(jvm, CONNECT_SERVICE), "MODULE$")
        if "SparkConnectPlugin" not in (spark.conf.get("spark.plugins", "") or ""):
            service.start(spark._jsc.sc())  # noqa: SLF001 - no public way
        port = service.localPort()
    except TypeError:
        # To Py4J, a class that is not there is a package.
        scala = jvm.scala.util.Properties.versionNumberString().rpartition(".")[0]
        package = f"org.apache.spark:spark-connect_{scala}:{spark.version}"
        raise CommandError(
            f"connect-server: this Spark ({spark.version}) does not contain Spark Connect: "
            f"give --packages {package}"
        ) from None
    except THROWN as error:
        text = str(error)
        # Spark 3.5 raises gRPC's own IOException.
        is_port = "java.net.BindException" in text or "Failed to bind to address" in text
        why = "is it taken? Give another --port" if is_port else reason_of(error)
        raise CommandError(f"connect-server: port {port} cannot be opened: {why}") from error
    host = spark.conf.get(ADDRESS, None) or spark.conf.get("spark.driver.host", "localhost")
    return f"sc://{host}:{port}"


def end_by_signal() -> threading.Event:
    """The event that SIGTERM and SIGINT set from now on; PySpark's handler would call the JVM."""
    ended = threading.Event()
    announce = signal.getsignal(signal.SIGTERM)

    def end(number: int, frame: Any) -> None:
        # Which is the sidecar's, if it has set one.
        if number == signal.SIGTERM and callable(announce):
            announce(number, frame)
        ended.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    return ended


def _wait(spark: Any, ended: threading.Event) -> int:
    while not ended.wait(CHECK_SECONDS):
        # A signal for the whole group ends Spark, too, perhaps a moment before it comes here.
        if _has_ended(spark) and not ended.wait(CHECK_SECONDS):
            sys.stderr.write("querypulse: connect-server: Spark has ended\n")
            return SPARK_HAS_ENDED
    return 0


def _has_ended(spark: Any) -> bool:
    """Whether Spark, or its JVM, has ended."""
    from ..listener.spark.jvm import NETWORK_ERRORS, is_gone

    context = spark.sparkContext
    try:
        # Private: PySpark has no public way to ask.
        return bool(context._jsc.sc().isStopped())  # noqa: SLF001
    except NETWORK_ERRORS:
        return is_gone(context._gateway)  # noqa: SLF001


def _close(spark: Any, sidecar: Sidecar) -> None:
    """Close the sidecar first: this end of the queries is meant."""
    sidecar.close()
    # The JVM may have ended.
    with suppress(Exception):
        spark.stop()
