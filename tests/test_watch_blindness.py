"""A watcher that drivers do not let in says so: it sees less than it is trusted to see."""

from __future__ import annotations

import pytest
from support.lookout import BAD, A, B, Lookout
from support.watching import serving, watching

from querypulse.sidecar.watch import blindness
from querypulse.sidecar.watch.look import Said


def test_a_driver_that_bars_the_watcher_is_an_alert_of_the_watcher():
    lookout = Lookout().look().looks(Said.BARRED, 17)
    (alert,) = lookout.blind

    assert alert.labels == {
        "alertname": "QuerypulseMonitoringDegraded",
        "app": "querypulse-watch",
        "query": "*",
        "severity": "warning",
    }
    assert "http://a:9719: barred; check --token-file" in alert.annotations["reason"]
    assert lookout.ever_told == set()


def test_the_log_says_once_who_does_not_let_the_watcher_in():
    lines = Lookout().look().looks(Said.BARRED, 30).news

    assert sum("etl does not let this watcher in: barred" in line for line in lines) == 1


def test_it_ends_when_the_driver_lets_the_watcher_in():
    lookout = Lookout().look().looks(Said.BARRED, 17).look()

    assert lookout.blind == []
    assert lookout.ended == ["querypulse-watch"]
    assert lookout.look().ended == []


def test_every_driver_that_bars_the_watcher_is_named_in_one_alert():
    lookout = Lookout(A, B).look(A).look(B, app="other")
    for _ in range(20):
        lookout.look(A, Said.BARRED).look(B, Said.BARRED)
    (alert,) = lookout.blind

    assert "http://a:9719, http://b:9719: barred" in alert.annotations["reason"]


def test_a_token_that_is_rotated_notifies_nobody():
    lookout = Lookout().look().looks(Said.BARRED, 12).looks(Said.WELL, 5).looks(Said.BARRED, 12)

    assert lookout.blind == []


@pytest.mark.parametrize("said", [Said.WELL, Said.UNREACHABLE, *BAD])
def test_a_driver_that_does_anything_else_does_not_blind_the_watcher(said):
    assert Lookout().look().looks(said, 60).blind == []


def test_it_is_reminded_of_and_keeps_its_beginning():
    lookout = Lookout().look().looks(Said.BARRED, 17)
    (first,) = lookout.blind
    lookout.looks(Said.BARRED, 3700, every=10.0)
    (incident,) = lookout.all[-1].incidents

    assert incident.revision == 1
    assert incident.starts_at == first.starts_at


def test_the_next_watcher_ends_what_the_one_before_left_open():
    (left,) = Lookout().look().looks(Said.BARRED, 17).all[-1].incidents
    successor = Lookout()
    successor.judge.inherit([left], successor.now)

    assert len(successor.update().blind) == 1
    assert successor.look().ended == ["querypulse-watch"]


@pytest.mark.slow
def test_a_driver_that_wants_a_token_is_an_alert_over_real_http(monkeypatch):
    monkeypatch.setattr(blindness, "AFTER_SECONDS", 0.5)
    with serving("etl", token="wanted") as server, watching(server.url) as told:
        told.wait_for("querypulse-watch")
