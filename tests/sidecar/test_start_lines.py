"""The first log line of a job names the app, its receivers and its status page."""

from __future__ import annotations

import pytest

from querypulse.settings.receivers import watching


@pytest.mark.parametrize(
    ("receivers", "page", "text"),
    [
        (("oncall", "team"), "http://d:9719",
         'watching "orders": 2 receivers (oncall, team), status page at http://d:9719'),
        (("oncall",), None, 'watching "orders": 1 receiver (oncall), no status page'),
        ((), "http://d:9719", 'watching "orders": no receiver, status page at http://d:9719'),
    ],
)  # fmt: skip
def test_start_line_names_app_receivers_and_status_page(receivers, page, text):
    assert watching("orders", receivers, page) == text
