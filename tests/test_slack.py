"""A channel is told in a form that Slack takes and a person can read."""

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.http_double import HttpDouble, reply
from support.receiver_incidents import ENDED, ENDED_ONE, ONE, SEVERAL, STARTED, alert, incident
from support.slack_double import SlackDouble, problems

from querypulse.alerting.alert import Incident
from querypulse.alerting.receivers.answer import DeliveryOutcome
from querypulse.alerting.receivers.encoding import to_json
from querypulse.alerting.receivers.http import HttpError
from querypulse.alerting.receivers.secret import Secret
from querypulse.alerting.receivers.slack import Slack
from querypulse.alerting.receivers.slack_message import escape, minimal_message, slack_message

LONG = st.text(max_size=20) | st.sampled_from(["<", "&", ">", "`", "|", "\n", "x"]).flatmap(
    lambda mark: st.sampled_from([1, 3, 500, 1300, 8000]).map(lambda size: mark * size)
)


@pytest.fixture
def double():
    with SlackDouble() as double:
        yield double


def slack(double: HttpDouble, **options) -> Slack:
    return Slack(Secret(f"{double.url}/services/T0/B0/x"), **options)


def sections(message):
    return [one["text"]["text"] for one in message["blocks"] if one["type"] == "section"]


def test_a_channel_sees_what_is_wrong_why_and_where_to_read_on(double):
    reported = incident(last_commit="batch 10, 2 s ago", siblings="7 of 8 queries healthy")
    slack(double, external_url="https://driver:9719/").send(reported, time.time())
    (message,) = double.messages
    title, story, ways = sections(message)

    assert message["text"] == ":rotating_light: critical: bronze failed"
    assert title == f"*{message['text']}*"
    assert story == (
        "```reason: ConcurrentAppendException\n"
        "last_commit: batch 10, 2 s ago\nsiblings: 7 of 8 queries healthy```"
    )
    assert ways == "<https://x/StreamingQueryFailed.md|Runbook>"
    assert message["blocks"][-1]["elements"][0]["text"] == (
        "StreamingQueryFailed · since 2026-11-21 09:02:08 UTC · <https://driver:9719/|Status page>"
    )


def test_the_end_says_how_long_it_lasted():
    message = slack_message(incident(ends_at=STARTED + 720))

    assert message["text"] == ":white_check_mark: Resolved: [etl] bronze commits again after 12 min"
    assert sections(message)[1:] == ["```was: bronze failed```"]


def test_several_queries_of_one_cause_are_one_line(double):
    slack(double).send(SEVERAL, time.time())
    (message,) = double.messages

    assert len(double.requests) == 1
    assert message["text"].endswith("5 queries failed: ConcurrentAppendException (bronze, silver, gold, alerts, audit)")  # fmt: skip
    assert sections(message)[1:] == ["<https://x/StreamingQueryFailed.md|Runbook>"]


def test_several_queries_with_reasons_of_their_own_are_listed():
    reported = Incident((alert("a", reason="A: no"), alert("b", reason="B: no")))

    assert sections(slack_message(reported))[1:3] == ["`a`: A: no", "`b`: B: no"]


def test_a_query_whose_name_is_part_of_another_one_is_named():
    names = ["orders_eu", *(f"sink_{number}" for number in range(9)), "orders"]
    message = slack_message(Incident(tuple(alert(name) for name in names)))

    assert message["text"].endswith("and 1 more)")
    assert any(text.startswith("`orders`: ") for text in sections(message))


def test_a_query_that_has_recovered_is_named_in_the_headline():
    message = slack_message(Incident((alert("a", ends_at=ENDED), alert("b"))))

    assert message["text"].endswith("(a, b); recovered: a")


def test_a_crowd_is_cut_to_what_a_message_takes():
    reported = Incident(tuple(alert(f"q{n}", reason=f"E{n}: no") for n in range(200)))
    message = slack_message(reported)

    assert not problems(message)
    assert sections(message)[-2] == "and 180 more"


@pytest.mark.parametrize(("query", "shown"), [("*", "`all queries`"), ("a*b_c", "`a*b_c`")])
def test_no_name_of_a_query_is_taken_for_a_mark(query, shown):
    reported = Incident((alert(query, reason="A: no"), alert("b", reason="B: no")))

    assert sections(slack_message(reported))[1] == f"{shown}: A: no"


