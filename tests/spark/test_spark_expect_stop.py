"""A tool outside the driver announces stops over HTTP, before it stops a query or drains a node."""

from __future__ import annotations

import signal

import pytest
import requests
from support.driver import Driver
from support.pages import PageRecorder
from support.patience import PATIENCE_SECONDS, until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

SCRIPT = """
from pathlib import Path
folder = Path(os.environ["FOLDER"])
sidecar = attach(
    spark, http_port=0, http_token_file=str(folder / "token"), webhook_url=os.environ["PAGES"],
    queries={"gold": {"gone_grace_seconds": 0}}, resolve_after_seconds=1,
)
queries = {name: start(name) for name in ("bronze", "silver", "gold")}
until_commits(sidecar, *queries)
say(sidecar.url)
for name in ("silver", "gold"):
    until((folder / name).exists)
    queries[name].stop()
    until(lambda: name not in [query.name for query in spark.streams.active])
    assert sidecar.flush(60)
    say(f"{name} has stopped")
until((folder / "waits").exists)
say("waits")
sidecar.await_any_failure()
"""
TOKEN = "t0ken"


def announce(url, queries, **more):
    return requests.post(
        f"{url}/expect_stop",
        json={"queries": queries, **more},
        headers={"Authorization": f"Bearer {TOKEN}"},
        timeout=PATIENCE_SECONDS,
    )


def ends(url):
    headers = {"Authorization": f"Bearer {TOKEN}"}
    return requests.get(f"{url}/status", headers=headers, timeout=PATIENCE_SECONDS).json()[
        "end_expected"
    ]


def test_announced_stops_page_nobody_and_others_do(tmp_path):
    (tmp_path / "token").write_text(TOKEN)
    with (
        PageRecorder() as pages,
        Driver(SCRIPT, tmp_path, PAGES=pages.url, FOLDER=str(tmp_path)) as driver,
    ):
        url = driver.line("http://")
        assert announce(url, "nowhere").status_code == 400
        assert announce(url, "sil*").json()["queries"] == ["silver"]
        (tmp_path / "silver").touch()
        driver.wait_for_line("silver has stopped")
        (tmp_path / "gold").touch()
        driver.wait_for_line("gold has stopped")
        pages.wait_for("StreamingQueryStopped", "gold")
        assert [page.what for page in pages.pages] == [("StreamingQueryStopped", "gold")]

        assert not ends(url)
        assert announce(url, "*").json()["queries"] == ["bronze"]
        until(lambda: ends(url), "the driver's end is expected")
        (tmp_path / "waits").touch()
        driver.wait_for_line("waits")
        driver.signal_jvm(signal.SIGKILL)
        assert driver.wait() != 0

    assert {page.what for page in pages.pages} == {("StreamingQueryStopped", "gold")}
