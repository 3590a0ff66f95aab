"""A Teams channel gets a card that Teams accepts and that no text of a query can change."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.http_double import HttpDouble, reply
from support.receiver_incidents import (
    ENDED_ONE,
    STARTED,
    alert,
    holding,
    incident,
)
from support.receivers import at

from querypulse.alerting.receivers.teams import minimal_message, teams_message

MAX_BYTES = 28 * 1024
ELEMENTS = {"RichTextBlock"}
"""The elements that we use; ``TextBlock`` and ``FactSet`` would read Markdown."""
LONG = st.text(max_size=20) | st.sampled_from(["<", "]", "*", "`", "\n", "\N{SNOWMAN}"]).flatmap(
    lambda mark: st.sampled_from([1, 3, 500, 8000]).map(lambda size: mark * size)
)


def problems(message: dict) -> list[str]:
    """Why Teams would not show a message."""
    (attachment,) = message["attachments"]
    card = attachment["content"]
    found = [] if message["type"] == "message" else ["type"]
    if attachment["contentType"] != "application/vnd.microsoft.card.adaptive":
        found.append("contentType")
    if (card["type"], card["version"]) != ("AdaptiveCard", "1.4"):
        found.append("version")
    for block in card["body"]:
        texts = [run["text"] for run in block["inlines"]]
        if block["type"] not in ELEMENTS or not all(texts):
            found.append(f"bad block {block}")
    return found + [
        f"bad action {action}"
        for action in card.get("actions", [])
        if action["type"] != "Action.OpenUrl" or not action["url"].startswith("http")
    ]


def texts(message):
    body = message["attachments"][0]["content"]["body"]
    return [run["text"] for block in body for run in block["inlines"]]


def buttons(message):
    actions = message["attachments"][0]["content"].get("actions", [])
    return {action["title"]: action["url"] for action in actions}


@pytest.fixture
def server():
    with HttpDouble(otherwise=reply(202)) as double:
        yield double


def send(server, reported, **options):
    at("teams", f"{server.url}/workflows/hidden", **options).send(reported, STARTED)
    return json.loads(server.requests[-1].body)


def test_resolve_says_how_long_it_lasted_and_has_no_buttons(server):
    message = send(server, ENDED_ONE)

    assert problems(message) == []
    assert texts(message)[0] == "Resolved: [etl] bronze commits again after 60 s"
    assert buttons(message) == {}


@given(summary=LONG, reason=LONG, evidence=LONG)
@settings(max_examples=60, deadline=None)
def test_any_text_makes_a_card_that_teams_shows(summary, reason, evidence):
    reported = incident(summary=summary or "x", reason=reason, exception=evidence)

    assert problems(teams_message(reported)) == []
    assert problems(minimal_message(reported)) == []


@pytest.mark.parametrize("text", ["\N{SNOWMAN}" * 20_000, "x\n" * 20_000])
def test_message_stays_below_the_largest_size(server, text):
    """The workflow answers 202 before Teams refuses the card."""
    alerts = (alert(f"{text[:500]}{n}", reason=f"{n}: {text}", next_steps=text) for n in range(30))
    message = send(server, holding(*(alerts)))

    assert len(server.requests[-1].body) <= MAX_BYTES
    assert problems(message) == []
