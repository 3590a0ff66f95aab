"""One Apache Kafka broker in KRaft mode on loopback, with its own process and folder."""

from __future__ import annotations

import os
import random
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from ...core import CommandError

START_SECONDS = 60.0
START_ATTEMPTS = 3
STOP_SECONDS = 20.0
OUTPUT_CHARACTERS = 2000
# Below the range from which systems take the ports of outgoing connections.
_PORTS = range(20_000, 32_768)
# A cluster id is 16 bytes in base64; these are "querypulsedemo-1".
_CLUSTER = "cXVlcnlwdWxzZWRlbW8tMQ"
_QUICK_START = ("-XX:TieredStopAtLevel=1", "-Xmx256m")
# Only errors, so that the last words of a broker say why it ended.
_LOGGING = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    # A broker that restarts after a kill waits until its old session has expired.
    "broker.session.timeout.ms": "1500",
    "broker.heartbeat.interval.ms": "300",
}


class BrokerError(CommandError):
    """The broker did not start; the message contains its last output."""


class Broker:
    """May be started and killed any number of times: its data stays in ``folder``.

    ``settings`` are properties of the broker, such as ``log.retention.check.interval.ms``.

    Raises:
        BrokerError: its storage cannot be made.

    """

    def __init__(
        self, jars: Sequence[Path], folder: Path, settings: Mapping[str, str] | None = None
    ) -> None:
        self._classpath = ":".join(map(str, [*jars, *_scala_library()]))
        self._folder = folder
        self._output = folder / "broker.log"
        self._properties = folder / "server.properties"
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._settings = settings or {}
        self._has_started = False
        self._choose_ports()
        format_storage = ("kafka.tools.StorageTool", "format", "--ignore-formatted")
        storage = self._run(*format_storage, "-t", _CLUSTER, "-c", str(self._properties))
        if storage.wait() != 0:
            raise BrokerError(f"no storage for a Kafka broker: {self._last_words()}")

    @property
    def pid(self) -> int | None:
        """The process id while it runs; a test may freeze the process."""
        return self._process.pid if self._process is not None else None

    def start(self) -> None:
        """Start, and wait until it listens.

        Another process may take a port before the broker binds it: a first start is tried again
        on other ports. Later starts keep the ports, which clients know.

        Raises:
            BrokerError: it ended by itself, or does not listen in time.

        """
        attempts_left = 1 if self._has_started else START_ATTEMPTS
        while not self._run_until_ready():
            exit_code = self._process.poll() if self._process is not None else None
            self.kill()
            attempts_left -= 1
            if exit_code is None or attempts_left == 0:
                ended = "in time" if exit_code is None else f"(exit code {exit_code})"
                raise BrokerError(f"the Kafka broker does not start {ended}: {self._last_words()}")
            self._choose_ports()
        self._has_started = True

    def kill(self) -> None:
        """Kill it, as a failing machine would; ``start`` brings it back with its data."""
        for process in (self._guard, self._process):
            if process is not None:
                process.kill()
                process.wait(STOP_SECONDS)
        if self._guard is not None and self._guard.stdin is not None:
            self._guard.stdin.close()
        self._guard = self._process = None

    def _choose_ports(self) -> None:
        self._port, controller = free_ports(2)
        self.bootstrap_servers = f"127.0.0.1:{self._port}"
        properties = {
            **_SETTINGS,
            "listeners": f"PLAINTEXT://{self.bootstrap_servers},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap_servers}",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "log.dirs": str(self._folder / "data"),
            **self._settings,
        }
        lines = (f"{name}={value}\n" for name, value in properties.items())
        self._properties.write_text("".join(lines))

    def _run_until_ready(self) -> bool:
        """Run the process until it listens; return False when it has ended or time is up."""
        self._process = self._run("kafka.Kafka", str(self._properties))
        self._guard = _guard(self._process.pid)
        deadline = time.monotonic() + START_SECONDS
        while self._process.poll() is None and time.monotonic() < deadline:
            if self._listens():
                return True
            time.sleep(0.05)
        return False

    def _last_words(self) -> str:
        return self._output.read_text(errors="replace")[-OUTPUT_CHARACTERS:].strip()

    def _run(self, main: str, *arguments: str) -> subprocess.Popen[bytes]:
        with self._output.open("ab") as output:
            return subprocess.Popen(  # noqa: S603 - no argument comes from outside
                [_java(), *_QUICK_START, _LOGGING, "-cp", self._classpath, main, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                # Ctrl-C must reach only the demo, which then ends the broker.
                start_new_session=True,
            )

    def _listens(self) -> bool:
        address = ("127.0.0.1", self._port)
        with suppress(OSError), socket.create_connection(address, timeout=1):
            return True
        return False


def _guard(pid: int) -> subprocess.Popen[bytes]:
    """A shell that kills the process when ours ends, even by a kill: its input then ends."""
    script = 'read -r _; kill -9 "$1"'
    return subprocess.Popen(  # noqa: S603 - no argument comes from outside
        ["/bin/sh", "-c", script, "sh", str(pid)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else shutil.which("java") or "java"


def _scala_library() -> list[Path]:
    """PySpark's own Scala library, which Spark's resolver leaves out."""
    import pyspark

    return sorted((Path(pyspark.__file__).parent / "jars").glob("scala-library-*.jar"))


def free_ports(count: int) -> list[int]:
    """Unused ports of loopback that no outgoing connection takes before a server binds them."""
    ports: list[int] = []
    # Other processes that start a server draw from the same range: no common seed.
    for port in random.SystemRandom().sample(_PORTS, len(_PORTS)):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            ports.append(port)
        if len(ports) == count:
            break
    return ports
