"""``GET /watch``: whoever waits there is told of a close in good order, and costs nobody a place."""

from __future__ import annotations

import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests
from support.clock import Clock
from support.queries import until
from support.watching import address, get, serving

from querypulse.exporter import shutdown_notice
from querypulse.exporter.shutdown_notice import MAX_PAGES, MAX_WAITING, Notice, ShutdownNotice


@pytest.fixture
def short_wait(monkeypatch):
    """Questions at ``/watch`` wait 0.2 s at most."""
    monkeypatch.setattr(shutdown_notice, "WAIT_SECONDS", 0.2)


def waiting(server, count=1):
    return server._shutdown_notice._waiting == count


def test_a_watcher_is_reported_of_a_close_in_good_order_at_once():
    with serving() as server, ThreadPoolExecutor(1) as pool:
        answer = pool.submit(get, server, "/watch")
        until(lambda: waiting(server), "somebody waits")
        began = time.monotonic()
        server.close()
        assert answer.result().json() == {"status": "stopped"}
        assert time.monotonic() - began < 2


def test_a_watcher_is_reported_that_a_signal_ends_the_driver():
    with serving() as server, ThreadPoolExecutor(1) as pool:
        answer = pool.submit(get, server, "/watch")
        until(lambda: waiting(server), "somebody waits")
        server.close(notice=Notice.TERMINATED)
        assert answer.result().json() == {"status": "terminated"}


def test_a_crash_leaves_who_waits_without_an_answer():
    with serving() as server, ThreadPoolExecutor(1) as pool:
        answer = pool.submit(get, server, "/watch")
        until(lambda: waiting(server), "somebody waits")
        server.close(notice=None)
        assert answer.exception() is not None or answer.result().status_code != 200


def test_all_who_wait_are_reported_before_the_server_goes():
    with serving() as server, ThreadPoolExecutor(MAX_WAITING) as pool:
        answers = [pool.submit(get, server, "/watch") for _ in range(MAX_WAITING)]
        until(lambda: waiting(server, MAX_WAITING), "all wait")
        server.close()
        assert {answer.result().json()["status"] for answer in answers} == {"stopped"}
        with pytest.raises(requests.ConnectionError):
            get(server, "/watch")


def test_the_shutdown_notice_is_sent_though_no_time_is_left_to_close():
    with serving() as server, ThreadPoolExecutor(1) as pool:
        answer = pool.submit(get, server, "/watch")
        until(lambda: waiting(server), "somebody waits")
        server.close(0.0)
        assert answer.result().json() == {"status": "stopped"}


def test_who_asks_while_all_goes_on_is_answered_after_a_while(short_wait):
    with serving() as server:
        began = time.monotonic()
        assert get(server, "/watch").json() == {"status": "running"}
        assert time.monotonic() - began >= 0.2


def test_the_fifth_who_asks_is_answered_at_once_and_others_are_served():
    with serving() as server, ThreadPoolExecutor(MAX_WAITING) as pool:
        for _ in range(MAX_WAITING):
            pool.submit(get, server, "/watch")
        until(lambda: waiting(server, MAX_WAITING), "four wait")
        began = time.monotonic()
        assert get(server, "/watch").json() == {"status": "running"}
        assert get(server, "/livez").status_code == 200
        assert time.monotonic() - began < 2
        server.close()


def test_a_endpoint_is_free_again_when_its_time_is_over(short_wait):
    with serving() as server, ThreadPoolExecutor(MAX_WAITING) as pool:
        for _ in range(2):
            answers = list(pool.map(lambda _: get(server, "/watch"), range(MAX_WAITING)))
            assert {answer.json()["status"] for answer in answers} == {"running"}
        assert waiting(server, 0)


def test_a_watcher_between_two_questions_is_waited_for(short_wait):
    with serving() as server, ThreadPoolExecutor(1) as pool:
        assert get(server, "/watch").json() == {"status": "running"}
        closing = threading.Thread(target=server.close)
        closing.start()
        until(lambda: server._shutdown_notice.said, "the farewell is said")
        answer = pool.submit(get, server, "/watch")
        assert answer.result().json() == {"status": "stopped"}
        closing.join()


