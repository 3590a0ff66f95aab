"""What a notebook shows for a sidecar."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace
from support.published_states import full_published, published
from support.story import Story

from querypulse.exporter.status import MAX_ROWS, notebook_page, status
from querypulse.sidecar import Settings, Sidecar


def rows(shown, url=None):
    """The text of each row but the first."""
    page = notebook_page(status(shown), url)
    return [re.findall("<td>(.*?)</td>", row) for row in page.split("<tr>")[2:]]


def test_unhealthy_queries_come_first_with_reason_age_and_alerts():
    dead, busy, absent = rows(full_published())

    assert dead[:2] == ["dead", "failed"]
    assert dead[3:] == ["", "StreamingQueryFailed"]
    assert busy == ["busy", "running", "", "30 s ago", ""]
    assert absent[0] == "absent"


def test_text_is_escaped():
    shown = replace(published(Story().started("<script>", at=0)), app="<b>&")
    page = notebook_page(status(shown), "http://h/?a=1&b=2")

    assert "<script>" not in page
    assert "&lt;b&gt;&amp;" in page
    assert 'href="http://h/?a=1&amp;b=2"' in page


def test_rows_are_bounded_and_alerts_of_the_driver_follow():
    story = Story()
    for number in range(MAX_ROWS + 3):
        story.started(f"q{number}", at=0)
    shown = published(story)
    (alert,) = full_published().alerts
    driver = replace(alert, labels={**alert.labels, "query": "*"})
    *queries, more, last = rows(replace(shown, alerts=(driver,)))

    assert len(queries) == MAX_ROWS
    assert more[0] == "and 3 more"
    assert (last[0], last[-1]) == ("*", "StreamingQueryFailed")


@pytest.mark.usefixtures("clean_environment")
def test_sidecar_that_watches_nothing_says_so():
    sidecar = Sidecar(Settings(http_port=-1))
    assert (repr(sidecar), "not started" in sidecar._repr_html_()) == (
        "<Sidecar not started>",
        True,
    )
    sidecar.close()
    assert (repr(sidecar), "closed" in sidecar._repr_html_()) == ("<Sidecar closed>", True)
