"""A classic driver that serves Spark Connect, with our sidecar in it, and its clients."""

from __future__ import annotations

import json
import socket
import threading
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

from support.connect_server import server_jars
from support.driver import Driver
from support.queries import until
from support.server_process import free_port

SESSIONS: list[object] = []
"""All sessions of the process. PySpark shuts the pool of all sessions down as it deletes one, and
waits for ever where the garbage collector does that while another session submits to the pool."""
TIME_OUT = "spark.connect.session.manager.defaultSessionTimeout"
"""The server reads it at each look for sessions that have expired."""
SCRIPT = """
import os, sys, time
from pyspark.sql import SparkSession
from querypulse.sidecar import attach
conf = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": os.environ["PORT"],
    os.environ["TIME_OUT"]: "1h",
    "spark.connect.session.manager.maintenanceInterval": "500ms",
}
if os.environ["JARS"]:
    conf["spark.jars"] = os.environ["JARS"]
builder = SparkSession.builder.master("local[8]").appName("served")
for key, value in conf.items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("OFF")
given = {"http_port": 0, "webhook_url": os.environ["PAGES"], "gone_grace_seconds": 2}
sidecar = attach(spark, resolve_after_seconds=1, **given, **eval(os.environ["SETTINGS"]))
def say(text):
    print(text, flush=True)
"""
SERVES = """
conf = spark.sparkContext._jsc.sc().conf()
say(f"serves {sidecar.url}")
orders, obeyed = os.environ["ORDERS"], ""
while True:
    order = open(orders).read() if os.path.exists(orders) else ""
    if order.endswith(";") and order != obeyed:
        obeyed = order
        conf.set(os.environ["TIME_OUT"], order.split()[0])
        say(f"time-out {order}")
    time.sleep(0.05)
"""


class ConnectDriver:
    """``start`` returns once it serves; before that, an early client may have come."""

    def __init__(self, folder: Path, pages, *, script: str = SERVES, **settings) -> None:
        self.port = free_port()
        self._folder = folder
        self._pages = pages
        self._script = script
        self._settings = settings
        self._url = ""
        self._orders = 0
        self._sessions: list[Any] = []
        self.driver: Driver | None = None

    def start(self, *, has_early_client: bool = False) -> None:
        """Start it. An early client makes the service build a SharedState, where Spark lets it."""
        self.driver = Driver(
            self._script,
            self._folder,
            header=SCRIPT,
            PORT=str(self.port),
            TIME_OUT=TIME_OUT,
            ORDERS=str(self._folder / "orders"),
            JARS=",".join(map(str, server_jars())),
            PAGES=self._pages.url,
            SETTINGS=repr(self._settings),
        )
        if has_early_client:
            threading.Thread(target=self._come_early, daemon=True).start()
        self._url = self.driver.line("serves ").split()[1]

    def session(self, user: str = "ada"):
        """A session of its own in this process."""
        from pyspark.sql.connect.session import SparkSession

        remote = f"sc://127.0.0.1:{self.port}/;user_id={user}"
        spark = SparkSession.Builder().remote(remote).create()
        SESSIONS.append(spark)
        self._sessions.append(spark)
        return spark

    def set_time_out(self, text: str) -> None:
        """After how long without a call sessions expire: one hour at first."""
        self._orders += 1
        order = f"{text} {self._orders};"
        (self._folder / "orders").write_text(order)
        self.driver.wait_for_line(f"time-out {order}")

    def query(self, name: str) -> dict:
        """What ``/status`` shows of a query; nothing before it is known."""
        with urllib.request.urlopen(f"{self._url}/status", timeout=60) as answer:
            queries = json.load(answer)["queries"]
        return next((query for query in queries if query["name"] == name), {})

    def wait_for(self, name: str, state: str) -> dict:
        """What is shown of a query, once it is in that state."""

        def found():
            query = self.query(name)
            return query if query.get("state") == state else None

        return until(found, f"{name} is {state}")

    def wait_for_commits(self, name: str, beyond: int = -1) -> int:
        """The newest batch of a running query, once that is later than ``beyond``."""

        def newest():
            batch = self.query(name).get("last_commit_batch")
            return batch if batch is not None and batch > beyond else None

        batch = until(lambda: (newest() is not None) and [newest()], f"{name} commits")[0]
        return self.wait_for(name, "running")["last_commit_batch"] or batch

    def _come_early(self) -> None:
        """Ask from the moment at which the port is open."""
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                break
            except OSError:
                time.sleep(0.01)
        with suppress(Exception):  # Spark 3.5 has no session for it yet.
            self.session("early").range(1).count()

    def close(self) -> None:
        """End it, after its clients, which would wait for it when this process ends."""
        for spark in self._sessions:
            spark.client.close()
        if self.driver is not None:
            self.driver.__exit__()
