"""A watcher, and drivers for it to watch: the exporter's own server without any Spark."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

from support.exporter_http import serving as serving_published
from support.patience import PATIENCE_SECONDS, until

from querypulse.alerting.alert import Alert
from querypulse.alerting.facts import Reported
from querypulse.alerting.finding import QueryHealth
from querypulse.alerting.words.messages import Guidance
from querypulse.core.guard import Guard
from querypulse.core.states import QueryState
from querypulse.exporter.published_state import Monitor, PublishedState
from querypulse.listener.state.snapshot import Snapshot
from querypulse.watch.alerts import DriverAlerts
from querypulse.watch.client import Access
from querypulse.watch.peers import Leadership, new_rank
from querypulse.watch.targets import Targets
from querypulse.watch.tracker import LONGEST_POLL_SECONDS, TargetTracker
from querypulse.watch.watcher import Watcher

LONG_POLL_SECONDS = 0.9 * LONGEST_POLL_SECONDS
"""A slow machine has more time to answer a poll, but not so much that the poll is ignored."""
SCRIPT = """
import sys
from support.exporter_http import waiting
from support.patience import until
from support.watching import published_driver
from querypulse.exporter.server import Content, HttpServer
from querypulse.core.guard import Guard

app, port = sys.argv[1], int(sys.argv[2])
content = Content(lambda: published_driver(app), lambda: True)
server = HttpServer("127.0.0.1", port, content, Guard())
server.start()
print(server.url, flush=True)
sys.stdin.readline()
until(lambda: waiting(server), "a watcher waits for the end")
server.close()
"""


def published_driver(app="etl", heartbeat=None, **states):
    """The published state of a driver with queries in these states; by default its worker is alive."""
    health = {
        query: QueryHealth(QueryState(state), Reported(reason="reported", summary=""), 60.0)
        for query, state in states.items()
    }
    beat = time.time() if heartbeat is None else heartbeat
    return PublishedState(
        app=app,
        spark_version="4.0.0",
        snapshot=Snapshot(at=100.0, began_at=0.0),
        health=health,
        alerts=(),
        monitor=Monitor(heartbeat_timestamp=beat),
        wall=time.time(),
    )


def published_alert(alertname, query="*", severity="critical", **annotations):
    labels = {"alertname": alertname, "query": query, "severity": severity}
    return Alert(labels, annotations, 0.0)


def serving(app="etl", *, published=None, **access):
    """A started server of a healthy driver, or of the driver that ``published`` describes."""
    return serving_published(published or (lambda: published_driver(app)), **access)


class ServedDriver:
    """A process of its own that serves what a driver serves.

    ``shut_down`` stops it gracefully, once a watcher waits for that: one that has just come does
    not wait yet.
    """

    def __init__(self, app="etl", port=0) -> None:
        # It stays bound, so that nobody else takes the port before the next process listens there.
        self._port = socket.socket()
        self._port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._port.bind(("127.0.0.1", port))
        folder = str(Path(__file__).parent.parent)
        self.process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, app, str(self.port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": folder},
        )
        self.url = self.process.stdout.readline().strip()
        assert self.url.endswith(f":{self.port}")

    @property
    def port(self) -> int:
        return self._port.getsockname()[1]

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)

    def shut_down(self) -> None:
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        assert self.process.wait(PATIENCE_SECONDS) == 0

    def __enter__(self):
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(PATIENCE_SECONDS)
        for part in (self.process.stdin, self.process.stdout, self._port):
            part.close()


@contextmanager
def never_accepting():
    """The URL of a port that accepts no connection: its queue is full."""
    server = socket.create_server(("127.0.0.1", 0), backlog=0)
    with server, socket.socket() as first, socket.socket() as second:
        for full in (first, second):
            full.setblocking(False)
            full.connect_ex(server.getsockname())
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


class RecordingSink:
    """An incident sink that records the alerts that it receives, by app."""

    def __init__(self) -> None:
        self.firing: dict[str, dict[str, str]] = {}
        """The annotations of each app's first alert."""
        self.ended: set[str] = set()

    def offer(self, incidents) -> None:
        for incident in incidents:
            app = incident.labels["app"]
            if incident.is_over:
                self.ended.add(app)
            else:
                self.firing.setdefault(app, incident.alerts[0].annotations)

    def wait_for(self, app) -> None:
        until(lambda: app in self.firing, f"{app} is reported")

    def wait_for_end(self, app) -> None:
        until(lambda: app in self.ended, f"the alert of {app} ends")


@contextmanager
def watching(*urls, file=None, names=(), interval=0.3, gone_after=1.0, hosts=()):
    """A running watcher; yields its ``RecordingSink``."""
    reported, tracker = RecordingSink(), TargetTracker(gone_after, interval)
    watcher = Watcher(
        Targets(urls, file, names),
        DriverAlerts(
            tracker,
            resolve_after_seconds=0.0,
            repeat_interval_seconds=3600.0,
            guidance=Guidance("https://runbooks.example/{alertname}.md"),
        ),
        Leadership(new_rank(), (), gone_after),
        reported,
        Guard(),
        access=Access(None),
        hosts=hosts,
    )
    reported.tracker = tracker
    watcher.start()
    try:
        yield reported
    finally:
        watcher.close(5.0)


def is_seen(reported, app) -> bool:
    return any(driver.app == app and driver.seen for driver in reported.tracker.drivers)


RUN = f"""
import sys
from querypulse.commands.cli import main
from querypulse.watch import client
client.POLL_SECONDS = {LONG_POLL_SECONDS}
sys.exit(main())
"""
FAST = ("--interval", "0.3", "--gone-after", "1", "--http-port", "0")


class Running:
    """``querypulse watch`` with settings from the environment; ``log`` is its output so far."""

    def __init__(self, path, *arguments, **settings) -> None:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("QUERYPULSE_")}
        environment |= {f"QUERYPULSE_{name.upper()}": text for name, text in settings.items()}
        self._path = path
        with path.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-Ic", RUN, "watch", *FAST, *arguments],
                stderr=log,
                stdin=subprocess.DEVNULL,
                env=environment,
            )

    @property
    def log(self) -> str:
        return self._path.read_text()

    def wait_for(self, text) -> None:
        def said():
            assert self._process.poll() is None, self.log
            return text in self.log

        until(said, f"the watcher logs {text!r}")

    def end(self, number=signal.SIGTERM) -> int:
        self._process.send_signal(number)
        return self._process.wait(PATIENCE_SECONDS)

    def __enter__(self):
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait(PATIENCE_SECONDS)
