"""A silence that matches nothing is likely a slip, and says what may be meant."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from querypulse.sidecar.configuration.silence_settings import SilenceSettings
from querypulse.sidecar.silence_hints import ALERTS, unmatched

NAMES = ("billing", "bronze-eu", "bronze-us")
UNTIL = datetime.now(timezone.utc) + timedelta(hours=1)


def hint(queries, alertname="*", known=NAMES):
    return unmatched(SilenceSettings(queries=queries, until=UNTIL, alertname=alertname), known)


@pytest.mark.parametrize("queries", ["billing", "bronze*", "*", "b?lling", "*-us"])
@pytest.mark.parametrize("alertname", ["*", ALERTS[0], "Query*"])
def test_what_matches_something_is_no_slip(queries, alertname):
    assert hint(queries, alertname) == ""


def test_the_query_that_may_be_meant_is_named():
    """B13"""
    assert hint("bilingg") == "query 'bilingg' matches nothing now; did you mean 'billing'?"


def test_the_alert_that_may_be_meant_is_named():
    """B13"""
    slip = ALERTS[0][:-1]

    assert hint("*", slip) == f"alert {slip!r} matches nothing now; did you mean {ALERTS[0]!r}?"


def test_both_slips_are_named_at_once():
    assert hint("nowhere", "Nothing") == (
        "alert 'Nothing' matches nothing now; query 'nowhere' matches nothing now"
    )


def test_where_no_queries_are_known_only_the_alert_is_polled_at():
    assert hint("bilingg", known=None) == ""
    assert "'Nothing' matches nothing" in hint("bilingg", "Nothing", known=None)


def test_a_driver_without_queries_knows_the_whole_driver():
    assert hint("*", known=()) == ""
    assert hint("a", known=()) == "query 'a' matches nothing now"
