"""Two real watchers of one driver, a real webhook, and kills."""

from __future__ import annotations

import signal
import socket

import pytest
import requests
from support.patience import PATIENCE_SECONDS, until
from support.watching import Running, ServedDriver

GONE_AFTER = "8"


@pytest.fixture
def ports():
    """Two ports that nobody else takes before the watchers listen there."""
    held = [socket.socket() for _ in range(2)]
    for port in held:
        port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        port.bind(("127.0.0.1", 0))
    yield [port.getsockname()[1] for port in held]
    for port in held:
        port.close()


class Side:
    """One of the two watchers, and what it serves."""

    def __init__(self, path, driver, ports, own, webhook) -> None:
        self.url = f"http://127.0.0.1:{ports[own]}"
        self.arguments = (driver.url, "--gone-after", GONE_AFTER, "--http-port", str(ports[own]))
        self.peers = [text for port in ports for text in ("--peer", f"http://127.0.0.1:{port}")]
        self.path, self.webhook = path, webhook
        self.start()

    def start(self) -> None:
        settings = {"webhook_url": self.webhook, "resolve_after_seconds": "0"}
        self.process = Running(self.path, *self.arguments, *self.peers, **settings)

    def get(self, page):
        """What it serves; nothing while it starts."""
        try:
            return requests.get(self.url + page, timeout=PATIENCE_SECONDS).json()
        except requests.RequestException:
            return {}

    @property
    def sends(self) -> bool:
        return self.get("/status").get("notifies", False)

    def knows(self, known) -> bool:
        """Whether it knows that a receiver knows of one incident as ``known``."""
        rows = [row for rows in self.get("/peer").get("rows", {}).values() for row in rows]
        return [row["known"] for row in rows] == [known]

    def kill(self) -> None:
        self.process.end(signal.SIGKILL)


@pytest.fixture
def sides(tmp_path, ports, pages):
    started = []

    def start(driver):
        started.extend(
            Side(tmp_path / f"log-{own}", driver, ports, own, pages.url) for own in range(2)
        )
        until(lambda: any(side.sends for side in started), "one watcher sends")
        leader, other = sorted(started, key=lambda side: not side.sends)
        return leader, other

    yield start
    for side in started:
        side.process.__exit__()


@pytest.mark.nightly
def test_of_two_watchers_one_sends_and_the_other_resolves_after_its_kill(sides, pages):
    with ServedDriver() as driver:
        leader, other = sides(driver)
        assert not other.sends
        for side in (leader, other):
            side.process.wait_for("etl is up")
        driver.signal(signal.SIGKILL)
        pages.wait_for("StreamingDriverDown", "*")
        until(lambda: other.knows("firing"), "the other one knows what was sent")
        leader.kill()
        until(lambda: other.sends, "the other one sends")
        with ServedDriver(port=driver.port):
            pages.wait_for("StreamingDriverDown", "*", status="resolved")
    assert pages.reported == [
        ("firing", "StreamingDriverDown", "*"),
        ("resolved", "StreamingDriverDown", "*"),
    ]


@pytest.mark.nightly
def test_a_driver_that_dies_with_the_sending_watcher_is_reported_once(sides, pages):
    with ServedDriver() as driver:
        leader, other = sides(driver)
        for side in (leader, other):
            side.process.wait_for("etl is up")
        leader.kill()
        driver.signal(signal.SIGKILL)
        pages.wait_for("StreamingDriverDown", "*")
        leader.start()
        until(lambda: leader.knows("firing"), "the restarted one knows what was sent")
        assert not leader.sends
        other.kill()
        until(lambda: leader.sends, "the restarted one sends")
        with ServedDriver(port=driver.port):
            pages.wait_for("StreamingDriverDown", "*", status="resolved")
    assert pages.reported == [
        ("firing", "StreamingDriverDown", "*"),
        ("resolved", "StreamingDriverDown", "*"),
    ]
