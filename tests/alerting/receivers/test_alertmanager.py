"""Every cluster member is notified, and one that accepts is enough."""

import json
import threading
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from msgspec.structs import replace
from support.http_double import Answer, DoubleHandler, HttpDouble, held, raw, reply
from support.patience import ended
from support.receiver_incidents import (
    ENDED,
    ENDED_ONE,
    FIVE,
    ONE,
    SEVERAL,
    alert,
    holding,
    incident,
)
from support.receivers import receiver

from querypulse.alerting.alert import GoesOn
from querypulse.alerting.receivers import alertmanager
from querypulse.alerting.receivers.alertmanager import api_alerts
from querypulse.alerting.receivers.receiver import DeliveryError
from querypulse.core.states import DeliveryOutcome
from querypulse.core.text import rfc3339


class AlertmanagerDouble(HttpDouble):
    """Keeps accepted alerts in ``alerts``, in order; rejects queries named in ``disliked``.

    ``open`` is its answer to a GET.
    """

    def __init__(self, *script: Answer, disliked: frozenset[str] = frozenset()) -> None:
        super().__init__(*script, otherwise=self.process)
        self.disliked = disliked
        self.alerts: list[dict[str, Any]] = []
        self.open: list[dict[str, Any]] = []

    def process(self, handler: DoubleHandler) -> None:
        request = self.requests[-1]
        if request.method == "GET" and request.path.startswith("/api/v2/alerts?"):
            return reply(200, body=json.dumps(self.open).encode())(handler)
        if (request.method, request.path) != ("POST", "/api/v2/alerts"):
            return reply(404)(handler)
        if request.headers["Content-Type"] != "application/json":
            return reply(415)(handler)
        posted = json.loads(request.body)
        good = [one for one in posted if one["labels"]["query"] not in self.disliked]
        self.alerts += good
        if len(good) < len(posted):
            return reply(400, body=b'"bad label set"')(handler)
        return reply(200)(handler)

    @property
    def queries(self) -> list[str]:
        return [one["labels"]["query"] for one in self.alerts]


NOW = 1_800_000_000.0


@pytest.fixture
def double():
    with AlertmanagerDouble() as double:
        yield double


def cluster(*urls, **options):
    return receiver("alertmanager", urls=list(urls), **options)


def send(sent, *doubles):
    cluster(*(double.url for double in doubles)).send(sent, NOW)


def refusal(sent, *doubles):
    with pytest.raises(DeliveryError) as caught:
        send(sent, *doubles)
    return caught.value


def test_alerts_are_posted_at_once_with_labels_annotations_and_times():
    """Also those that ended, however late they are sent. The URL of a member may have a path."""
    sent = holding(alert(), alert(name="B", ends_at=NOW - 301))
    with HttpDouble() as double:
        cluster(f"{double.url}/am/", external_url="https://driver:9719").send(sent, NOW)
        (request,) = double.requests
    first, second = json.loads(request.body)

    assert request.path == "/am/api/v2/alerts"
    assert first == {
        "labels": sent.alerts[0].labels,
        "annotations": sent.alerts[0].annotations,
        "startsAt": "2026-11-21T09:02:08.119Z",
        "endsAt": "2028-01-15T08:00:00.000Z",
        "generatorURL": "https://driver:9719",
    }
    assert (second["labels"]["alertname"], second["endsAt"]) == ("B", rfc3339(NOW - 301))


@pytest.mark.parametrize(
    ("sent", "ends"),
    [
        (ONE, [NOW + 365 * 24 * 3600]),
        (incident(name="StreamingQueryLagging", severity="warning"), [NOW + 240]),
        (ENDED_ONE, [ENDED]),
        (holding(alert("a", ends_at=NOW - 9), alert("b")), [NOW - 9, NOW + 365 * 24 * 3600]),
        (holding(alert(starts_at=NOW, ends_at=NOW - 1)), [NOW]),
    ],
    ids=["critical", "warning", "ended", "one has ended", "a clock was set back"],
)
def test_alert_states_when_it_ends(sent, ends):
    """If the driver dies with its query, Alertmanager must not declare the query healthy.

    It would reject an end before the start.
    """
    assert [one["endsAt"] for one in api_alerts(sent.alerts, NOW)] == list(map(rfc3339, ends))