def test_no_text_of_a_query_ends_the_bold_title():
    message = slack_message(incident(summary="SELECT * FROM a WHERE ~b~"))
    title = sections(message)[0]

    assert title.count("*") == 2
    assert "~" not in title


def test_every_link_is_in_the_message():
    links = {"dashboard_url": "https://g/d", "spark_ui_url": "http://driver:4040"}

    assert sections(slack_message(incident(**links)))[-1] == (
        "<https://x/StreamingQueryFailed.md|Runbook> · <https://g/d|Dashboard> · <http://driver:4040|Spark UI>"
    )


@settings(max_examples=60)
@given(st.lists(st.tuples(LONG, LONG, LONG), min_size=1, max_size=3), st.booleans(), LONG)
def test_whatever_a_query_says_slack_takes_the_message(texts, over, home):
    """Every limit holds, also where all is escaped."""
    reported = Incident(
        tuple(
            alert(name, reason=reason, stack=stack, summary=stack, ends_at=ENDED if over else None)
            for name, reason, stack in texts
        )
    )

    assert not problems(json.loads(to_json(slack_message(reported, home))))
    assert not problems(json.loads(to_json(minimal_message(reported))))


def test_no_text_of_a_query_can_call_the_channel_or_end_a_code_block():
    message = slack_message(incident(reason="<!channel> & co", stack="a ``` <@U1>"))
    story = sections(message)[1]

    assert "&lt;!channel&gt; &amp; co" in story
    assert story.count("```") == 2
    assert "<@U1>" not in story
    assert escape("<a|b>&`") == "&lt;a|b&gt;&amp;'"


@pytest.mark.parametrize("status", [400, 413])
def test_a_disliked_message_is_tried_once_more_as_plain_text(double, status):
    double.script.append(reply(status, body=b"invalid_blocks"))
    slack(double).send(ONE, time.time())

    assert double.messages == [{"text": ":rotating_light: critical: bronze failed"}]


def test_plain_text_refused_too_is_poison():
    with HttpDouble(otherwise=reply(400, body=b"invalid_payload")) as double:
        with pytest.raises(HttpError) as caught:
            slack(double).send(ONE, time.time())

        assert caught.value.answer is DeliveryOutcome.REJECTED
        assert len(double.requests) == 2


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        (b"<html>Please log in</html>", DeliveryOutcome.MISCONFIGURED),
        (b'{"ok":false,"error":"not_authed"}', DeliveryOutcome.MISCONFIGURED),
        (b"", DeliveryOutcome.TRANSIENT),
    ],
)
def test_a_200_that_does_not_say_ok_is_no_delivery(body, answer):
    """A page of somebody else's, such as a proxy's, answers 200 as well."""
    with (
        HttpDouble(otherwise=reply(200, body=body)) as double,
        pytest.raises(HttpError, match="without Slack's 'ok'") as caught,
    ):
        slack(double).send(ONE, time.time())

    assert caught.value.answer is answer
    assert caught.value.may_have_arrived


def test_throttling_is_obeyed(double):
    """A webhook takes about one message a second."""
    double.otherwise = reply(429, {"Retry-After": "30"})
    with pytest.raises(HttpError) as caught:
        slack(double).send(ENDED_ONE, time.time())

    assert caught.value.retry_after == 30
    assert Slack.capabilities.per_minute == 60


def test_the_url_is_shown_nowhere(caplog):
    """Its path is the secret."""
    with HttpDouble(otherwise=reply(404, body=b"no_service")) as double:
        receiver = slack(double)
        with caplog.at_level("DEBUG"), pytest.raises(HttpError) as caught:
            receiver.send(ONE, time.time())

    assert "T0/B0" not in f"{receiver!r}{caught.value!r}{caplog.text}"


def test_a_url_that_cannot_be_used_is_refused_by_its_settings_name():
    with pytest.raises(ValueError, match="slack_webhook_url must be https"):
        Slack(Secret("http://hooks.slack.com/services/T0/B0/x"))
