"""An alert's identity, which every receiver relies on."""

from msgspec.structs import replace

from querypulse.alerting import Alert
from querypulse.alerting.alert import Alerts
from querypulse.alerting.finding import Finding, Severity, State


def alert(query: str) -> Alert:
    return Alert({"alertname": "QueryFailed", "app": "etl", "query": query}, {}, 1000.0)


def finding(query="bronze", reason="died") -> Finding:
    return Finding(
        "QueryFailed", query, Severity.CRITICAL, State.FAILED, reason, "summary", {"window": "60 s"}
    )


def test_the_key_is_readable():
    """Product, application, query, alert."""
    assert alert("bronze").key == "querypulse/etl/bronze/QueryFailed"


def test_a_long_key_is_hashed_and_stays_distinct():
    """PagerDuty takes 255 characters; two long names must not become one incident."""
    long = "q" * 300
    keys = {alert(long).key, alert(long + "x").key}

    assert len(keys) == 2
    assert all(len(key) <= 255 for key in keys)
    assert alert(long).key == alert(long).key


def test_the_longest_plain_key_stays_plain():
    """255 characters are allowed."""
    fits = "q" * (255 - len(alert("").key))

    assert alert(fits).key.endswith(f"/{fits}/QueryFailed")
    assert not alert(fits + "q").key.endswith("/QueryFailed")


def test_an_alert_begins_once():
    """While its finding stays, the beginning stays, though the words change."""
    alerts = Alerts("etl", "https://runbooks/")
    (first,) = alerts.update([finding()], wall=1000.0)
    (second,) = alerts.update([finding(reason="died again")], wall=1060.0)

    assert (first.starts_at, second.starts_at) == (1000.0, 1000.0)
    assert second.annotations["reason"] == "died again"
    assert second.annotations["runbook_url"] == "https://runbooks/QueryFailed.md"


def test_an_alert_that_went_begins_anew():
    """The next occurrence is another one."""
    alerts = Alerts("etl", "https://runbooks")
    alerts.update([finding()], wall=1000.0)

    assert alerts.update([], wall=1060.0) == ()
    assert alerts.update([finding()], wall=1120.0)[0].starts_at == 1120.0


def test_labels_are_the_identity_and_nothing_more():
    """No run, no batch, no text of an error."""
    (one,) = Alerts("etl", "https://runbooks").update([finding()], wall=1000.0)

    assert set(one.labels) == {"alertname", "app", "query", "severity"}
    assert replace(one, annotations={}).key == one.key
