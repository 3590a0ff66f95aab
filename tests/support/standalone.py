"""Spark's standalone cluster on loopback: a master and a worker from PySpark's own jars."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from support.cluster_jobs import SPARK_HOME, START_SECONDS, submit_command
from support.patience import until

APPLICATION = {
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "2",
    "spark.sql.shuffle.partitions": "1",
    "spark.ui.enabled": "false",
    "spark.network.timeout": "300s",
}
DAEMON = {
    "SPARK_LOCAL_IP": "127.0.0.1",
    "SPARK_DAEMON_MEMORY": "256m",
    "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1",
    "SPARK_NO_DAEMONIZE": "1",
}
_MASTER = re.compile(r"Starting Spark master at (spark://\S+)")
_WEB = re.compile(r"Bound MasterWebUI to \S+, and started at (http://\S+)")
_APPLICATION_ID = re.compile(r"Connected to Spark cluster with app ID (\S+)")
DEPLOY = "org.apache.spark.deploy"


class StandaloneCluster:
    """A running master and worker; their files are below ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        loopback = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        self._log = self._run("master", [_program(), f"{DEPLOY}.master.Master", *loopback], DAEMON)
        self.master = self._logged(self._log, _MASTER)
        self._web = self._logged(self._log, _WEB)
        worker = [_program(), f"{DEPLOY}.worker.Worker", *loopback, "--cores", "8"]
        worker += ["--memory", "4g", "--work-dir", str(folder / "work"), self.master]
        self._run("worker", worker, DAEMON)
        until(lambda: self.report()["aliveworkers"], "the worker registers", START_SECONDS)

    def _run(self, name: str, command: list[str], environment: Mapping[str, str]) -> Path:
        log = self._folder / f"{name}.log"
        with log.open("w") as output:
            process = subprocess.Popen(
                command,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "SPARK_HOME": str(SPARK_HOME), **environment},
            )
        self._processes.append(process)
        return log

    def _logged(self, log: Path, pattern: re.Pattern[str]) -> str:
        process = self._processes[-1]

        def found() -> str | None:
            match = pattern.search(log.read_text())
            assert match or process.poll() is None, log.read_text()[-3000:]
            return None if match is None else match[1]

        return until(found, pattern.pattern, START_SECONDS)

    def report(self) -> dict:
        """What the master publishes as JSON."""
        with urllib.request.urlopen(f"{self._web}/json/", timeout=30) as answer:
            return json.load(answer)

    def submit(self, script: Path, **environment: str) -> StandaloneApplication:
        """Submit a script in client mode, the only one that the cluster has for Python."""
        own = {
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        }
        settings = APPLICATION | {"spark.executorEnv.SPARK_LOCAL_IP": "127.0.0.1"}
        command = submit_command(self.master, settings, script)
        log = self._run(f"job-{len(self._processes)}", command, own | environment)
        return StandaloneApplication(self._logged(log, _APPLICATION_ID), self)

    def kill(self, application_id: str) -> None:
        """Kill an application, as a user does on the page of the master."""
        form = urllib.parse.urlencode({"id": application_id, "terminate": "true"}).encode()
        urllib.request.urlopen(f"{self._web}/app/kill/", data=form, timeout=30).close()

    def close(self) -> None:
        """Stop the applications, the worker, and the master."""
        for process in reversed(self._processes):
            process.kill()
            process.wait()


class StandaloneApplication:
    """A submitted application; ``state`` and ``kill`` are those of the master."""

    def __init__(self, application_id: str, cluster: StandaloneCluster) -> None:
        self.application_id = application_id
        self._cluster = cluster

    @property
    def state(self) -> tuple[str, str]:
        """The master's state; it has no final status."""
        report = self._cluster.report()
        apps = report["activeapps"] + report["completedapps"]
        return next(app["state"] for app in apps if app["id"] == self.application_id), ""

    def kill(self) -> None:
        """Kill it, as a user does."""
        self._cluster.kill(self.application_id)

    def wait(self, *states: str) -> tuple[str, str]:
        """Wait until it is in one of these states."""
        return until(
            lambda: self.state if self.state[0] in states else None,
            f"{self.application_id} is {states}",
            START_SECONDS,
        )


def _program() -> str:
    return str(SPARK_HOME / "bin" / "spark-class")
