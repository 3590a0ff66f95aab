"""The JVM of the driver ends while Python runs on, with real processes."""

from __future__ import annotations

import signal
import time

import pytest
from support.driver import Driver

pytestmark = pytest.mark.spark

WAITS = """
sidecar = attach(spark, http_port=0, webhook_url=os.environ["PAGES"])
for name in ("bronze", "silver", "gold"):
    start(name)
until_commits(sidecar, "bronze", "silver", "gold")
say("ready")
try:
    sidecar.await_any_failure()
except Exception:
    say("failure")
    raise
say("never")
"""


@pytest.mark.fault(
    "Ends and kills",
    "SIGKILL of the JVM",
    "The application ends with an error, and a person is notified",
)
def test_killed_jvm_ends_the_waiting_application_and_pages(pages, tmp_path):
    with Driver(WAITS, tmp_path, PAGES=pages.url) as driver:
        driver.wait_for_line("ready")
        driver.signal_jvm(signal.SIGKILL)
        killed_at = time.monotonic()
        driver.wait_for_line("failure", 5)
        code = driver.wait(30)

        assert time.monotonic() - killed_at < 10
        assert code == 1
        assert "QueryFailure: streaming query *: the JVM of the driver has ended" in driver.errors
        assert "never" not in driver.lines
        page = pages.wait_for("StreamingDriverDown", "*")
        assert page.annotations["reason"] == (
            "the JVM of the driver has ended, and 3 streaming queries with it: bronze, gold, silver"
        )
        assert [what for what in pages.reported if what[0] == "firing"] == [
            ("firing", "StreamingDriverDown", "*")
        ]


def test_frozen_jvm_does_not_count_as_gone(pages, tmp_path):
    with Driver(WAITS, tmp_path, PAGES=pages.url) as driver:
        driver.wait_for_line("ready")
        driver.signal_jvm(signal.SIGSTOP)
        time.sleep(6)
        driver.signal_jvm(signal.SIGCONT)
        time.sleep(2)

        assert driver.process.poll() is None
        assert pages.reported == []