def test_a_watcher_who_does_not_come_back_is_not_waited_for_long(short_wait):
    with serving() as server:
        get(server, "/watch")
        began = time.monotonic()
        server.close()
        assert time.monotonic() - began < 1


def test_nobody_is_waited_for_where_nobody_watched():
    with serving() as server, socket.create_connection(address(server)):
        began = time.monotonic()
        server.close()
        assert time.monotonic() - began < 1


def test_a_server_that_closes_is_not_live_any_more():
    with serving() as server:
        assert get(server, "/livez").status_code == 200
        server._shutdown_notice.say(Notice.STOPPED, 0.0)
        answer = get(server, "/livez")
    assert (answer.status_code, answer.text) == (503, "shutting down\n")


def test_watch_needs_the_token_as_every_page_does():
    with serving(token="secret") as server:
        assert get(server, "/watch").status_code == 401


def test_a_shutdown_notice_is_received_by_those_who_come_later():
    shutdown_notice = ShutdownNotice(Clock())
    assert not shutdown_notice.say(Notice.STOPPED, 0.0)
    assert shutdown_notice.wait()
    assert shutdown_notice.said


# -- status pages, which give way -------------------------------------------------------------


def test_a_status_page_is_reported_of_a_close_in_good_order_too():
    with serving() as server, ThreadPoolExecutor(1) as pool:
        answer = pool.submit(get, server, "/watch/page")
        until(lambda: server._shutdown_notice._pages == 1, "the page waits")
        server.close()
        assert answer.result().json() == {"status": "stopped"}


def test_a_page_is_answered_while_all_goes_on_after_a_while(short_wait):
    with serving() as server:
        began = time.monotonic()
        assert get(server, "/watch/page").json() == {"status": "running"}
        assert time.monotonic() - began >= 0.2


def test_a_third_page_is_answered_at_once():
    with serving() as server, ThreadPoolExecutor(MAX_PAGES) as pool:
        for _ in range(MAX_PAGES):
            pool.submit(get, server, "/watch/page")
        until(lambda: server._shutdown_notice._pages == MAX_PAGES, "two pages wait")
        began = time.monotonic()
        assert get(server, "/watch/page").json() == {"status": "running"}
        assert time.monotonic() - began < 2
        server.close()


def test_a_page_finds_no_endpoint_where_four_watch():
    with serving() as server, ThreadPoolExecutor(MAX_WAITING) as pool:
        for _ in range(MAX_WAITING):
            pool.submit(get, server, "/watch")
        until(lambda: waiting(server, MAX_WAITING), "four wait")
        assert get(server, "/watch/page").json() == {"status": "running"}
        server.close()


def test_four_watchers_are_reported_though_pages_came_first():
    with serving() as server, ThreadPoolExecutor(MAX_WAITING + MAX_PAGES) as pool:
        pages = [pool.submit(get, server, "/watch/page") for _ in range(MAX_PAGES)]
        until(lambda: server._shutdown_notice._pages == MAX_PAGES, "two pages wait")
        watchers = [pool.submit(get, server, "/watch") for _ in range(MAX_WAITING)]
        assert {page.result().json()["status"] for page in pages} == {"running"}
        until(lambda: waiting(server, MAX_WAITING), "four watch")
        server.close()
        assert {one.result().json()["status"] for one in watchers} == {"stopped"}


def test_a_page_keeps_its_endpoint_while_there_is_another():
    with serving() as server, ThreadPoolExecutor(2) as pool:
        page = pool.submit(get, server, "/watch/page")
        until(lambda: server._shutdown_notice._pages == 1, "the page waits")
        pool.submit(get, server, "/watch")
        until(lambda: waiting(server), "somebody watches")
        assert not page.done()
        server.close()
        assert page.result().json() == {"status": "stopped"}
