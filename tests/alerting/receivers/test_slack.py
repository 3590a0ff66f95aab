"""Slack messages: within Slack's limits, escaped, and readable for people."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.receiver_incidents import ENDED, alert, holding, incident
from support.receivers import at
from support.slack_double import SlackDouble, problems

from querypulse.alerting.receivers.slack import escape, minimal_message, slack_message
from querypulse.core.text import to_json

LONG = st.text(max_size=20) | st.sampled_from(["<", "&", ">", "`", "|", "\n", "x"]).flatmap(
    lambda mark: st.sampled_from([1, 3, 500, 1300, 8000]).map(lambda size: mark * size)
)


@pytest.fixture
def double():
    with SlackDouble() as double:
        yield double


def slack(double, **options):
    return at("slack", f"{double.url}/services/T0/B0/x", **options)


def sections(message):
    return [one["text"]["text"] for one in message["blocks"] if one["type"] == "section"]


def test_query_whose_name_is_part_of_another_is_listed():
    names = ["orders_eu", *(f"sink_{number}" for number in range(9)), "orders"]
    message = slack_message(holding(*(alert(name) for name in names)))

    assert message["text"].endswith("and 1 more)")
    assert any(text.startswith("`orders`: ") for text in sections(message))


def test_many_queries_are_cut_to_fit_one_message():
    reported = holding(*(alert(f"q{n}", reason=f"E{n}: no") for n in range(200)))
    message = slack_message(reported)

    assert not problems(message)
    assert sections(message)[-2] == "and 180 more"


@pytest.mark.parametrize(("query", "shown"), [("*", "`all queries`"), ("a*b_c", "`a*b_c`")])
def test_query_name_is_not_parsed_as_markup(query, shown):
    reported = holding(alert(query, reason="A: no"), alert("b", reason="B: no"))

    assert sections(slack_message(reported))[1] == f"{shown}: A: no"


def test_query_text_does_not_end_the_bold_title():
    message = slack_message(incident(summary="SELECT * FROM a WHERE ~b~"))
    title = sections(message)[0]

    assert title.count("*") == 2
    assert "~" not in title


@settings(max_examples=60)
@given(st.lists(st.tuples(LONG, LONG, LONG), min_size=1, max_size=3), st.booleans(), LONG)
def test_any_text_stays_within_slacks_limits(texts, over, home):
    """The limits also hold when every character is escaped."""
    reported = holding(
        *(
            alert(name, reason=reason, stack=stack, summary=stack, ends_at=ENDED if over else None)
            for name, reason, stack in texts
        )
    )

    assert not problems(json.loads(to_json(slack_message(reported, home))))
    assert not problems(json.loads(to_json(minimal_message(reported))))


def test_query_text_cannot_mention_the_channel_or_end_a_code_block():
    message = slack_message(incident(reason="<!channel> & co", stack="a ``` <@U1>"))
    evidence = sections(message)[1]

    assert "&lt;!channel&gt; &amp; co" in evidence
    assert evidence.count("```") == 2
    assert "<@U1>" not in evidence
    assert escape("<a|b>&`") == "&lt;a|b&gt;&amp;'"
