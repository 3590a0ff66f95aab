"""What was judged leaves without our own secrets, without Spark's, and without what is set."""

from __future__ import annotations

import os
import threading

import pytest

from querypulse.alerting.evaluate import Evaluation, QueryHealth
from querypulse.alerting.finding import Finding, QueryState, Severity
from querypulse.sidecar import Settings, SettingsError
from querypulse.sidecar.configuration.own_values import secret_parts
from querypulse.sidecar.configuration.redacting import Redacting

KEY = "R0123456789abcdefghijklmnopqrstu"
TOKEN = "T0KEN567890abcdefgh"
HOOK = f"https://hooks.example.com/services/{TOKEN}"


def evaluated(text):
    """A judgement that says ``text`` wherever it can."""
    finding = Finding(
        "StreamingQueryFailed",
        "a",
        Severity.CRITICAL,
        QueryState.FAILED,
        text,
        text,
        {"error": text},
        text,
    )
    return Evaluation((finding,), {"a": QueryHealth(QueryState.FAILED, text)})


def left(text, settings=None, conf=None):
    """What of ``text`` is left in the whole judgement."""
    redacting = Redacting(settings or Settings())
    redacting.honour((conf or {}).get)
    return repr(redacting(evaluated(text)))


def test_ordinary_text_is_left_alone():
    text = "Files were added to table bronze by a concurrent update: version 11"

    assert left(text).count(text) == 5


def test_what_has_the_shape_of_a_secret_is_hidden():
    assert "hunter2" not in left("failed with password=hunter2")


OWN = [
    {"pagerduty_routing_key": KEY},
    {"receivers": [{"type": "pagerduty", "name": "a", "routing_key": KEY}]},
    {"webhook_url": f"https://hooks.example.com/{KEY}"},
    {"slack_webhook_url": f"https://hooks.example.com/x?a={KEY}"},
    {"heartbeat_url": f"https://hc.example.com/{KEY}"},
    {"proxy_url": f"http://user:{KEY}@proxy"},
    {"alertmanager_urls": [f"https://user:{KEY}@am"]},
    {"receivers": [{"type": "alertmanager", "name": "a", "urls": [f"https://u:{KEY}@am"]}]},
]


@pytest.mark.parametrize("settings", OWN)
def test_our_own_keys_are_hidden_wherever_they_are_set(settings):
    """As when a job prints the environment it was started with."""
    assert KEY not in left(f"started with {KEY} as ever", Settings(**settings))
    assert "as ever" in left(f"started with {KEY} as ever", Settings(**settings))


@pytest.mark.parametrize(
    "name",
    [
        "pagerduty_routing_key_file",
        "slack_webhook_url_file",
        "heartbeat_url_file",
        "http_token_file",
    ],
)
def test_keys_in_files_are_hidden_as_well(tmp_path, name):
    (tmp_path / "key").write_text(f"{KEY}\n")

    assert KEY not in left(f"read {KEY}", Settings(**{name: str(tmp_path / "key")}))


def test_a_key_that_was_rotated_is_hidden_once_it_is_read(tmp_path):
    path = tmp_path / "key"
    path.write_text(KEY)
    redacting = Redacting(Settings(pagerduty_routing_key_file=str(path)))
    path.write_text(TOKEN)
    redacting.refresh()

    assert TOKEN not in repr(redacting(evaluated(f"the new one is {TOKEN}")))
    assert redacting.text(f"the new one is {TOKEN}") == "the new one is [redacted]"


def test_a_key_on_a_mount_that_hangs_holds_no_evaluation_up(tmp_path):
    """A FIFO without a writer: reading it blocks, as a file on a dead NFS server does."""
    path = tmp_path / "key"
    path.write_text(KEY)
    redacting = Redacting(Settings(pagerduty_routing_key_file=str(path)))
    path.unlink()
    os.mkfifo(path)
    reading = threading.Thread(target=redacting.refresh, daemon=True)
    reading.start()

    assert KEY not in repr(redacting(evaluated(f"the key is {KEY}")))
    assert reading.is_alive()
    os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK))


def test_only_keys_of_files_are_read_again(tmp_path):
    (tmp_path / "key").write_text(KEY)

    assert not Redacting(Settings(pagerduty_routing_key=KEY)).reads_files
    assert Redacting(Settings(http_token_file=str(tmp_path / "key"))).reads_files


def test_patterns_of_the_settings_are_hidden():
    settings = Settings(redact_patterns=["acct-[0-9]{6,8}"])

    assert "acct-1234567" not in left("no row for acct-1234567 there", settings)
    assert "acct-12 " in left("no row for acct-12 there", settings)


def test_what_spark_wants_hidden_is_hidden():
    conf = {"spark.redaction.string.regex": "cust[0-9]+", "spark.redaction.regex": "(?i)wallet"}

    assert "cust77" not in left("no row for cust77", conf=conf)
    assert "abc" not in left("my.wallet=abc", conf=conf)
    assert "cust77" in left("no row for cust77")


@pytest.mark.parametrize("pattern", ["(", "[a-", "(?P<x", "*"])
def test_a_pattern_that_is_none_is_refused(pattern):
    with pytest.raises(SettingsError, match="'redact_patterns'"):
        Redacting(Settings(redact_patterns=[pattern]))


@pytest.mark.parametrize(
    ("value", "parts"),
    [
        (KEY, {KEY}),
        ("https://hooks.example.com", set()),
        ("http://127.0.0.1:8080/pages", set()),
        ("https://am.example.com/alertmanager", set()),
        (HOOK, {f"/services/{TOKEN}", TOKEN}),
        ("https://t0ken:word@h/x", {"t0ken", "word"}),
        ("https://t0ken:w%2Ford@h/x", {"t0ken", "w%2Ford", "w/ord"}),
        (f"https://h/x?a={TOKEN}", {TOKEN}),
        ("https://[", {"https://["}),
    ],
)
def test_of_a_url_its_userinfo_and_its_tokens_are_secret(value, parts):
    """Not its host, nor the words that are in everybody's text."""
    assert set(secret_parts(value)) == parts
