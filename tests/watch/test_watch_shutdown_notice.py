"""``GET /watch`` notifies waiting watchers of a graceful shutdown, and blocks no other page."""

from __future__ import annotations

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
import requests
from support.clock import Clock
from support.ending import NEVER, ended
from support.patience import PATIENCE_SECONDS, until
from support.watching import address, get, serving

from querypulse.core.guard import Guard
from querypulse.exporter import pages as pages_module
from querypulse.exporter.pages import MAX_PAGES, MAX_WAITING, Notice, ShutdownNotice
from querypulse.watch import watcher as watcher_module
from querypulse.watch.client import Access
from querypulse.watch.targets import endpoint_of
from querypulse.watch.watcher import DriverPoller, Polled, ShuttingDown


@pytest.fixture(autouse=True)
def long_wait(monkeypatch):
    """Requests to ``/watch`` wait until something happens."""
    monkeypatch.setattr(pages_module, "WAIT_SECONDS", 3600.0)


@pytest.fixture
def short_wait(long_wait, monkeypatch):
    """Requests to ``/watch`` wait 0.2 s at most."""
    monkeypatch.setattr(pages_module, "WAIT_SECONDS", 0.2)


@pytest.fixture
def long_return(monkeypatch):
    """A closing server waits for a watcher that is about to ask again."""
    monkeypatch.setattr(pages_module, "RETURN_SECONDS", 3600.0)


@pytest.fixture
def time_to_return(monkeypatch):
    """A server whose places were taken waits for so long, for a watcher on a slow machine."""
    monkeypatch.setattr(pages_module, "RETURN_SECONDS", 3.0)


def waiting(server, count=1):
    return len(server._shutdown_notice._waiting) == count


def test_a_waiting_watcher_is_notified_of_a_graceful_shutdown():
    with serving() as server, ThreadPoolExecutor(1) as pool:
        answer = pool.submit(get, server, "/watch")
        until(lambda: waiting(server), "a watcher waits")
        server.close()
        assert answer.result().json() == {"status": "stopped"}


def test_a_watcher_is_notified_that_a_signal_ends_the_driver():
    with serving() as server, ThreadPoolExecutor(1) as pool:
        answer = pool.submit(get, server, "/watch")
        until(lambda: waiting(server), "a watcher waits")
        server.close(notice=Notice.TERMINATED)
        assert answer.result().json() == {"status": "terminated"}


def test_a_crash_leaves_a_waiting_watcher_without_an_answer():
    with serving() as server, ThreadPoolExecutor(1) as pool:
        answer = pool.submit(get, server, "/watch")
        until(lambda: waiting(server), "a watcher waits")
        server.close(notice=None)
        assert answer.exception() is not None or answer.result().status_code != 200


def test_all_waiting_watchers_are_notified_before_the_server_closes():
    with serving() as server, ThreadPoolExecutor(MAX_WAITING) as pool:
        answers = [pool.submit(get, server, "/watch") for _ in range(MAX_WAITING)]
        until(lambda: waiting(server, MAX_WAITING), "all wait")
        server.close()
        assert {answer.result().json()["status"] for answer in answers} == {"stopped"}
        with pytest.raises(requests.ConnectionError):
            get(server, "/watch")


def test_the_shutdown_notice_is_sent_even_without_time_to_close():
    with serving() as server, ThreadPoolExecutor(1) as pool:
        answer = pool.submit(get, server, "/watch")
        until(lambda: waiting(server), "a watcher waits")
        server.close(0.0)
        assert answer.result().json() == {"status": "stopped"}


def test_a_watcher_of_a_running_driver_is_answered_after_the_wait(short_wait):
    with serving() as server:
        assert get(server, "/watch").json() == {"status": "running"}


def test_the_fifth_watcher_takes_the_place_of_the_oldest():
    with serving() as server, ThreadPoolExecutor(MAX_WAITING + 1) as pool:
        answers = []
        for count in range(1, MAX_WAITING + 1):
            answers.append(pool.submit(get, server, "/watch"))
            until(lambda count=count: waiting(server, count), "one more waits")
        answers.append(pool.submit(get, server, "/watch"))
        assert answers[0].result(PATIENCE_SECONDS).json() == {"status": "running"}
        assert waiting(server, MAX_WAITING)
        assert get(server, "/livez").status_code == 200
        server.close()
        assert {answer.result().json()["status"] for answer in answers[1:]} == {"stopped"}


@pytest.mark.slow
@pytest.mark.usefixtures("time_to_return")
def test_shutdown_waits_for_a_watcher_whose_place_was_taken():
    """Those who took it may ask again sooner."""
    with serving() as server, ThreadPoolExecutor(MAX_WAITING + 2) as pool:
        for _ in range(MAX_WAITING + 1):
            pool.submit(get, server, "/watch")
        until(lambda: server._shutdown_notice._displaced_at > 0, "a place is taken")
        closing = pool.submit(server.close, PATIENCE_SECONDS)
        until(lambda: server._shutdown_notice.said, "the shutdown notice is set")
        for _ in range(3):
            assert get(server, "/watch").json() == {"status": "stopped"}
        closing.result()


@pytest.mark.usefixtures("short_wait", "long_return")
def test_shutdown_does_not_wait_for_places_taken_earlier():
    clock = Clock()
    notice = ShutdownNotice(clock)
    with ThreadPoolExecutor(MAX_WAITING + 1) as pool:
        for _ in range(MAX_WAITING + 1):
            pool.submit(notice.wait)
    clock.now += pages_module.RETURN_SECONDS
    assert not ended(lambda: notice.say(Notice.STOPPED, NEVER))


