"""A real Alertmanager accepts what we send, shows it, and tells people of its end only when it
has ended.
"""

import time

import pytest
from support.alertmanager import Notifications, RealAlertmanager
from support.receiver_incidents import alert, incident

from querypulse.alerting.alert import Incident
from querypulse.alerting.receivers.alertmanager import Alertmanager
from querypulse.alerting.receivers.alertmanager_message import message

pytestmark = [pytest.mark.alertmanager, pytest.mark.slow]

LAPSED_SOON_SECONDS = 4 * 60 - 4
"""A warning posted so long ago lapses in four seconds."""


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    with Notifications() as reported:
        alertmanager = RealAlertmanager(tmp_path_factory.mktemp("alertmanager"), reported)
        try:
            alertmanager.wait_until_ready()
            yield alertmanager
        finally:
            alertmanager.stop()


@pytest.fixture
def receiver(real):
    receiver = Alertmanager([real.url], external_url="http://127.0.0.1:9719/")
    yield receiver
    receiver.close()


def fresh(*queries, ends_at=None, **words):
    """An incident that began a minute ago."""
    return incident(*queries, starts_at=time.time() - 60, ends_at=ends_at, **words)


def test_it_shows_what_fires_and_reports_of_its_end(real, receiver):
    reported = fresh("shown", stack='a\n"b" <c> é')
    receiver.send(reported, time.time())
    firing = real.reported.wait_until_said("shown", "firing")
    shown = real.alerts()["shown"]

    assert shown["labels"] == reported.alerts[0].labels
    assert shown["annotations"] == reported.alerts[0].annotations
    assert shown["generatorURL"] == "http://127.0.0.1:9719/"
    assert firing["alerts"][0]["annotations"]["stack"] == 'a\n"b" <c> é'

    receiver.send(incident("shown", starts_at=reported.starts_at, ends_at=time.time()), time.time())
    real.reported.wait_until_said("shown", "resolved")
    assert "shown" not in real.alerts()


def test_a_dead_query_is_not_said_to_be_well_when_the_driver_says_no_more(real, receiver):
    """The driver that died with it sends nothing again: the warning beside it lapses, it stays."""
    long_ago = time.time() - LAPSED_SOON_SECONDS
    receiver.send(fresh("lags", name="StreamingQueryLagging", severity="warning"), long_ago)
    receiver.send(fresh("dead"), long_ago)
    real.reported.wait_until_said("dead", "firing")
    real.reported.wait_until_said("lags", "firing")
    real.reported.wait_until_said("lags", "resolved")

    assert ("dead", "resolved") not in real.reported.said()
    assert "dead" in real.alerts()


def test_a_warning_reported_again_does_not_lapse(real, receiver):
    long_ago = time.time() - LAPSED_SOON_SECONDS
    lagging = fresh("still_lags", name="StreamingQueryLagging", severity="warning")
    receiver.send(lagging, long_ago)
    receiver.send(lagging, time.time())
    lapsing = fresh("lags_no_more", name="StreamingQueryLagging", severity="warning")
    receiver.send(lapsing, long_ago)
    real.reported.wait_until_said("lags_no_more", "resolved")

    assert ("still_lags", "resolved") not in real.reported.said()
    assert "still_lags" in real.alerts()


def test_alerts_of_one_incident_end_each_for_itself(real, receiver):
    both = fresh("first", "second")
    receiver.send(both, time.time())
    real.reported.wait_until_said("second", "firing")
    began = both.starts_at
    partly = Incident(
        (alert("first", starts_at=began, ends_at=time.time()), alert("second", starts_at=began))
    )
    receiver.send(partly, time.time())
    real.reported.wait_until_said("first", "resolved")

    assert ("second", "resolved") not in real.reported.said()
    assert "second" in real.alerts()


def test_a_resolve_of_what_it_does_not_know_reports_nobody(real, receiver):
    """So a driver may resolve what an earlier one left open, if it did."""
    receiver.send(fresh("never_told", ends_at=time.time()), time.time())
    receiver.send(fresh("told_later"), time.time())
    real.reported.wait_until_said("told_later", "firing")

    assert "never_told" not in {query for query, _ in real.reported.said()}


def test_a_resolve_after_a_restart_ends_what_the_dead_driver_left_open(real, receiver):
    """It knows neither when the alert began nor its words; the labels are enough."""
    receiver.send(fresh("left_open"), time.time())
    real.reported.wait_until_said("left_open", "firing")
    now = time.time()
    receiver.send(incident("left_open", starts_at=now, ends_at=now, reason="?"), now)
    real.reported.wait_until_said("left_open", "resolved")


def test_it_says_when_an_alert_was_posted_last_and_who_lives_posts_it_again(real, receiver):
    """So what another driver has open is known from what a dead one has left."""
    now = time.time()
    receiver.send(fresh("held"), now)
    receiver.send(fresh("left"), now)
    asked = [incident(query, starts_at=now, ends_at=now) for query in ("held", "left", "never")]
    first = posted(receiver.left_open(asked, now))
    time.sleep(0.05)
    receiver.send(fresh("held"), now)
    second = posted(receiver.left_open(asked, now))

    assert set(first) == set(second) == {"held", "left"}
    assert second["held"] > first["held"]
    assert second["left"] == first["left"]


def posted(found):
    """By query, when what is open was posted last."""
    return {one.incident.alerts[0].labels["query"]: one.posted_at for one in found}


def test_our_webhook_says_what_its_own_would(real, receiver):
    """Common labels, fingerprints, statuses and types are Alertmanager's."""
    reported = fresh("compared")
    receiver.send(reported, time.time())
    theirs = real.reported.wait_until_said("compared", "firing")
    ours = message(reported, "hook")

    assert set(ours) <= set(theirs)
    assert {name: type(value) for name, value in ours.items()} == {
        name: type(theirs[name]) for name in ours
    }
    for name in ("receiver", "status", "groupLabels", "commonLabels", "commonAnnotations"):
        assert ours[name] == theirs[name], name
    for name in ("version", "groupKey", "truncatedAlerts"):
        assert ours[name] == theirs[name], name
    for name in ("status", "labels", "annotations", "fingerprint"):
        assert ours["alerts"][0][name] == theirs["alerts"][0][name], name


def test_a_member_that_is_down_does_not_keep_the_others_from_knowing(real):
    receiver = Alertmanager(["http://127.0.0.1:9", real.url])
    receiver.send(fresh("cluster"), time.time())
    receiver.close()

    assert "cluster" in real.alerts()
