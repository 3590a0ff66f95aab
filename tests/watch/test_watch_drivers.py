"""The watcher with real servers: its reports of a driver in a process of its own."""

from __future__ import annotations

import signal
import socket
import threading

import pytest
from support.patience import until
from support.watching import (
    LONG_POLL_SECONDS,
    ServedDriver,
    is_seen,
    never_accepting,
    serving,
    watching,
)

from querypulse.watch import alerts, client, targets
from querypulse.watch.targets import answers

pytestmark = pytest.mark.slow

OURS = {f"querypulse-{name}" for name in ("poll", "await", "watch", "targets", "network")}


@pytest.fixture(autouse=True)
def long_polls(monkeypatch):
    monkeypatch.setattr(client, "POLL_SECONDS", LONG_POLL_SECONDS)


def seen(reported, app="etl"):
    until(lambda: is_seen(reported, app), f"{app} is seen")
    return reported


def apps(reported):
    return [driver.app for driver in reported.tracker.drivers]


# -- processes --------------------------------------------------------------------------------


def test_a_killed_driver_is_reported_without_waiting_for_the_next_poll():
    with ServedDriver() as driver, watching(driver.url, interval=3600.0) as reported:
        seen(reported)
        driver.signal(signal.SIGKILL)
        reported.wait_for("etl")
        assert "nothing listens" in reported.firing["etl"]["reason"]
        assert "refused the connection" in reported.firing["etl"]["connection"]


def test_a_frozen_driver_is_reported_and_resolves_when_it_resumes(monkeypatch):
    with ServedDriver() as driver, watching(driver.url) as reported:
        seen(reported)
        with monkeypatch.context() as patch:
            patch.setattr(client, "POLL_SECONDS", 0.3)
            driver.signal(signal.SIGSTOP)
            reported.wait_for("etl")
        assert "is frozen" in reported.firing["etl"]["reason"]
        driver.signal(signal.SIGCONT)
        reported.wait_for_end("etl")


# -- servers in this process ------------------------------------------------------------------


def test_a_wrong_token_is_an_alert_of_the_watcher_not_of_the_driver(monkeypatch):
    """A driver that was never seen is reported after four times the grace, which comes first."""
    gone_after = 0.1
    monkeypatch.setattr(alerts, "REFUSED_SECONDS", 4 * gone_after + 1.0)
    with serving(token="secret") as server, watching(server.url, gone_after=gone_after) as reported:
        reported.wait_for("querypulse-watch")
        assert list(reported.firing) == ["querypulse-watch"]
        assert "401" in reported.firing["querypulse-watch"]["reason"]


def test_a_driver_without_the_watch_page_is_still_watched(monkeypatch):
    from querypulse.exporter import server

    monkeypatch.setattr(server, "WATCH", ())
    with serving() as server, watching(server.url) as reported:
        seen(reported)
        server.close()
        reported.wait_for("etl")


# -- our own network --------------------------------------------------------------------------


@pytest.fixture
def out_of_reach(monkeypatch):
    """The address of a driver that accepts no connection, as if it was on another machine."""
    monkeypatch.setattr(targets, "is_loopback", lambda _: False)
    monkeypatch.setattr(client, "POLL_SECONDS", 0.3)
    with never_accepting() as url:
        yield url


def test_an_unreachable_driver_is_reported_when_a_receivers_host_answers(out_of_reach):
    receiver = socket.create_server(("127.0.0.1", 0))
    with receiver, watching(out_of_reach, hosts=[receiver.getsockname()]) as reported:
        reported.wait_for(out_of_reach.partition("//")[2])
    (page,) = reported.firing.values()
    assert "did not accept the connection" in page["connection"]


def test_an_unreachable_driver_is_not_reported_while_no_host_answers(out_of_reach, caplog):
    with watching(out_of_reach) as reported, caplog.at_level("INFO", "querypulse"):
        until(lambda: "own network down?" in caplog.text, "the log contains it")
        (driver,) = reported.tracker.drivers
        until(lambda: reported.tracker.is_gone(driver), "it is down for long enough")
        last = driver.last
        until(lambda: driver.last is not last, "that has been evaluated")
    assert reported.firing == {}
    assert caplog.text.count("no receiver on another machine") == 1


@pytest.mark.parametrize("backlog", [8, None], ids=["accepts", "refuses"])
def test_a_host_that_accepts_or_refuses_a_connection_proves_the_network(backlog):
    with socket.create_server(("127.0.0.1", 0)) as server:
        host = server.getsockname()
        if backlog is None:
            server.close()
        assert answers([host])


def test_no_host_and_an_unresolvable_host_prove_nothing():
    assert not answers([])
    assert not answers([("no-such-host.invalid", 443)])


# -- lists and names --------------------------------------------------------------------------


def test_the_watcher_follows_changes_of_the_targets_file(tmp_path):
    file = tmp_path / "drivers"
    file.write_text("")
    with (
        ServedDriver("one") as one,
        ServedDriver("two") as two,
        watching(file=str(file)) as reported,
    ):
        file.write_text(f"{one.url}\n{two.url}\n")
        seen(reported, "one")
        seen(reported, "two")
        file.write_text(f"{one.url}\n")
        until(lambda: apps(reported) == ["one"], "the second one is no longer watched")
        two.signal(signal.SIGKILL)
        one.signal(signal.SIGKILL)
        reported.wait_for("one")
        assert set(reported.firing) == {"one"}


def test_an_invalid_targets_file_keeps_the_last_list(tmp_path, caplog):
    file = tmp_path / "drivers"
    with ServedDriver() as driver:
        file.write_text(driver.url)
        with watching(file=str(file)) as reported:
            seen(reported)
            # At once: of a file that is being written, the watcher might read an empty list.
            (tmp_path / "new").write_text("ftp://nonsense")
            (tmp_path / "new").replace(file)
            until(lambda: "nonsense" in caplog.text, "the log contains it")
            driver.signal(signal.SIGKILL)
            reported.wait_for("etl")
    assert caplog.text.count("keeping the last list") == 1


def test_a_name_is_watched_at_all_its_addresses_and_no_thread_is_left_behind():
    with ServedDriver() as driver, watching(names=[f"http://localhost:{driver.port}"]) as reported:
        seen(reported)
        driver.signal(signal.SIGKILL)
        reported.wait_for("etl")
    until(lambda: not OURS & {thread.name for thread in threading.enumerate()}, "all have ended")
