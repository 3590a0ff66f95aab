"""A real Alertmanager accepts our alerts, shows them, and announces only real ends."""

import time

import pytest
from support.patience import PATIENCE_SECONDS, until
from support.prometheus import Notifications, RealAlertmanager
from support.receiver_incidents import alert, holding, incident
from support.receivers import at

from querypulse.alerting.alert import Incident, incident_key, incident_labels
from querypulse.alerting.receivers import alertmanager
from querypulse.alerting.receivers.webhook import message

pytestmark = [pytest.mark.alertmanager, pytest.mark.slow]


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    folder = tmp_path_factory.mktemp("alertmanager")
    with Notifications() as reported, RealAlertmanager(folder, reported) as real:
        yield real


@pytest.fixture
def receiver(real):
    made = at("alertmanager", real.url, external_url="http://127.0.0.1:9719/")
    yield made
    made.close()


def fresh(*queries, ends_at=None, **texts):
    """An incident that began a minute ago."""
    return incident(*queries, starts_at=time.time() - 60, ends_at=ends_at, **texts)


def test_firing_alert_is_shown_and_its_end_is_announced(real, receiver):
    sent = fresh("shown", stack='a\n"b" <c> é')
    receiver.send(sent, time.time())
    firing = real.reported.wait_until_said("shown", "firing")
    shown = real.alerts()["shown"]

    assert shown["labels"] == sent.alerts[0].labels
    assert shown["annotations"] == sent.alerts[0].annotations
    assert shown["generatorURL"] == "http://127.0.0.1:9719"
    assert firing["alerts"][0]["annotations"]["stack"] == 'a\n"b" <c> é'

    receiver.send(incident("shown", starts_at=sent.starts_at, ends_at=time.time()), time.time())
    real.reported.wait_until_said("shown", "resolved")
    assert "shown" not in real.alerts()


def test_only_a_warning_that_is_not_repeated_lapses_when_the_driver_falls_silent(real, receiver):
    """The critical alert of a dead driver stays.

    A warning that lapses sooner than it is notified is never announced, so several are posted: on a
    slow machine a later one is notified in time.
    """
    warning = {"name": "StreamingQueryLagging", "severity": "warning"}
    repeated = fresh("still_lags", **warning)
    lapsed = time.time() - alertmanager.LAPSE_SECONDS
    receiver.send(repeated, lapsed + 5)
    receiver.send(repeated, time.time())
    receiver.send(fresh("dead"), lapsed + 5)
    for seconds in (5, 20, 60):
        receiver.send(fresh(f"lags for {seconds} s", **warning), lapsed + seconds)
    for query in ("dead", "still_lags"):
        real.reported.wait_until_said(query, "firing")
    ends = {(f"lags for {seconds} s", "resolved") for seconds in (5, 20, 60)}
    until(lambda: ends & set(real.reported.said()), "a warning lapses", 3 * PATIENCE_SECONDS)

    assert {("dead", "resolved"), ("still_lags", "resolved")}.isdisjoint(real.reported.said())
    assert {"dead", "still_lags"} <= set(real.alerts())


def test_alerts_of_one_incident_end_independently(real, receiver):
    both = fresh("first", "second")
    receiver.send(both, time.time())
    for query in ("first", "second"):
        real.reported.wait_until_said(query, "firing")
    began = both.starts_at
    partly = holding(
        alert("first", starts_at=began, ends_at=time.time()), alert("second", starts_at=began)
    )
    receiver.send(partly, time.time())
    real.reported.wait_until_said("first", "resolved")

    assert ("second", "resolved") not in real.reported.said()
    assert "second" in real.alerts()


def test_resolve_of_an_unknown_alert_notifies_nobody(real, receiver):
    """So a driver may resolve what an earlier driver possibly left open."""
    receiver.send(fresh("never_fired", ends_at=time.time()), time.time())
    receiver.send(fresh("fired_later"), time.time())
    real.reported.wait_until_said("fired_later", "firing")

    assert "never_fired" not in {query for query, _ in real.reported.said()}


def test_new_process_ends_only_what_nobody_posts_any_more(real, receiver, monkeypatch):
    for query in ("left", "lives"):
        receiver.send(fresh(query), time.time())
        real.reported.wait_until_said(query, "firing")
    receiver.send(stale("lives"), time.time())
    monkeypatch.setattr(alertmanager, "ABANDONED_SECONDS", 0.0)
    receiver.send(stale("left"), time.time())
    receiver.send(stale("never"), time.time())
    real.reported.wait_until_said("left", "resolved")

    assert ("lives", "resolved") not in real.reported.said()
    assert "lives" in real.alerts()


def stale(query):
    labels = incident_labels("etl", query, {})
    return Incident(incident_key(labels, "critical"), labels, "critical", ())


def test_our_webhook_message_matches_alertmanagers_own(real, receiver):
    """Common labels, fingerprints, statuses and types equal Alertmanager's."""
    sent = fresh("compared")
    receiver.send(sent, time.time())
    theirs = real.reported.wait_until_said("compared", "firing")
    ours = message(sent, "hook")

    assert set(ours) <= set(theirs)
    assert {name: type(value) for name, value in ours.items()} == {
        name: type(theirs[name]) for name in ours
    }
    own_links = {"externalURL", "groupKey", "groupLabels", "alerts"}
    assert {name: theirs[name] for name in ours.keys() - own_links} == {
        name: ours[name] for name in ours.keys() - own_links
    }
    for name in ("status", "labels", "annotations", "fingerprint"):
        assert ours["alerts"][0][name] == theirs["alerts"][0][name], name
