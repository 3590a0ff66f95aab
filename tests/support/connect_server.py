"""A real Spark Connect server in a process of its own, and a TCP proxy that can cut connections."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pyspark
from support.patience import PATIENCE_SECONDS
from support.queries import until
from support.server_process import free_port

from querypulse.examples.delta.artifacts import (
    IN_SPARK,
    Packages,
    cache_folder,
    fetch,
)

STARTED = "Spark Connect server started"
EXPIRES_AFTER = "20s"
"""A session that is not asked for so long ends, from Spark 4.0 on; the probe asks all two seconds."""
IS_OUTSIDE = pyspark.__version__.startswith("3.")
"""From Spark 4.0 on, PySpark contains the server."""
OUTSIDE = Packages(
    # Not every registry has the newest one of 3.5.
    ("org.apache.spark:spark-connect_2.12:3.5.7",),
    (*IN_SPARK, "org.apache.spark:spark-core_2.12"),
)


def server_jars() -> list[Path]:
    """The server, where PySpark does not contain it.

    Raises:
        ArtifactsError: it is not available here.

    """
    return fetch([OUTSIDE], cache_folder()) if IS_OUTSIDE else []


class ConnectServer:
    """``start`` returns once it serves; it may be killed and started again on the same port."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self._log = folder / "server.log"
        self._process: subprocess.Popen | None = None
        self._folder = folder

    def start(self) -> None:
        conf = {
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(self.port),
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "1",
            "spark.connect.session.manager.defaultSessionTimeout": EXPIRES_AFTER,
            "spark.connect.session.manager.maintenanceInterval": "1s",
        }
        if jars := server_jars():
            conf["spark.jars"] = ",".join(map(str, jars))
        options = [part for key, value in conf.items() for part in ("--conf", f"{key}={value}")]
        command = [
            str(Path(sys.executable).with_name("spark-submit")),
            *("--master", "local[4]", *options),
            *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
            "spark-internal",
        ]
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
                env={**os.environ, "PYSPARK_PYTHON": sys.executable},
                start_new_session=True,
            )
        until(self._serves, "the Spark Connect server has started")

    def kill(self) -> None:
        """End it at once, as the kernel does where memory is short."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(PATIENCE_SECONDS)

    def has_closed(self, session_id: str) -> bool:
        """Whether it has ended a session."""
        closed = [line for line in self._log.read_text().splitlines() if "Closing session" in line]
        return any(session_id in line for line in closed)

    def _serves(self) -> bool:
        assert self._process.poll() is None, self._log.read_text()[-3000:]
        return STARTED in self._log.read_text()


class CuttingProxy:
    """Passes connections on to ``port``, until they are cut or refused."""

    def __init__(self, port: int) -> None:
        self._target = port
        self.port = 0
        self.turned_away = 0
        """How many connections were closed at once."""
        self._is_cut = False
        self._open: list[socket.socket] = []
        self._listener = self._listen()

    def cut(self) -> None:
        """Close all connections, and each new one at once."""
        self._is_cut = True
        for connection in self._open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._open.clear()

    def refuse(self) -> None:
        """Close all connections, and listen no more."""
        # Closing does not wake the thread that accepts.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def restore(self) -> None:
        """Pass connections on again."""
        self._is_cut = False
        if self._listener.fileno() < 0:
            self._listener = self._listen()

    def _listen(self) -> socket.socket:
        listener = socket.create_server(("127.0.0.1", self.port))
        self.port = listener.getsockname()[1]
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()
        return listener

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                if self._is_cut:
                    self.turned_away += 1
                    client.close()
                    continue
                server = socket.create_connection(("127.0.0.1", self._target))
                self._open += [client, server]
                for pair in ((client, server), (server, client)):
                    threading.Thread(target=_pump, args=pair, daemon=True).start()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    for connection in (source, sink):
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
