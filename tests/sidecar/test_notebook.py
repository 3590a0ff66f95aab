"""A notebook shows a sidecar as a table of its queries: escaped, bounded, the unhealthy first."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from querypulse.exporter.status import AlertStatus, QueryStatus, Status
from querypulse.sidecar import Settings, Sidecar
from querypulse.sidecar.sidecar import MAX_ROWS, notebook_page


def query(name, **values):
    blank = dict.fromkeys(QueryStatus.__struct_fields__)
    return QueryStatus(**{**blank, "name": name, "state": "running", "reason": "", **values})


def alert(query, alertname="StreamingQueryFailed"):
    return AlertStatus(
        {"query": query, "alertname": alertname}, {}, "2026-11-24T00:00:00.000+00:00"
    )


def shown(*queries, alerts=(), url=None, app="orders"):
    blank = dict.fromkeys(Status.__struct_fields__)
    return notebook_page(Status(**{**blank, "app": app, "queries": queries, "alerts": alerts}), url)


class Cells(HTMLParser):
    """The text of each ``td``, and the elements that are open at the end."""

    def __init__(self, text):
        super().__init__()
        self.cells, self.open, self.tags = [], [], set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.tags.add(tag)
        if tag == "td":
            self.cells.append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] == ["td"]:
            self.cells[-1] += data


def cells(text):
    parsed = Cells(text)
    assert parsed.open == []
    return parsed.cells


def test_a_row_has_state_reason_age_and_alerts():
    gold = query("gold", state="failed", reason="boom", last_commit_age_seconds=70.0)

    assert cells(shown(gold, alerts=(alert("gold"), alert("gold", "StreamingQueryFlapping")))) == [
        "gold",
        "failed",
        "boom",
        "70 s ago",
        "StreamingQueryFailed, StreamingQueryFlapping",
    ]


def test_what_is_not_there_is_empty():
    assert cells(shown(query("gold"))) == ["gold", "running", "", "", ""]
    assert cells(shown()) == ["no query yet"]


def test_the_unhealthy_come_first_and_the_order_stays():
    text = shown(query("a"), query("b"), query("c"), query("d"), alerts=(alert("d"), alert("b")))

    assert cells(text)[::5] == ["b", "d", "a", "c"]


def test_text_is_escaped():
    evil = '"><script>alert(1)</script>&'
    text = shown(
        query(evil, reason=evil, state=evil),
        alerts=(alert(evil, evil), alert("*", evil)),
        url=f"http://h/{evil}",
        app=evil,
    )

    assert cells(text)[:3] == [evil] * 3
    assert Cells(text).tags <= {
        "div", "p", "b", "a", "table", "thead", "tbody", "tr", "th", "td"
    }  # fmt: skip


def test_rows_are_bounded():
    text = shown(*(query(f"q{number}") for number in range(MAX_ROWS + 7)))

    assert len(cells(text)) == MAX_ROWS * 5
    assert "and 7 more" in text
    assert "more" not in shown(*(query(f"q{number}") for number in range(MAX_ROWS)))


def test_alerts_of_the_whole_driver_follow_the_table():
    text = shown(query("a"), alerts=(alert("*", "StreamingDriverDown"), alert("a")))

    assert re.search(r"other alerts: StreamingDriverDown</p>", text)
    assert "other alerts" not in shown(query("a"), alerts=(alert("a"),))


@pytest.mark.usefixtures("clean_environment")
def test_a_sidecar_that_watches_nothing_says_so():
    sidecar = Sidecar(Settings())
    assert "not started" in sidecar._repr_html_()
    assert repr(sidecar) == "<Sidecar not started>"

    sidecar.close()
    assert "closed" in sidecar._repr_html_()
    assert repr(sidecar) == "<Sidecar closed>"
