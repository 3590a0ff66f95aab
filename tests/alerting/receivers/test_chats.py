"""Messages for Slack and Teams: accepted by them, and no text of a query changes their form."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.receiver_incidents import ENDED, ENDED_ONE, STARTED, alert, holding, incident
from support.receivers import at, slack_problems

from querypulse.alerting.receivers import slack, teams
from querypulse.alerting.receivers.slack import escape, slack_message
from querypulse.alerting.receivers.teams import teams_message
from querypulse.core.text import to_json

MARKS = ["<", "&", ">", "]", "`", "|", "*", "\n", "x", "\N{SNOWMAN}"]
LONG = st.text(max_size=20) | st.sampled_from(MARKS).flatmap(
    lambda mark: st.sampled_from([1, 3, 500, 1300, 8000]).map(lambda size: mark * size)
)


@settings(max_examples=60)
@given(st.lists(st.tuples(LONG, LONG, LONG), min_size=1, max_size=3), st.booleans(), LONG)
def test_any_text_makes_a_message_that_slack_and_teams_accept(texts, over, home):
    """Slack's limits also hold when every character is escaped."""
    reported = holding(
        *(
            alert(name, reason=reason, stack=stack, summary=stack, ends_at=ENDED if over else None)
            for name, reason, stack in texts
        )
    )

    for message in (slack_message(reported, home), slack.minimal_message(reported)):
        assert slack_problems(json.loads(to_json(message))) == []
    for message in (teams_message(reported), teams.minimal_message(reported)):
        assert card_problems(message) == []


ENDLESS = holding(
    alert(summary="s" * 9000, reason="r" * 9000),
    alert(name="StreamingBatchSlow", reason="o" * 9000),
)
CUT = [
    (
        "Slack",
        slack_message(ENDLESS),
        {
            f":rotating_light: critical: {'s' * 996}…": 1024,
            f"```reason: {'r' * 1191}…```": 1206,
            f"`StreamingBatchSlow`: {'o' * 499}…": 522,
        },
    ),
    (
        "Slack, minimal",
        slack.minimal_message(ENDLESS),
        {f":rotating_light: critical: {'s' * 484}…": 512},
    ),
    (
        "Teams",
        teams_message(ENDLESS),
        {
            f"critical: {'s' * 1013}…": 1024,
            f"{'s' * 1023}…": 1024,
            f"reason: {'r' * 3991}…": 4000,
            f"StreamingBatchSlow: {'o' * 479}…": 500,
        },
    ),
    (
        "Teams, minimal",
        teams.minimal_message(ENDLESS),
        {f"critical: {'s' * 489}…": 500, f"{'s' * 1023}…": 1024},
    ),
]


def long_texts(part):
    """Every text of a message that is cut, without the marks of bold."""
    if isinstance(part, str):
        return {part.strip("*")} if "…" in part else set()
    inner = part.values() if isinstance(part, dict) else part if isinstance(part, list) else []
    return {text for one in inner for text in long_texts(one)}


@pytest.mark.parametrize(("what", "message", "texts"), CUT, ids=[row[0] for row in CUT])
def test_each_part_of_a_message_is_as_long_as_its_place_allows(what, message, texts):
    assert long_texts(message) == texts.keys(), what
    assert {text: len(text) for text in texts} == texts


@pytest.mark.parametrize(
    ("length", "shown"),
    [(500, (True, True)), (501, (False, True)), (2000, (False, True)), (2001, (False, False))],
)
def test_link_that_a_chat_would_cut_is_left_out(length, shown):
    url = "https://x/".ljust(length, "y")
    reported = incident(runbook_url=url)

    assert (
        f"<{url}|" in str(slack_message(reported)),
        url in str(teams_message(reported)),
    ) == shown


def test_card_has_forty_lines_of_evidence():
    reported = incident(reason="r", stack="\n".join(f"line{number}" for number in range(60)))
    card = teams_message(reported)["attachments"][0]["content"]
    lines = [block for block in card["body"] if block["inlines"][0].get("fontType") == "Monospace"]

    assert len(lines) == 40


def sections(message):
    return [one["text"]["text"] for one in message["blocks"] if one["type"] == "section"]


def test_query_whose_name_is_part_of_another_is_listed():
    names = ["orders_eu", *(f"sink_{number}" for number in range(9)), "orders"]
    message = slack_message(holding(*(alert(name) for name in names)))

    assert message["text"].endswith("and 1 more)")
    assert any(text.startswith("`orders`: ") for text in sections(message))


def test_many_queries_are_cut_to_fit_one_message():
    message = slack_message(holding(*(alert(f"q{n}", reason=f"E{n}: no") for n in range(200))))

    assert slack_problems(message) == []
    assert sections(message)[-2] == "and 180 more"


@pytest.mark.parametrize(("query", "shown"), [("*", "`all queries`"), ("a*b_c", "`a*b_c`")])
def test_query_name_is_not_parsed_as_markup(query, shown):
    reported = holding(alert(query, reason="A: no"), alert("b", reason="B: no"))

    assert sections(slack_message(reported))[1] == f"{shown}: A: no"


def test_query_text_does_not_end_the_bold_title_mention_the_channel_or_end_a_code_block():
    texts = {"reason": "<!channel> & co", "stack": "a ``` <@U1>"}
    message = slack_message(incident(summary="SELECT * FROM a WHERE ~b~", **texts))
    title, evidence, *_ = sections(message)

    assert (title.count("*"), title.count("~")) == (2, 0)
    assert "&lt;!channel&gt; &amp; co" in evidence
    assert evidence.count("```") == 2
    assert "<@U1>" not in evidence
    assert escape("<a|b>&`") == "&lt;a|b&gt;&amp;'"


def test_labels_of_the_settings_are_shown():
    message = slack_message(holding(alert(), env="prod"))

    assert message["blocks"][-1]["elements"][0]["text"].startswith(
        "StreamingQueryFailed · env=prod · since "
    )


def card_problems(message: dict) -> list[str]:
    """Why Teams would not show a message; ``TextBlock`` and ``FactSet`` would read Markdown."""
    (attachment,) = message["attachments"]
    card = attachment["content"]
    found = [] if message["type"] == "message" else ["type"]
    if attachment["contentType"] != "application/vnd.microsoft.card.adaptive":
        found.append("contentType")
    if (card["type"], card["version"]) != ("AdaptiveCard", "1.4"):
        found.append("version")
    found += [
        f"bad block {block}"
        for block in card["body"]
        if block["type"] != "RichTextBlock" or not all(run["text"] for run in block["inlines"])
    ]
    return found + [
        f"bad action {action}"
        for action in card.get("actions", [])
        if action["type"] != "Action.OpenUrl" or not action["url"].startswith("http")
    ]


def test_resolve_has_no_buttons():
    message = teams_message(ENDED_ONE, "https://driver.example")
    card = message["attachments"][0]["content"]

    assert card_problems(message) == []
    assert card["body"][0]["inlines"][0]["text"].startswith("Resolved: [etl] bronze commits again")
    assert "actions" not in card


@pytest.mark.parametrize("text", ["\N{SNOWMAN}" * 20_000, "x\n" * 20_000])
def test_message_stays_below_the_largest_size_of_teams(double, text):
    """The workflow answers 202 before Teams refuses the card."""
    alerts = (alert(f"{text[:500]}{n}", reason=f"{n}: {text}", next_steps=text) for n in range(30))
    at("teams", f"{double.url}/workflows/hidden").send(holding(*alerts), STARTED)
    (request,) = double.requests

    assert len(request.body) <= 28 * 1024
    assert card_problems(json.loads(request.body)) == []
