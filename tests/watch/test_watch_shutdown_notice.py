"""``GET /watch`` notifies waiting watchers of a graceful shutdown, and blocks no other page."""

from __future__ import annotations

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from unittest.mock import Mock

import pytest
import requests
from msgspec.structs import replace
from support.exporter_http import address, get, waiting
from support.patience import NEVER, PATIENCE_SECONDS, ended, until
from support.watching import published_alert, published_driver, serving

from querypulse.core.guard import Guard
from querypulse.exporter import pages as pages_module
from querypulse.exporter.pages import MAX_WATCHERS, Notice
from querypulse.watch import watcher as watcher_module
from querypulse.watch.client import Access, Client, await_notice, reported
from querypulse.watch.targets import endpoint_of
from querypulse.watch.watcher import DriverPoller


@pytest.fixture(autouse=True)
def long_wait(monkeypatch):
    """Requests to ``/watch`` wait until something happens."""
    monkeypatch.setattr(pages_module, "WAIT_SECONDS", 3600.0)


@pytest.fixture
def short_wait(long_wait, monkeypatch):
    monkeypatch.setattr(pages_module, "WAIT_SECONDS", 0.2)


@pytest.fixture
def long_return(monkeypatch):
    """A closing server waits for a watcher that is about to ask again."""
    monkeypatch.setattr(pages_module, "RETURN_SECONDS", 3600.0)


@pytest.mark.parametrize("seconds", [PATIENCE_SECONDS, 0.0])
def test_all_waiting_watchers_are_notified_before_the_server_closes(seconds):
    with serving() as server, ThreadPoolExecutor(4) as pool:
        answers = [pool.submit(get, server, path) for path in ("/watch", "/watch/page") * 2]
        until(lambda: waiting(server, 4), "all wait")
        server.close(seconds)
        assert [answer.result().json() for answer in answers] == [{"status": "stopped"}] * 4
        with pytest.raises(requests.ConnectionError):
            get(server, "/watch")


def test_a_watcher_is_notified_which_reported_failure_ends_the_driver():
    shown = replace(published_driver(), alerts=(published_alert("StreamingQueryFailed", "gold"),))
    with serving(published=lambda: shown) as server, ThreadPoolExecutor(1) as pool:
        client = Client(endpoint_of(server.url, "here"), Access())
        answer = pool.submit(await_notice, client)
        until(lambda: waiting(server), "a watcher waits")
        server.close(notice=Notice.FAILED)
        page = answer.result(PATIENCE_SECONDS)
    assert page.status == "failed"
    assert reported(page.alerts) == (("gold", "StreamingQueryFailed"),)


@pytest.mark.parametrize("notice", Notice)
def test_a_watcher_understands_every_notice(notice):
    with serving() as server, ThreadPoolExecutor(1) as pool:
        answer = pool.submit(await_notice, Client(endpoint_of(server.url, "here"), Access()))
        until(lambda: waiting(server), "a watcher waits")
        server.close(notice=notice)
        assert answer.result(PATIENCE_SECONDS).status == notice.value


def test_a_crash_leaves_a_waiting_watcher_without_an_answer():
    with serving() as server, ThreadPoolExecutor(1) as pool:
        answer = pool.submit(get, server, "/watch")
        until(lambda: waiting(server), "a watcher waits")
        server.close(notice=None)
        assert answer.exception() is not None or answer.result().status_code != 200


def test_a_watcher_of_a_running_driver_is_answered_after_the_wait(short_wait):
    with serving() as server:
        for path in ("/watch", "/watch/page"):
            assert get(server, path).json() == {"status": "running"}
        assert waiting(server, 0)


def test_one_more_watcher_takes_the_place_of_the_oldest(monkeypatch):
    monkeypatch.setattr(pages_module, "MAX_WATCHERS", 4)
    with serving() as server, ThreadPoolExecutor(5) as pool:
        answers = []
        for count in range(1, 5):
            answers.append(pool.submit(get, server, "/watch"))
            until(lambda count=count: waiting(server, count), "one more waits")
        answers.append(pool.submit(get, server, "/watch"))
        assert answers[0].result(PATIENCE_SECONDS).json() == {"status": "running"}
        assert waiting(server, 4)
        assert get(server, "/livez").status_code == 200
        server.close()
        assert {answer.result().json()["status"] for answer in answers[1:]} == {"stopped"}


@pytest.mark.fault(
    "Readers over HTTP",
    "Neighbours keep waiting at `/watch`, or come back again and again",
    "`querypulse watch` still receives the shutdown notice",
)
@pytest.mark.slow
@pytest.mark.parametrize("again", [False, True], ids=["keep", "again and again"])
def test_neighbours_at_many_places_hide_no_shutdown_notice(again, monkeypatch):
    over, observations, asked = threading.Event(), [], threading.Event()
    ask = watcher_module.await_notice
    monkeypatch.setattr(watcher_module, "await_notice", lambda client: asked.set() or ask(client))

    def occupy(server):
        with suppress(requests.RequestException):
            get(server, "/watch")
            while again and not over.is_set():
                get(server, "/watch")

    with serving() as server, ThreadPoolExecutor(MAX_WATCHERS // 2) as pool:
        for _ in range(MAX_WATCHERS // 2):
            pool.submit(occupy, server)
        until(lambda: waiting(server, MAX_WATCHERS // 2), "they wait")
        poller = DriverPoller(
            endpoint_of(server.url, "here"), Access(), 5.0, observations.append, Guard()
        )
        until(lambda: observations, "the driver is polled")
        assert asked.wait(PATIENCE_SECONDS)
        until(lambda: waiting(server, MAX_WATCHERS // 2 + 1), "it waits, too")
        server.close(PATIENCE_SECONDS)
        until(lambda: notices(observations), "the shutdown notice arrives")
        over.set()
        poller.stop()
    assert notices(observations) == [Notice.STOPPED]


def notices(observations):
    tracker = Mock()
    for observation in observations:
        observation(tracker)
    return [call.args[2] for call in tracker.closes.call_args_list]


@pytest.mark.usefixtures("short_wait", "long_return")
def test_shutdown_waits_for_a_watcher_between_two_requests():
    with serving() as server, ThreadPoolExecutor(1) as pool:
        assert get(server, "/watch").json() == {"status": "running"}
        closing = threading.Thread(target=server.close, args=(PATIENCE_SECONDS,))
        closing.start()
        until(lambda: server._shutdown_notice.said, "the shutdown notice is set")
        answer = pool.submit(get, server, "/watch")
        assert answer.result().json() == {"status": "stopped"}
        closing.join()


def test_shutdown_does_not_wait_for_ever_for_a_watcher_that_left(short_wait):
    with serving() as server:
        get(server, "/watch")
        ended(lambda: server.close(NEVER))


@pytest.mark.usefixtures("long_return")
def test_shutdown_does_not_wait_without_watchers():
    with serving() as server, socket.create_connection(address(server)):
        ended(lambda: server.close(NEVER))


def test_a_closing_server_is_not_live():
    with serving() as server:
        assert get(server, "/livez").status_code == 200
        server._shutdown_notice.said = Notice.STOPPED
        answer = get(server, "/livez")
    assert (answer.status_code, answer.text) == (503, "shutting down\n")


def test_the_watch_page_needs_the_token():
    with serving(token="secret") as server:
        assert get(server, "/watch").status_code == 401
