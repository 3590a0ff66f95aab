"""Who starts a job reads in its log what is watched and who is notified, or that nobody is."""

from __future__ import annotations

import pytest

from querypulse.sidecar.start_lines import watching


@pytest.mark.parametrize(
    ("receivers", "page", "text"),
    [
        (("oncall", "team"), "http://d:9719",
         'watching "orders": 2 receivers (oncall, team), status page at http://d:9719'),
        (("oncall",), None, 'watching "orders": 1 receiver (oncall), no status page'),
        ((), "http://d:9719", 'watching "orders": no receiver, status page at http://d:9719'),
    ],
)  # fmt: skip
def test_one_line_says_what_is_watched_and_who_is_notified(receivers, page, text):
    assert watching("orders", receivers, page) == text