@pytest.mark.fault(
    "Readers over HTTP",
    "Neighbours keep all slots at `/watch`, or take them again and again",
    "`querypulse watch` still receives the shutdown notice",
)
@pytest.mark.slow
@pytest.mark.usefixtures("time_to_return")
@pytest.mark.parametrize("again", [False, True], ids=["keep", "again and again"])
def test_neighbours_at_all_places_hide_no_shutdown_notice(again, monkeypatch):
    over, observations, asked = threading.Event(), [], threading.Event()
    ask = watcher_module.await_notice
    monkeypatch.setattr(watcher_module, "await_notice", lambda client: asked.set() or ask(client))

    def occupy(server):
        with suppress(requests.RequestException):
            get(server, "/watch")
            while again and not over.is_set():
                get(server, "/watch")

    with serving() as server, ThreadPoolExecutor(MAX_WAITING) as pool:
        for _ in range(MAX_WAITING):
            pool.submit(occupy, server)
        until(lambda: waiting(server, MAX_WAITING), "all places are taken")
        poller = DriverPoller(
            endpoint_of(server.url, "here"), Access(), 5.0, observations.append, Guard()
        )
        poller.start()
        until(lambda: any(isinstance(one, Polled) for one in observations), "the driver is polled")
        assert asked.wait(PATIENCE_SECONDS)
        until(lambda: server._shutdown_notice._displaced_at > 0, "it takes a place")
        server.close(PATIENCE_SECONDS)
        until(lambda: notices(observations), "the shutdown notice arrives")
        over.set()
        poller.stop()
    assert notices(observations)[0].notice is Notice.STOPPED


def notices(observations):
    return [one for one in observations if isinstance(one, ShuttingDown)]


def test_an_answered_watcher_frees_its_slot(short_wait):
    with serving() as server, ThreadPoolExecutor(MAX_WAITING) as pool:
        for _ in range(2):
            answers = list(pool.map(lambda _: get(server, "/watch"), range(MAX_WAITING)))
            assert {answer.json()["status"] for answer in answers} == {"running"}
        assert waiting(server, 0)


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
        server._shutdown_notice.say(Notice.STOPPED, 0.0)
        answer = get(server, "/livez")
    assert (answer.status_code, answer.text) == (503, "shutting down\n")


def test_the_watch_page_needs_the_token():
    with serving(token="secret") as server:
        assert get(server, "/watch").status_code == 401


def test_a_later_watcher_receives_the_shutdown_notice():
    shutdown_notice = ShutdownNotice(Clock())
    assert not shutdown_notice.say(Notice.STOPPED, 0.0)
    assert shutdown_notice.wait()
    assert shutdown_notice.said


# -- status pages, which yield to watchers ----------------------------------------------------


def test_a_status_page_is_notified_of_a_graceful_shutdown():
    with serving() as server, ThreadPoolExecutor(1) as pool:
        answer = pool.submit(get, server, "/watch/page")
        until(lambda: server._shutdown_notice._pages == 1, "the page waits")
        server.close()
        assert answer.result().json() == {"status": "stopped"}


def test_a_status_page_of_a_running_driver_is_answered_after_the_wait(short_wait):
    with serving() as server:
        assert get(server, "/watch/page").json() == {"status": "running"}


def test_the_third_status_page_is_answered_at_once():
    with serving() as server, ThreadPoolExecutor(MAX_PAGES) as pool:
        for _ in range(MAX_PAGES):
            pool.submit(get, server, "/watch/page")
        until(lambda: server._shutdown_notice._pages == MAX_PAGES, "two pages wait")
        assert get(server, "/watch/page").json() == {"status": "running"}
        server.close()


def test_a_status_page_gets_no_slot_beside_four_watchers():
    with serving() as server, ThreadPoolExecutor(MAX_WAITING) as pool:
        for _ in range(MAX_WAITING):
            pool.submit(get, server, "/watch")
        until(lambda: waiting(server, MAX_WAITING), "four wait")
        assert get(server, "/watch/page").json() == {"status": "running"}
        server.close()


def test_four_watchers_get_slots_before_status_pages():
    with serving() as server, ThreadPoolExecutor(MAX_WAITING + MAX_PAGES) as pool:
        pages = [pool.submit(get, server, "/watch/page") for _ in range(MAX_PAGES)]
        until(lambda: server._shutdown_notice._pages == MAX_PAGES, "two pages wait")
        watchers = [pool.submit(get, server, "/watch") for _ in range(MAX_WAITING)]
        assert {page.result().json()["status"] for page in pages} == {"running"}
        until(lambda: waiting(server, MAX_WAITING), "four watchers wait")
        server.close()
        assert {one.result().json()["status"] for one in watchers} == {"stopped"}


def test_a_status_page_keeps_its_slot_while_another_is_free():
    with serving() as server, ThreadPoolExecutor(2) as pool:
        page = pool.submit(get, server, "/watch/page")
        until(lambda: server._shutdown_notice._pages == 1, "the page waits")
        pool.submit(get, server, "/watch")
        until(lambda: waiting(server), "a watcher waits")
        assert not page.done()
        server.close()
        assert page.result().json() == {"status": "stopped"}
