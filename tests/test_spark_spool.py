"""Drivers that are killed, and what their successors make of what they left in the spool."""

from __future__ import annotations

import json
import signal

import pytest
from support.driver import Driver
from support.http_double import HttpDouble, reply
from support.queries import until

pytestmark = pytest.mark.spark

WATCHED = """
sidecar = attach(
    spark, app_name="etl", http_port=-1, webhook_url=os.environ["PAGES"],
    spool_dir=os.environ["SPOOL"], resolve_after_seconds=1,
)
def sick(batch, batch_id):
    raise ValueError("concurrent update, password=hunter2")
"""
DIES = (
    WATCHED
    + """
query = start("bronze", sick)
while not sidecar.alerts() or query.isActive:
    time.sleep(0.05)
while not sidecar.flush():
    time.sleep(0.05)
say("it is told")
time.sleep(120)
"""
)
IS_WELL = (
    WATCHED
    + """
start("bronze")
time.sleep(120)
"""
)
EVENT = ("firing", "StreamingQueryFailed", "bronze")


class Receiver(HttpDouble):
    """``reported`` is what it took, ``asked`` all that it was sent."""

    def __init__(self):
        super().__init__()
        self.reported = []

    def handle(self, request, handler):
        if self.takes:
            (alert,) = json.loads(request.body)["alerts"]
            self.reported.append(
                (alert["status"], alert["labels"]["alertname"], alert["labels"]["query"])
            )
        super().handle(request, handler)

    takes = True

    def refuse(self):
        self.takes, self.otherwise = False, reply(503)

    def take(self):
        self.takes, self.otherwise = True, reply(200)


@pytest.fixture
def receiver():
    with Receiver() as double:
        yield double


@pytest.fixture
def drive(tmp_path, receiver):
    """Starts a driver; all share one spool."""
    count = iter(range(9))

    def driver(script):
        folder = tmp_path / str(next(count))
        folder.mkdir()
        return Driver(script, folder, PAGES=receiver.url, SPOOL=str(tmp_path / "spool"))

    return driver


def test_what_a_killed_driver_could_not_report_its_successor_reports_and_ends(
    drive, receiver, tmp_path
):
    receiver.refuse()
    with drive(DIES) as driver:
        until(lambda: len(receiver.requests) > 1, "it is attempted", 90)
        driver.signal_all(signal.SIGKILL)
    assert receiver.reported == []
    receiver.take()

    with drive(IS_WELL):
        until(lambda: len(receiver.reported) == 2, "it is told, and that it is over", 90)
    kept = b"".join(path.read_bytes() for path in (tmp_path / "spool").iterdir())

    assert receiver.reported == [EVENT, ("resolved", *EVENT[1:])]
    assert b"hunter2" not in kept
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "spool").iterdir()} == {0o600}


def test_what_a_killed_driver_has_reported_its_successor_ends_and_does_not_report_again(
    drive, receiver
):
    with drive(DIES) as driver:
        # Killed between a message and its answer, it would have to be told again.
        driver.wait_for_line("it is told", 90)
        driver.signal_all(signal.SIGKILL)
    with drive(DIES) as driver:
        driver.wait_for_line("it is told", 90)
        driver.signal_all(signal.SIGKILL)
    assert receiver.reported == [EVENT]
    with drive(IS_WELL):
        until(lambda: len(receiver.reported) > 1, "that it is over is told", 90)

    assert receiver.reported == [EVENT, ("resolved", *EVENT[1:])]