@pytest.mark.parametrize(
    "successor", [GoesOn.CRITICAL_INCIDENT, GoesOn.WARNING, GoesOn.ANOTHER_INCIDENT]
)
def test_alert_that_goes_on_in_another_incident_is_not_ended(successor):
    over = alert(starts_at=NOW - 9, ends_at=NOW - 1)
    moved = replace(over, end=replace(over.end, goes_on=successor))

    assert api_alerts([moved], NOW) == []
    assert len(api_alerts([over], NOW)) == 1


@pytest.mark.parametrize("answer", [reply(503), reply(401), reply(400), reply(410), raw()])
def test_one_accepting_member_is_enough(double, answer, caplog):
    with HttpDouble(otherwise=answer) as refusing:
        send(ONE, refusing, double)

    assert double.queries == ["bronze"]
    assert caplog.text.count("a member did not take an alert") == 1


def test_refusing_member_is_logged_again_only_after_it_accepted(double, caplog):
    with HttpDouble(reply(401), reply(401), reply(200), reply(401)) as other:
        made = cluster(double.url, other.url)
        for count in (1, 1, 1, 2):
            made.send(ONE, NOW)
            assert caplog.text.count("answered 401") == count


def test_if_all_members_fail_the_soonest_retry_wins_and_doubt_about_one_is_doubt():
    """A member that is only down may be back within a second."""
    with HttpDouble(otherwise=reply(401)) as wrong, HttpDouble(otherwise=reply(503)) as down:
        assert refusal(ONE, wrong, down).answer is DeliveryOutcome.TRANSIENT
        assert refusal(ONE, wrong).answer is DeliveryOutcome.MISCONFIGURED
        with HttpDouble(otherwise=raw()) as broken:
            assert refusal(ONE, down, broken).may_have_arrived


def test_members_share_the_time_of_one_and_each_has_at_least_three_seconds(monkeypatch):
    shares = []
    monkeypatch.setattr(alertmanager, "TOTAL_SECONDS", 10.0)
    monkeypatch.setattr(
        alertmanager, "HttpPoster", lambda *_, total_seconds, **__: shares.append(total_seconds)
    )
    for count in (1, 2, 4):
        cluster(*(f"http://127.0.0.1:{port}" for port in range(9000, 9000 + count)))

    assert shares == [10.0, *[5.0] * 2, *[3.0] * 4]


def test_hanging_members_are_given_up_at_their_deadlines(monkeypatch):
    monkeypatch.setattr(alertmanager, "TOTAL_SECONDS", 0.4)
    monkeypatch.setattr(alertmanager, "LEAST_SECONDS", 0.1)
    never = held(threading.Event(), reply(200))
    with HttpDouble(otherwise=never) as one, HttpDouble(otherwise=never) as two:
        error = ended(lambda: refusal(ONE, one, two))

    assert error.answer is DeliveryOutcome.TRANSIENT


def test_one_rejected_alert_does_not_cost_the_others(caplog):
    """Alertmanager rejects a batch as a whole, so each alert is then posted alone."""
    with AlertmanagerDouble(disliked=frozenset({"gold"})) as double:
        send(SEVERAL, double)

        assert len(double.requests) == 1 + len(FIVE)
        assert set(double.queries) == set(FIVE) - {"gold"}
    assert "StreamingQueryFailed of gold is not taken" in caplog.text


@pytest.mark.parametrize(
    ("answers", "outcome"),
    [
        ([reply(400)] * 6, DeliveryOutcome.REJECTED),
        ([reply(400), reply(200), reply(401)], DeliveryOutcome.MISCONFIGURED),
    ],
    ids=["all are rejected", "an outage between them"],
)
def test_single_posts_may_fail(answers, outcome):
    with AlertmanagerDouble(*answers) as double:
        assert refusal(SEVERAL, double).answer is outcome


