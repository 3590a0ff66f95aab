"""A standalone Spark cluster on loopback: a master, and workers that join on request."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path

import pyspark
from support.java_options import executor_options
from support.patience import PATIENCE_SECONDS, until
from support.server_process import free_port

HOME = Path(pyspark.__file__).parent
LOOPBACK = "127.0.0.1"
ENVIRONMENT = {"SPARK_HOME": str(HOME), "SPARK_LOCAL_IP": LOOPBACK, "SPARK_SCALA_VERSION": "2.13"}
"""PySpark has no RELEASE file: without the version, the launcher assumes a source checkout."""


class Standalone:
    """``url`` is the URL of the master; ``add_worker`` adds one executor with one core."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        self._logs: list[Path] = []
        port = free_port()
        self.url = f"spark://{LOOPBACK}:{port}"
        options = ["--host", LOOPBACK, "--port", str(port), "--webui-port", str(free_port())]
        self._start("master.Master", options)
        self._wait_for_line("I have been elected leader")

    def add_worker(self) -> None:
        """Let a worker join; it starts executors for waiting applications."""
        room = ["--cores", "1", "--memory", "1g", "--webui-port", str(free_port())]
        work = ["--work-dir", str(self._folder / "work")]
        self._start("worker.Worker", ["--host", LOOPBACK, *room, *work, self.url])

    def close(self) -> None:
        """Stop all processes, including executors."""
        for process in reversed(self._processes):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            process.wait(PATIENCE_SECONDS)

    def _start(self, name: str, options: list[str]) -> None:
        log = self._folder / f"{name}.log"
        self._logs.append(log)
        # With the classpath of a driver, for its class archive.
        command = ["java", *executor_options().split(), "-cp", f"{HOME}/conf/:{HOME}/jars/*"]
        command += ["-Xmx256m", *_modules()]
        with log.open("wb") as output:
            self._processes.append(
                subprocess.Popen(
                    [*command, f"org.apache.spark.deploy.{name}", *options],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env={**os.environ, **ENVIRONMENT},
                    start_new_session=True,
                )
            )

    def _wait_for_line(self, text: str) -> None:
        def said() -> bool:
            log = self._logs[-1].read_text()
            assert self._processes[-1].poll() is None, log
            return text in log

        until(said, text, 3 * PATIENCE_SECONDS)


def _modules() -> list[str]:
    """The JDK modules that Spark's launcher opens."""
    packages = "java.lang java.lang.invoke java.io java.net java.nio java.util java.util.concurrent"
    internal = "sun.nio.ch sun.nio.cs sun.security.action sun.util.calendar"
    return [
        f"--add-opens=java.base/{package}=ALL-UNNAMED"
        for package in f"{packages} {internal}".split()
    ]
