"""A real YARN on loopback: Hadoop's mini cluster, and applications in both deploy modes on it.

The cluster runs in a JVM of its own, which Py4J drives: a ResourceManager and a NodeManager, whose
containers are processes of this machine. Its file system is the local one.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO
from uuid import uuid4

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from support.cluster_jobs import SPARK_HOME, START_SECONDS, submit_command
from support.patience import until

from querypulse.examples.delta.artifacts import Packages, cache_folder, fetch

HADOOP = Packages(
    (
        "org.apache.hadoop:hadoop-client-minicluster:3.5.0",
        # What it needs and does not name.
        "org.junit.jupiter:junit-jupiter-api:5.13.3",
        "ch.qos.reload4j:reload4j:1.2.26",
        "org.bouncycastle:bcprov-jdk18on:1.82",
        "org.bouncycastle:bcpkix-jdk18on:1.82",
        "org.slf4j:slf4j-simple:1.7.36",
    )
)
CLUSTER = {
    "fs.defaultFS": "file:///",
    "yarn.nodemanager.resource.memory-mb": "6144",
    "yarn.nodemanager.resource.cpu-vcores": "8",
    "yarn.scheduler.minimum-allocation-mb": "128",
    "yarn.scheduler.maximum-allocation-mb": "4096",
    "yarn.scheduler.capacity.root.queues": "default",
    "yarn.scheduler.capacity.root.default.capacity": "100",
    "yarn.scheduler.capacity.maximum-am-resource-percent": "1.0",
    "yarn.resourcemanager.am.max-attempts": "50",
    "yarn.nodemanager.vmem-check-enabled": "false",
    "yarn.nodemanager.pmem-check-enabled": "false",
    "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "99.9",
}
FOR_CLIENTS = ("yarn.resourcemanager.", "yarn.scheduler.m")
APPLICATION = {
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.executor.instances": "1",
    "spark.sql.shuffle.partitions": "1",
    "spark.ui.port": "0",
    "spark.yarn.submit.waitAppCompletion": "false",
    "spark.yarn.maxAppAttempts": "50",
    "spark.yarn.am.waitTime": "300s",
    "spark.network.timeout": "300s",
}
_SUBMITTED = re.compile(r"Submitted application (application_\d+_\d+)")


def jars() -> list[Path]:
    """Hadoop with its mini cluster.

    Raises:
        ArtifactsError: there is no YARN here.

    """
    return fetch([HADOOP], cache_folder())


class MiniYarn:
    """A running cluster; its files are below ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._conf_dir = folder / "conf"
        self._conf_dir.mkdir()
        self._folder = folder
        self._submitted: list[subprocess.Popen[bytes]] = []
        self._log: TextIO = (folder / "cluster.log").open("w")
        [py4j] = (SPARK_HOME / "jars").glob("py4j-*.jar")
        port, self._process = launch_gateway(
            jarpath=str(py4j),
            classpath=os.pathsep.join(map(str, jars())),
            javaopts=["-Xmx512m", "-XX:TieredStopAtLevel=1", f"-Duser.dir={folder}"],
            die_on_exit=True,
            redirect_stdout=self._log,
            redirect_stderr=self._log,
            cwd=str(folder),
            return_proc=True,
        )
        self._gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
        self._cluster: Any = self._start()

    def _start(self) -> Any:
        jvm: Any = self._gateway.jvm
        configuration = jvm.org.apache.hadoop.yarn.conf.YarnConfiguration()
        for name, text in CLUSTER.items():
            configuration.set(name, text)
        cluster = jvm.org.apache.hadoop.yarn.server.MiniYARNCluster("mini", 1, 1, 1)
        cluster.init(configuration)
        cluster.start()
        assert cluster.waitForNodeManagersToConnect(60_000), "no NodeManager"
        self._web = "http://" + cluster.getConfig().get("yarn.resourcemanager.webapp.address")
        entries = {"fs.defaultFS": "file:///"}
        for entry in cluster.getConfig().iterator():
            if entry.getKey().startswith(FOR_CLIENTS):
                entries[entry.getKey()] = entry.getValue()
        xml = "".join(
            f"<property><name>{name}</name><value>{text}</value></property>"
            for name, text in entries.items()
        )
        for name in ("yarn-site.xml", "core-site.xml"):
            (self._conf_dir / name).write_text(f"<configuration>{xml}</configuration>")
        return cluster

    def submit(
        self,
        script: Path,
        *,
        mode: str = "cluster",
        conf: Mapping[str, str] | None = None,
        **environment: str,
    ) -> YarnApplication:
        """Submit a script in this deploy mode; ``environment`` is that of its driver."""
        own = {
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        }
        driver = own | environment
        settings = {
            **APPLICATION,
            "spark.yarn.jars": f"local:{SPARK_HOME}/jars/*",
            "spark.executorEnv.SPARK_LOCAL_IP": "127.0.0.1",
            "spark.yarn.stagingDir": f"file://{self._folder}",
            **{f"spark.yarn.appMasterEnv.{name}": text for name, text in driver.items()},
            **(conf or {}),
        }
        log = self._folder / f"submit-{uuid4().hex}.log"
        with log.open("w") as output:
            process = subprocess.Popen(
                submit_command("yarn", settings, script, "--deploy-mode", mode),
                stdout=output,
                stderr=subprocess.STDOUT,
                env={
                    **os.environ,
                    **driver,
                    "HADOOP_CONF_DIR": str(self._conf_dir),
                    "SPARK_HOME": str(SPARK_HOME),
                },
            )
        self._submitted.append(process)

        def submitted() -> str | None:
            found = _SUBMITTED.search(log.read_text())
            assert found or process.poll() is None, log.read_text()[-3000:]
            return None if found is None else found[1]

        return YarnApplication(
            until(submitted, "YARN has taken the application", START_SECONDS), self._web
        )

    def close(self) -> None:
        """Stop the cluster, and with it all containers and drivers."""
        for process in self._submitted:
            process.kill()
            process.wait()
        try:
            self._cluster.stop()
        finally:
            self._gateway.shutdown()
            self._process.kill()
            self._process.wait()
            self._log.close()


class YarnApplication:
    """A submitted application; ``state`` and ``kill`` are those of YARN's REST API."""

    def __init__(self, application_id: str, web: str) -> None:
        self.application_id = application_id
        self._url = f"{web}/ws/v1/cluster/apps/{application_id}"

    @property
    def state(self) -> tuple[str, str]:
        """YARN's state and final status."""
        with urllib.request.urlopen(self._url, timeout=30) as answer:
            app = json.load(answer)["app"]
        return app["state"], app["finalStatus"]

    def kill(self) -> None:
        """Kill it, as a user does."""
        request = urllib.request.Request(
            f"{self._url}/state?user.name=root",
            data=b'{"state": "KILLED"}',
            headers={"Content-Type": "application/json"},
            method="PUT",
        )
        urllib.request.urlopen(request, timeout=30).close()

    def wait(self, *states: str) -> tuple[str, str]:
        """Wait until it is in one of these states."""
        return until(
            lambda: self.state if self.state[0] in states else None,
            f"{self.application_id} is {states}",
            START_SECONDS,
        )
