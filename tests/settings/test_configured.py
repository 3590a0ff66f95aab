"""Short forms and full form make one list of receivers, and meaningless settings are rejected."""

from __future__ import annotations

import pytest

from querypulse.settings.receivers import configured
from querypulse.sidecar import Settings, SettingsError

URL = "https://hooks.example.com/hidden"
KEY = "hidden0123456789abcdefghijklmnop"


def short_or_full(**settings):
    return [(entry.given.name, entry.is_short) for entry in configured(Settings(**settings))]


def refused(**settings):
    with pytest.raises(SettingsError) as error:
        configured(Settings(**settings))
    assert "hidden" not in str(error.value)
    return str(error.value)


def hook(name="a", **more):
    return {"type": "webhook", "name": name, "url": URL, **more}


def test_short_form_makes_a_receiver_of_that_name():
    """Even an empty value does: it is rejected later, so that it cannot silently disable alerts."""
    forms = [
        ({"webhook_url": URL}, "webhook"),
        ({"webhook_url": ""}, "webhook"),
        ({"webhook_url_file": "/u"}, "webhook"),
        ({"pagerduty_routing_key": KEY}, "pagerduty"),
        ({"pagerduty_routing_key": ""}, "pagerduty"),
        ({"pagerduty_routing_key_file": "/k"}, "pagerduty"),
        ({"alertmanager_urls": ["https://am"]}, "alertmanager"),
        ({"slack_webhook_url_file": "/u"}, "slack"),
    ]

    for settings, name in forms:
        assert short_or_full(**settings) == [(name, True)]


BOTH = [
    ({"webhook_url": URL, "webhook_url_file": "/u"}, "'webhook_url' or 'webhook_url_file'"),
    (
        {"pagerduty_routing_key": KEY, "pagerduty_routing_key_file": "/k"},
        "'pagerduty_routing_key' or 'pagerduty_routing_key_file'",
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


def test_secret_is_given_as_value_or_file_not_both():
    messages = [(names, refused(**settings)) for settings, names in BOTH]

    assert [
        message for names, message in messages if names not in message or "not both" not in message
    ] == []


@pytest.mark.parametrize("kind", ["webhook", "slack", "pagerduty"])
def test_receiver_without_an_address_is_rejected(kind):
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
def test_setting_that_needs_another_one_is_rejected_alone(settings, word):
    message = refused(**settings)

    assert "needs " in message
    assert repr(word) in message


def test_duplicate_receiver_names_are_rejected():
    assert refused(receivers=[hook(), hook()]) == "setting 'receivers': two are named 'a'"


def test_name_of_a_used_short_form_is_taken():
    message = refused(receivers=[hook("webhook")], webhook_url=URL)

    assert message.startswith("setting 'receivers': two are named 'webhook'")
    assert "'webhook_...'" in message


def test_fallbacks_can_be_chained():
    receivers = [hook("a", fallback="b"), hook("b", fallback="slack")]

    assert len(short_or_full(receivers=receivers, slack_webhook_url_file="/u")) == 3


def test_unknown_fallback_is_rejected():
    for fallback in ("c", "", "A", "a"):
        message = refused(receivers=[hook("a", fallback=fallback), hook("b")])

        assert message == (
            f"receiver 'a': 'fallback' {fallback!r} is not another receiver; there are: ['b']"
        )


def test_receiver_that_would_never_be_notified_is_rejected():
    message = refused(receivers=[hook("a"), hook("b", severities=[])])

    assert message.startswith("receiver 'b': ")
    assert "'severities'" in message
