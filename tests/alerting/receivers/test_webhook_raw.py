"""The raw format of the webhook matches its published schema."""

import json
import time
from importlib.resources import files

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.http_double import HttpDouble, reply
from support.receiver_incidents import (
    ENDED,
    ENDED_ONE,
    FIVE,
    ONE,
    SEVERAL,
    STARTED,
    alert,
    holding,
    incident,
)

from querypulse.alerting.receivers.webhook import Webhook, message_id, raw_message
from querypulse.core.secret import Secret
from querypulse.core.text import to_json

SCHEMA = json.loads(
    files("querypulse.alerting.receivers").joinpath("webhook.schema.json").read_text()
)
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)

texts = st.text(max_size=30)
ends = st.none() | st.floats(STARTED, STARTED + 1e6)
incidents = st.builds(
    lambda reported, revision: holding(*reported, revision=revision),
    st.lists(
        st.builds(
            lambda query, severity, ends_at, annotations: alert(
                query, severity=severity, ends_at=ends_at, **annotations
            ),
            texts,
            st.sampled_from(["critical", "warning"]),
            ends,
            st.dictionaries(st.sampled_from(["summary", "reason", "window"]), texts),
        ),
        min_size=1,
        max_size=4,
    ),
    st.integers(0, 100),
)


def body_of(reported, **options):
    return json.loads(to_json(raw_message(reported, message_id(reported), **options)))


def test_the_schema_is_valid():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@given(incidents, st.booleans())
def test_every_body_matches_the_schema(reported, plain):
    VALIDATOR.validate(body_of(reported, plain=plain))


def test_a_post_contains_the_whole_incident():
    with HttpDouble() as double:
        receiver = Webhook(Secret(double.url), format="raw", external_url="http://driver:9719")
        receiver.send(SEVERAL, time.time())
        receiver.close()
        (request,) = double.requests
    body = json.loads(request.body)

    VALIDATOR.validate(body)
    assert body["summary"] == (
        "[etl] 5 queries failed: ConcurrentAppendException (bronze, silver, gold, alerts, audit)"
    )
    assert [one["query"] for one in body["alerts"]] == list(FIVE)
    assert body["alerts"][0]["annotations"] == SEVERAL.alerts[0].annotations
    assert body["id"] == request.headers["Idempotency-Key"]
    assert body["url"] == "http://driver:9719"


def test_a_rejected_body_is_retried_once_without_the_evidence():
    with HttpDouble(reply(422)) as double:
        receiver = Webhook(Secret(double.url), format="raw")
        receiver.send(incident(stack="x" * 9000), time.time())
        receiver.close()
        body = json.loads(double.requests[1].body)

    VALIDATOR.validate(body)
    assert body["alerts"][0]["annotations"] == {}


def test_a_resolved_incident_has_its_end():
    body = body_of(ENDED_ONE)

    assert (body["status"], body["ends_at"]) == ("resolved", "2026-11-21T09:03:08.500Z")


def test_each_alert_of_an_open_incident_has_its_own_end():
    body = body_of(holding(alert("a", ends_at=ENDED), alert("b")))

    assert (body["status"], body["ends_at"]) == ("firing", None)
    assert [one["status"] for one in body["alerts"]] == ["resolved", "firing"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"version": 1},
        {"status": "resolved"},
        {"ends_at": "2026-11-21T09:03:08.500Z"},
        {"starts_at": "yesterday"},
        {"alerts": []},
        {"revision": -1},
        {"key": "elsewhere/etl/a/b"},
        {"severity": "page"},
    ],
)
def test_the_schema_rejects_invalid_bodies(wrong):
    with pytest.raises(jsonschema.ValidationError):
        VALIDATOR.validate({**body_of(ONE), **wrong})
