"""Short forms and full form are one list of receivers, and what would mean nothing is refused."""

from __future__ import annotations

import msgspec
import pytest

from querypulse.sidecar import Settings, SettingsError
from querypulse.sidecar.configuration.configured import configured

URL = "https://hooks.example.com/hidden"
KEY = "hidden0123456789abcdefghijklmnop"


PAGER = {"type": "pagerduty", "name": "a", "routing_key": KEY}


def found(**settings):
    return [(one.given.name, one.is_short) for one in configured(Settings(**settings))]


def refused(**settings):
    with pytest.raises(SettingsError) as error:
        configured(Settings(**settings))
    assert "hidden" not in str(error.value)
    return str(error.value)


def hook(name="a", **more):
    return {"type": "webhook", "name": name, "url": URL, **more}


def test_without_settings_there_is_no_receiver():
    assert found() == []


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"webhook_url": URL}, "webhook"),
        ({"webhook_url": ""}, "webhook"),
        ({"webhook_url_file": "/u"}, "webhook"),
        ({"pagerduty_routing_key": KEY}, "pagerduty"),
        ({"pagerduty_routing_key": ""}, "pagerduty"),
        ({"pagerduty_routing_key_file": "/k"}, "pagerduty"),
        ({"alertmanager_urls": ["https://am"]}, "alertmanager"),
        ({"slack_webhook_url": URL}, "slack"),
        ({"slack_webhook_url_file": "/u"}, "slack"),
    ],
)
def test_a_short_form_makes_a_receiver_of_that_name(settings, name):
    """An empty text as well: it is refused later, for it must not mean that nobody is told."""
    assert found(**settings) == [(name, True)]


def test_a_heartbeat_is_no_receiver():
    assert found(heartbeat_url=URL) == []


def test_short_forms_come_before_the_full_form():
    assert found(receivers=[hook("b"), hook("a")], webhook_url=URL, slack_webhook_url=URL) == [
        ("webhook", True),
        ("slack", True),
        ("b", False),
        ("a", False),
    ]


def test_a_short_form_is_reported_everything_and_falls_back_on_nobody():
    (one,) = configured(Settings(webhook_url=URL))

    assert one.given.severities == ("critical", "warning")
    assert (one.given.queries, one.given.fallback) == (("*",), None)


BOTH = [
    ({"webhook_url": URL, "webhook_url_file": "/u"}, "'webhook_url' or 'webhook_url_file'"),
    (
        {"pagerduty_routing_key": KEY, "pagerduty_routing_key_file": "/k"},
        "'pagerduty_routing_key' or 'pagerduty_routing_key_file'",
    ),
    (
        {"slack_webhook_url": URL, "slack_webhook_url_file": "/u"},
        "'slack_webhook_url' or 'slack_webhook_url_file'",
    ),
    ({"receivers": [hook(url_file="/u")]}, "receiver 'a': give 'url' or 'url_file'"),
    (
        {"receivers": [{"type": "slack", "name": "a", "url": URL, "url_file": "/u"}]},
        "receiver 'a': give 'url' or 'url_file'",
    ),
    (
        {
            "receivers": [
                {"type": "pagerduty", "name": "a", "routing_key": KEY, "routing_key_file": "/k"}
            ]
        },
        "receiver 'a': give 'routing_key' or 'routing_key_file'",
    ),
]


@pytest.mark.parametrize(("settings", "names"), BOTH)
def test_a_secret_is_given_once(settings, names):
    message = refused(**settings)

    assert names in message
    assert "not both" in message


@pytest.mark.parametrize("kind", ["webhook", "slack", "pagerduty"])
def test_a_receiver_without_its_place_is_refused(kind):
    field = "routing_key" if kind == "pagerduty" else "url"

    message = refused(receivers=[{"type": kind, "name": "a"}])

    assert message == f"receiver 'a': needs '{field}' or '{field}_file'"


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"webhook_secret_file": "/s"}, "webhook_url"),
        ({"webhook_secret_file": "/s", "receivers": [hook()]}, "webhook_url"),
        ({"pagerduty_url": URL}, "pagerduty_routing_key_file"),
    ],
)
def test_a_part_without_its_whole_is_refused(settings, word):
    message = refused(**settings)

    assert "needs " in message
    assert repr(word) in message


def test_two_of_one_name_are_refused():
    assert refused(receivers=[hook(), hook()]) == "setting 'receivers': two are named 'a'"


def test_a_name_that_a_short_form_has_is_taken():
    message = refused(receivers=[hook("webhook")], webhook_url=URL)

    assert message.startswith("setting 'receivers': two are named 'webhook'")
    assert "'webhook_...'" in message


def test_the_name_of_the_heartbeat_is_taken():
    assert "'heartbeat'" in refused(receivers=[hook("heartbeat")])


@pytest.mark.parametrize("name", ["webhook", "slack", "pagerduty", "alertmanager"])
def test_a_name_that_no_short_form_uses_is_free(name):
    assert found(receivers=[hook(name)]) == [(name, False)]


def test_one_may_fall_back_on_another_and_that_one_on_a_third():
    receivers = [hook("a", fallback="b"), hook("b", fallback="slack")]

    assert len(found(receivers=receivers, slack_webhook_url=URL)) == 3


@pytest.mark.parametrize("fallback", ["c", "", "A", "a"])
def test_a_fallback_that_is_no_other_receiver_is_refused(fallback):
    message = refused(receivers=[hook("a", fallback=fallback), hook("b")])

    assert message == (
        f"receiver 'a': 'fallback' {fallback!r} is not another receiver; there are: ['b']"
    )


def test_one_that_is_only_a_fallback_needs_no_severities():
    assert len(found(receivers=[hook("a", fallback="b"), hook("b", severities=[])])) == 2


def test_one_that_would_be_reported_nothing_is_refused():
    message = refused(receivers=[hook("a"), hook("b", severities=[])])

    assert message.startswith("receiver 'b': ")
    assert "'severities'" in message


# -- in whose words -----------------------------------------------------------------------------


def test_a_message_about_a_short_form_is_in_the_words_of_the_settings():
    (one,) = configured(Settings(webhook_url=URL))

    assert one.reworded("webhook_url must be https") == "webhook_url must be https"
    assert one.called("url_file") == "webhook_url_file"


def test_a_message_about_a_table_names_it_and_is_in_its_words():
    (one,) = configured(Settings(receivers=[hook("oncall")]))

    assert one.reworded("webhook_url must be https") == "receiver 'oncall': url must be https"
    assert one.reworded("webhook_secret_file: x") == "receiver 'oncall': secret_files: x"
    assert one.called("url_file") == "url_file"


def test_of_two_names_the_longer_one_is_put_in_other_words():
    settings = Settings(receivers=[{"type": "pagerduty", "name": "a", "routing_key_file": "/k"}])
    (one,) = configured(settings)

    assert one.reworded("pagerduty_routing_key_file is empty") == (
        "receiver 'a': routing_key_file is empty"
    )


@pytest.mark.parametrize(
    ("settings", "severities"),
    [
        ({"pagerduty_routing_key": KEY}, ("critical",)),
        ({"receivers": [PAGER]}, ("critical",)),
        (
            {"receivers": [{**PAGER, "severities": ["critical", "warning"]}]},
            ("critical", "warning"),
        ),
    ],
)
def test_pagerduty_wakes_nobody_for_a_warning_unless_reported_so(settings, severities):
    (one,) = configured(msgspec.convert(settings, Settings))

    assert one.given.severities == severities
