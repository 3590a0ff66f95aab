"""The page of all drivers: as a document, as it is served, and in a real browser."""

from __future__ import annotations

from contextlib import contextmanager

import msgspec
import pytest
from msgspec.structs import replace
from support.browser import AUDIT
from support.exporter_http import get
from support.fleets import alert, seen_driver, seen_fleet
from support.patience import WALL

from querypulse.core.guard import Guard
from querypulse.exporter.pages import Content
from querypulse.exporter.server import HttpServer
from querypulse.exporter.status import FreshnessStatus
from querypulse.watch.client import DriverAlert, DriverFreshness, DriverQuery
from querypulse.watch.fleet import Seen, SeenPeer, fleet_of
from querypulse.watch.page import page_of, pages_of, sentence

HOSTILE = "<script>alert(1)</script>\" onload='x' \u202e"
LONG = "w" * 300
WIDTHS = (375, 481, 1280)


@contextmanager
def served(seen, token=None):
    content = Content(lambda: None, lambda: True, own=pages_of(lambda: seen))
    server = HttpServer("127.0.0.1", 0, content, Guard(), token=lambda: token)
    server.start()
    try:
        yield server
    finally:
        server.close(5.0)


def hostile_fleet(text=HOSTILE):
    """Drivers that have ``text`` wherever they choose one."""
    entry = {**alert(text, text, summary=text, incident_url=f"javascript:{text}"), "cause": text}
    drivers = tuple(
        seen_driver(
            number,
            name=f"{number}{text}",
            url=f"javascript:{text}",
            detail=text,
            labels={text: text, "team": f"{number}{text}"},
            alerts=tuple(msgspec.convert([entry], list[DriverAlert])),
        )
        for number in (0, 1, 20, 21)
    )
    return Seen(at=WALL, drivers=drivers, peers=(SeenPeer(text, text),))


# -- as a document ----------------------------------------------------------------------------


def test_the_page_of_five_hundred_drivers_is_below_half_a_megabyte():
    assert len(page_of(fleet_of(seen_fleet())).encode()) < 500_000


def test_the_page_of_five_hundred_failing_drivers_is_below_a_megabyte():
    drivers = tuple(seen_driver(number * 100) for number in range(500))
    assert len(page_of(fleet_of(Seen(at=WALL, drivers=drivers))).encode()) < 1_000_000


def test_nothing_that_a_driver_chooses_is_markup_or_a_link():
    page = page_of(fleet_of(hostile_fleet()))
    assert "<script" not in page
    assert "onload='" not in page
    assert 'href="javascript' not in page
    assert "\u202e" not in page


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (0, "No driver is watched yet."),
        (1, "1 of 1 driver are up; 1 incident is open."),
        (500, "490 of 500 drivers are up, 5 down; 60 incidents are open."),
    ],
)
def test_the_first_sentence_says_how_it_is(count, words):
    assert sentence(fleet_of(seen_fleet(count))) == words


def test_a_healthy_fleet_has_no_table_of_trouble():
    drivers = tuple(seen_driver(number) for number in range(50, 60))
    page = page_of(fleet_of(Seen(at=WALL, drivers=drivers)))
    assert "no incident is open" in page
    assert 'id="incidents"' not in page
    assert 'id="drivers"' not in page


def test_what_is_left_of_a_promise_of_freshness_is_shown_the_worst_first():
    shown = seen_driver(50)
    queries = tuple(
        replace(query, freshness=DriverFreshness(7200.0, left))
        for query, left in zip(shown.queries, (3600.0, -60.0), strict=False)
    )
    page = page_of(fleet_of(Seen(at=WALL, drivers=(replace(shown, queries=queries),))))

    assert (
        "query_1: freshness budget overspent by 60 s, "
        "query_0: 60 min of 2 h of its freshness budget left<"
    ) in page


def test_a_watcher_that_holds_back_says_so():
    seen = seen_fleet(3, notifies=False, peers=(SeenPeer("http://other:9700", "sends"),))
    page = page_of(fleet_of(seen))
    assert "holds its notifications" in page
    assert "peer http://other:9700: sends" in page


@pytest.mark.parametrize(
    ("left", "words"),
    [
        (23_400.0, "bronze: 6 h 30 min of 7 h 12 min of its freshness budget left"),
        (0.0, "bronze: 0 s of 7 h 12 min of its freshness budget left"),
        (-7200.0, "bronze: freshness budget overspent by 2 h"),
    ],
)
def test_a_driver_that_needs_somebody_shows_what_is_left_of_its_promises(left, words):
    """As ``/status`` of a driver has it."""
    promise = FreshnessStatus(
        age_seconds=5.0,
        allowed_seconds=600.0,
        objective=0.99,
        planned=False,
        good_seconds=90.0,
        total_seconds=100.0,
        budget_seconds=25_920.0,
        budget_left_seconds=left,
    )
    query = {"name": "bronze", "state": "failed", "freshness": msgspec.to_builtins(promise)}
    driver = seen_driver(20, queries=(msgspec.convert(query, DriverQuery),))
    assert words in page_of(fleet_of(Seen(at=WALL, drivers=(driver,))))


