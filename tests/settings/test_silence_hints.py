"""A silence that matches nothing is probably a typo; the hint suggests the closest name."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from querypulse.alerting.rules import ALERT_NAMES
from querypulse.settings.settings import SilenceSettings
from querypulse.settings.silencing import unmatched

NAMES = ("billing", "bronze-eu", "bronze-us")
UNTIL = datetime.now(timezone.utc) + timedelta(hours=1)


def hint(queries, alertname="*", known=NAMES):
    return unmatched(SilenceSettings(queries=queries, until=UNTIL, alertname=alertname), known)


@pytest.mark.parametrize("alertname", ["*", ALERT_NAMES[0], "Query*"])
def test_matching_silence_gives_no_hint(alertname):
    patterns = ["billing", "bronze*", "*", "b?lling", "*-us"]

    assert {hint(queries, alertname) for queries in patterns} == {""}


def test_hint_suggests_a_query():
    assert hint("bilingg") == "query 'bilingg' matches nothing now; did you mean 'billing'?"


def test_hint_suggests_an_alert():
    typo = ALERT_NAMES[0][:-1]

    assert (
        hint("*", typo) == f"alert {typo!r} matches nothing now; did you mean {ALERT_NAMES[0]!r}?"
    )


def test_hint_names_both_query_and_alert():
    assert hint("nowhere", "Nothing") == (
        "alert 'Nothing' matches nothing now; query 'nowhere' matches nothing now"
    )


def test_unknown_queries_limit_the_hint_to_the_alert():
    assert hint("bilingg", known=None) == ""
    assert "'Nothing' matches nothing" in hint("bilingg", "Nothing", known=None)


def test_star_matches_a_driver_without_queries():
    assert hint("*", known=()) == ""
    assert hint("a", known=()) == "query 'a' matches nothing now"