# -- the label by which a fleet is grouped --------------------------------------------------------

CAUSE = "outage at kafka://b:9092"


def test_cause_is_always_an_annotation_and_a_label_only_on_request():
    incident = holding(replace(alert(), cause=CAUSE))
    (by_default,) = api_alerts(incident.alerts, NOW)
    (on_request,) = api_alerts(incident.alerts, NOW, cause_label=True)

    assert by_default["labels"] == alert().labels
    assert on_request["labels"] == {**alert().labels, "cause": CAUSE}
    assert by_default["annotations"]["cause"] == on_request["annotations"]["cause"] == CAUSE


def test_alert_without_a_cause_has_no_empty_label():
    (posted,) = api_alerts(ONE.alerts, NOW, cause_label=True)

    assert posted["labels"] == alert().labels


def test_setting_of_the_receiver_adds_the_label_to_an_alert_and_to_its_end(double):
    manager = receiver("alertmanager", urls=[double.url], cause_label=True)
    for sent in (ONE, ENDED_ONE):
        alerts = tuple(replace(one, cause=CAUSE) for one in sent.alerts)
        manager.send(replace(sent, alerts=alerts), NOW)
    manager.close()

    assert [posted["labels"].get("cause") for posted in double.alerts] == [CAUSE, CAUSE]


# -- what an earlier process left open ------------------------------------------------------------


def stale(**labels):
    return replace(holding(alert(), **labels), alerts=())


def is_open(name="StreamingQueryFailed", *, posted_before=91.0, **labels):
    """An alert as Alertmanager lists it."""
    return {
        "labels": {**alert(name=name).labels, **labels},
        "annotations": {"summary": "[etl] bronze failed"},
        "startsAt": rfc3339(NOW - 3600),
        "updatedAt": rfc3339(NOW - posted_before),
    }


def test_alerts_that_nobody_posts_any_more_are_ended_in_one_request(double):
    double.open = [is_open(cause=CAUSE), is_open("StreamingBatchSlow", severity="warning")]
    send(stale(), double)

    filters = parse_qs(urlsplit(double.requests[0].path).query)["filter"]
    assert filters == ['app="etl"', 'query="bronze"']
    assert len(double.requests) == 2
    assert [each["labels"] for each in double.alerts] == [each["labels"] for each in double.open]
    assert {each["endsAt"] for each in double.alerts} == {rfc3339(NOW)}
    assert double.alerts[0]["annotations"]["summary"] == (
        "Resolved: [etl] bronze is healthy again after 60 min"
    )


@pytest.mark.parametrize(
    ("labels", "found"),
    [
        ({}, []),
        ({}, [is_open(posted_before=89)]),
        ({}, [is_open(env="prod")]),
        ({}, [is_open(query="silver")]),
        ({"env": "prod"}, [is_open(env="test")]),
    ],
    ids=[
        "nothing open",
        "another process posts it",
        "more labels",
        "another query",
        "other labels",
    ],
)
def test_nothing_else_is_ended(double, labels, found):
    double.open = found
    send(stale(**labels), double)

    assert double.alerts == []


def test_alert_that_one_member_has_seen_lately_stays_open(double):
    double.open = [is_open()]
    with AlertmanagerDouble() as other:
        other.open = [is_open(posted_before=10)]
        send(stale(), double, other)

        assert double.alerts == other.alerts == []


def test_member_that_is_down_hides_nothing(double):
    double.open = [is_open()]
    with HttpDouble(otherwise=reply(503)) as down:
        send(stale(), down, double)

        assert len(double.alerts) == 1


@pytest.mark.parametrize("answer", [reply(503), reply(200, body=b"<html>"), reply(200, body=b"{}")])
def test_list_that_cannot_be_read_is_an_outage(answer):
    with HttpDouble(otherwise=answer) as down:
        assert refusal(stale(), down).answer is DeliveryOutcome.TRANSIENT