@pytest.mark.parametrize(
    "starts_at", ["9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59", "yesterday", ""]
)
def test_an_alert_that_began_at_no_time_of_the_calendar_spoils_no_page(starts_at):
    shown = {**alert("StreamingQueryFailed", "gold", summary="it failed"), "starts_at": starts_at}
    driver = seen_driver(20, alerts=(msgspec.convert(shown, DriverAlert),))
    assert "it failed" in page_of(fleet_of(Seen(at=WALL, drivers=(driver,))))


# -- as it is served --------------------------------------------------------------------------


def test_a_watcher_serves_its_page_a_document_and_json():
    with served(seen_fleet(100)) as server:
        status = get(server, "/status").json()
        document = get(server, "/fleet.html")
        assert get(server, "/livez").status_code == get(server, "/readyz").status_code == 200
    assert len(status["drivers"]) == 100
    assert status["notifies"] is True
    assert "default-src 'none'" in document.headers["Content-Security-Policy"]
    assert "app-000" in document.text


def test_only_the_page_without_data_is_readable_without_the_token():
    with served(seen_fleet(10), token="secret") as server:
        shell = get(server, "/")
        assert shell.status_code == 200
        assert "app-000" not in shell.text
        for path in ("/fleet.html", "/status"):
            assert get(server, path).status_code == 401
            assert get(server, path, Authorization="Bearer secret").status_code == 200


# -- in a browser -----------------------------------------------------------------------------


@pytest.fixture
def opened(windows):
    """Opens a served page, and waits until it shows something."""

    def open_page(server, **options):
        page = windows.open(server.url, **options)
        page.wait_for_selector("#sentence")
        return page

    return open_page


@pytest.mark.browser
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("text", ["", LONG], ids=["usual", "long"])
def test_nothing_is_wider_than_the_window(opened, width, text):
    with served(hostile_fleet(text) if text else seen_fleet(100)) as server:
        page = opened(server, viewport={"width": width, "height": 800})
        page.evaluate("for (const part of document.querySelectorAll('details')) part.open = true")
        assert page.evaluate("document.documentElement.scrollWidth") == width


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast_of_all_text_is_enough(opened, scheme):
    with served(seen_fleet(100)) as server:
        page = opened(server, color_scheme=scheme)
        page.evaluate("for (const part of document.querySelectorAll('details')) part.open = true")
        assert page.evaluate(AUDIT, "false") == []


@pytest.mark.browser
def test_what_a_driver_chooses_runs_nothing(opened):
    with served(hostile_fleet()) as server:
        assert opened(server).locator("#main script, #main a[href^=javascript]").count() == 0


@pytest.mark.browser
def test_a_filter_leaves_what_has_all_its_words(opened):
    with served(seen_fleet(100)) as server:
        page = opened(server)
        page.fill("#filter", "team=risk app-00")
        rows = page.locator("#drivers tbody tr:visible, #healthy tbody tr:visible")
        assert {name[:7] for name in rows.locator("a").all_inner_texts()} == {"app-003", "app-008"}
        page.fill("#filter", "nothing like this")
        assert page.inner_text("#shown") == "0 lines found"


@pytest.mark.browser
def test_a_label_is_chosen_with_the_keyboard(opened):
    with served(seen_fleet(100)) as server:
        page = opened(server)
        page.locator("button.pick", has_text="team=orders").press("Enter")
        assert page.input_value("#filter") == "team=orders"


@pytest.mark.browser
def test_a_refresh_keeps_what_the_reader_has_opened_and_the_focus(opened):
    seen = [seen_fleet(100)]
    content = Content(lambda: None, lambda: True, own=pages_of(lambda: seen[0]))
    server = HttpServer("127.0.0.1", 0, content, Guard())
    server.start()
    try:
        page = opened(server)
        page.evaluate("document.getElementById('cause-1').open = true")
        page.locator("#drivers a", has_text="app-020").focus()
        seen[0] = seen_fleet(101)
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        page.wait_for_selector("#sentence:has-text('101')")
        assert page.evaluate("document.getElementById('cause-1').open")
        assert page.evaluate("document.activeElement.textContent") == "app-020"
    finally:
        server.close(5.0)


@pytest.mark.browser
def test_the_page_asks_for_the_token_and_shows_the_drivers_with_it(opened, windows):
    with served(seen_fleet(10), token="secret") as server:
        page = windows.open(server.url)
        page.wait_for_selector("#token-form:visible")
        page.fill("#token", "secret")
        page.press("#token", "Enter")
        page.wait_for_selector("#sentence")


@pytest.mark.browser
def test_the_document_works_without_a_script(windows):
    with served(seen_fleet(100)) as server:
        page = windows.open(f"{server.url}/fleet.html", java_script_enabled=False)
        page.click("#healthy-fold summary")
        assert page.locator("#healthy a").first.is_visible()
