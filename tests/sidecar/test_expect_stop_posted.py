"""``POST /expect_stop``: the server asks for the token, and the runtime for queries that exist."""

from __future__ import annotations

import json

import msgspec
import pytest
import requests
from support.exporter_http import serving
from support.patience import PATIENCE_SECONDS
from support.published_states import full_published
from support.story import Story, policy

from querypulse.exporter.server import BODY_BYTES
from querypulse.sidecar.runtime import ExpectedStop

HEADERS = {"Authorization": "Bearer t0ken"}


def three(now=6):
    story = Story()
    for name in ("bronze-eu", "bronze-us", "gold"):
        story = story.started(name, at=0)
    return story.ended("bronze-us", at=5).snapshot(now)


def post(server, body=b"{}", path="/expect_stop", headers=HEADERS):
    return requests.post(server.url + path, data=body, headers=headers, timeout=PATIENCE_SECONDS)


def test_bodies_reach_the_handler_of_their_page_with_the_token_only():
    taken = []

    def take(body):
        taken.append(body)
        return 201, {"queries": ["a"]}

    with serving(full_published(), token="t0ken", expect_stop=take) as server:
        answers = [
            post(server, b'{"queries": "a"}'),
            post(server, headers={}),
            post(server, headers={"Authorization": "Bearer wrong"}),
            post(server, b"x" * (BODY_BYTES + 1)),
            post(server, path="/status"),
            requests.get(f"{server.url}/expect_stop", headers=HEADERS, timeout=PATIENCE_SECONDS),
        ]

    assert [answer.status_code for answer in answers] == [201, 401, 401, 413, 405, 404]
    assert answers[0].json() == {"queries": ["a"]}
    assert taken == [b'{"queries": "a"}']


def test_without_a_token_nothing_can_be_announced():
    with serving(full_published(), expect_stop=lambda _: (201, {})) as server:
        answer = post(server)

    assert (answer.status_code, "http_token_file" in answer.text) == (403, True)


@pytest.mark.parametrize(
    ("pattern", "labels"),
    [
        ("gold", ["gold"]),
        # Those that have ended already are meant only if no active one is.
        ("bronze*", ["bronze-eu"]),
        ("*", ["bronze-eu", "gold"]),
        ("bronze-us", ["bronze-us"]),
    ],
)
def test_active_queries_of_the_pattern_are_meant(pattern, labels):
    assert ExpectedStop(pattern).labels(three(), policy()) == labels


def test_name_of_a_query_is_no_pattern():
    story = Story().started("a[1]", at=0).started("a1", at=0).started("a*", at=0).snapshot(6)

    assert ExpectedStop("a[1]").labels(story, policy()) == ["a[1]"]
    assert ExpectedStop("a*").labels(story, policy()) == ["a*"]
    assert ExpectedStop("a[1-3]").labels(story, policy()) == ["a1"]


def test_query_that_ended_long_ago_is_not_meant():
    long_ago = three(now=66)

    assert ExpectedStop("*").labels(Story().started(at=0).ended(at=5).snapshot(66), policy()) == []
    assert ExpectedStop("bronze*").labels(long_ago, policy()) == ["bronze-eu"]
    with pytest.raises(ValueError, match="no query that matches 'bronze-us' runs, or has just"):
        ExpectedStop("bronze-us").labels(long_ago, policy())


def test_pattern_without_a_query_is_refused_unless_it_is_the_whole_driver():
    assert ExpectedStop("*").labels(Story().snapshot(0), policy()) == []
    with pytest.raises(ValueError, match="no query matches 'silver'; known: bronze-eu, bronze-us"):
        ExpectedStop("silver").labels(three(), policy())


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"queries": 7},
        {"queries": "[" * 1001},
        {"queries": "a", "minutes": 0},
        {"queries": "a", "minutes": -1},
        {"queries": "a", "minutes": 1441},
        {"queries": "a", "minutes": "5"},
        {"queries": "a", "until": "2036-01-01T00:00:00Z"},
        [],
    ],
)
def test_invalid_body_is_no_announcement(body):
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(json.dumps(body), type=ExpectedStop)
