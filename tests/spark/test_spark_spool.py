"""A driver is killed; the next one reads its spool and finishes its deliveries."""

from __future__ import annotations

import signal

import pytest
from support.driver import START_SECONDS, Driver
from support.http_double import reply
from support.patience import until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

WATCHED = """
sidecar = attach(
    spark, app_name="etl", http_port=-1, webhook_url=os.environ["PAGES"],
    spool_dir=os.environ["SPOOL"], resolve_after_seconds=1,
)
def fail(batch, batch_id):
    raise ValueError("concurrent update, password=hunter2")
"""
FAILING = (
    WATCHED
    + """
query = start("bronze", fail)
while not sidecar.alerts() or query.isActive:
    time.sleep(0.05)
while not sidecar.flush(60):
    time.sleep(0.05)
say("reported")
time.sleep(3600)
"""
)
HEALTHY = (
    WATCHED
    + """
start("bronze")
time.sleep(3600)
"""
)
EVENT = ("firing", "StreamingQueryFailed", "bronze")


@pytest.fixture
def drive(tmp_path, pages):
    """Start a driver; all drivers share one spool."""
    count = iter(range(9))

    def driver(script):
        folder = tmp_path / str(next(count))
        folder.mkdir()
        return Driver(script, folder, PAGES=pages.url, SPOOL=str(tmp_path / "spool"))

    return driver


def kept_in(folder):
    return "".join(path.read_text() for path in (folder / "spool").glob("outbox-*.json"))


@pytest.mark.fault(
    "Ends and kills",
    "SIGKILL before an alert is delivered",
    "The next driver delivers it from the spool",
)
def test_next_driver_sends_and_resolves_the_alert_a_killed_driver_could_not_send(
    drive, pages, tmp_path
):
    pages.takes, pages.otherwise = False, reply(503)
    with drive(FAILING) as driver:
        until(lambda: len(pages.requests) > 1, "it tries to send the alert", START_SECONDS)
        # A message waits only shortly for a slow disk.
        until(lambda: EVENT[1] in kept_in(tmp_path), "the alert is on the disk", START_SECONDS)
        driver.signal_all(signal.SIGKILL)
    assert pages.reported == []
    pages.takes, pages.otherwise = True, reply(200)

    with drive(HEALTHY):
        until(lambda: len(pages.reported) == 2, "the alert and its resolve arrive", START_SECONDS)
    kept = b"".join(path.read_bytes() for path in (tmp_path / "spool").iterdir())

    assert pages.reported == [EVENT, ("resolved", *EVENT[1:])]
    assert b"hunter2" not in kept
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "spool").iterdir()} == {0o600}


@pytest.mark.nightly
def test_next_driver_resolves_an_alert_that_was_sent_and_does_not_send_it_again(drive, pages):
    with drive(FAILING) as driver:
        # A driver that is killed between a message and its answer would have to send it again.
        driver.wait_for_line("reported")
        driver.signal_all(signal.SIGKILL)
    with drive(FAILING) as driver:
        driver.wait_for_line("reported")
        driver.signal_all(signal.SIGKILL)
    assert pages.reported == [EVENT]
    with drive(HEALTHY):
        until(lambda: len(pages.reported) > 1, "the resolve arrives", START_SECONDS)

    assert pages.reported == [EVENT, ("resolved", *EVENT[1:])]
