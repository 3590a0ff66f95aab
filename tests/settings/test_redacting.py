"""Evaluations are redacted: secrets of our settings, of Spark's and of custom patterns."""

from __future__ import annotations

import os
import threading

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.planted import HUNTER, PLANTED

from querypulse.alerting.alert_text import Guidance, alert_of
from querypulse.alerting.evaluate import Evaluation
from querypulse.alerting.finding import Finding, QueryHealth, Severity
from querypulse.core.redaction import REDACTED, WITHHELD, Redactor
from querypulse.core.states import QueryState
from querypulse.settings.secrets import ERROR_CLASS, Redacting, redacted, secret_parts
from querypulse.sidecar import Settings, SettingsError

KEY = "R0123456789abcdefghijklmnopqrstu"
TOKEN = "T0KEN567890abcdefgh"
HOOK = f"https://hooks.example.com/services/{TOKEN}"


def evaluation_of(text):
    """An evaluation with ``text`` in every field that can hold it."""
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
    """The evaluation of ``text`` after redaction."""
    redacting = Redacting(settings or Settings())
    redacting.honour((conf or {}).get)
    return repr(redacting(evaluation_of(text)))


OWN = [
    {"pagerduty_routing_key": KEY},
    {"receivers": [{"type": "pagerduty", "name": "a", "routing_key": KEY}]},
    {"webhook_url": f"https://hooks.example.com/{KEY}"},
    {"webhook_url": f"https://hooks.example.com/x?a={KEY}"},
    {"heartbeat_url": f"https://hc.example.com/{KEY}"},
    {"alertmanager_urls": [f"https://user:{KEY}@am"]},
    {"receivers": [{"type": "alertmanager", "name": "a", "urls": [f"https://u:{KEY}@am"]}]},
]


def test_keys_of_the_settings_are_hidden():
    """For example, a job may print its environment."""
    texts = [left(f"started with {KEY} as ever", Settings(**settings)) for settings in OWN]

    assert [text for text in texts if KEY in text or "as ever" not in text] == []


def test_keys_in_files_are_hidden(tmp_path):
    path = tmp_path / "key"
    path.write_text(f"{KEY}\n")
    names = [
        "pagerduty_routing_key_file",
        "slack_webhook_url_file",
        "heartbeat_url_file",
        "http_token_file",
    ]

    assert [
        name for name in names if KEY in left(f"read {KEY}", Settings(**{name: str(path)}))
    ] == []


def test_each_header_in_a_file_of_headers_is_hidden(tmp_path):
    (tmp_path / "headers").write_text(f"api-key={KEY},Authorization=Bearer%20{TOKEN}\n")
    settings = Settings(otlp_endpoint="https://x", otlp_headers_file=str(tmp_path / "headers"))

    assert KEY not in left(f"posted with {KEY}", settings)
    assert TOKEN not in left(f"posted with {TOKEN}", settings)


def test_rotated_key_is_hidden_after_a_refresh(tmp_path):
    path = tmp_path / "key"
    path.write_text(KEY)
    redacting = Redacting(Settings(pagerduty_routing_key_file=str(path)))
    assert TOKEN in repr(redacting(evaluation_of(f"the new one is {TOKEN}")))
    path.write_text(TOKEN)
    redacting.refresh()

    assert TOKEN not in repr(redacting(evaluation_of(f"the new one is {TOKEN}")))
    assert redacting.text(f"the new one is {TOKEN}") == "the new one is [redacted]"


def test_hanging_key_file_does_not_block_evaluation(tmp_path):
    """A FIFO without a writer: reading it blocks, as a file on a dead NFS server does."""
    path = tmp_path / "key"
    path.write_text(KEY)
    redacting = Redacting(Settings(pagerduty_routing_key_file=str(path)))
    path.unlink()
    os.mkfifo(path)
    reading = threading.Thread(target=redacting.refresh, daemon=True)
    reading.start()

    assert KEY not in repr(redacting(evaluation_of(f"the key is {KEY}")))
    assert reading.is_alive()
    os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK))


def test_texts_matching_redact_patterns_are_hidden():
    settings = Settings(redact_patterns=["acct-[0-9]{6,8}"])

    assert "acct-1234567" not in left("no row for acct-1234567 there", settings)
    assert "acct-12 " in left("no row for acct-12 there", settings)


def test_texts_matching_sparks_patterns_are_hidden():
    conf = {"spark.redaction.string.regex": "cust[0-9]+", "spark.redaction.regex": "(?i)wallet"}

    assert "cust77" not in left("no row for cust77", conf=conf)
    assert "abc" not in left("my.wallet=abc", conf=conf)
    assert "cust77" in left("no row for cust77")


def test_invalid_pattern_is_refused():
    for pattern in ("(", "[a-", "(?P<x", "*"):
        with pytest.raises(SettingsError, match="'redact_patterns'"):
            Redacting(Settings(redact_patterns=[pattern]))


def test_userinfo_and_tokens_of_a_url_are_secret():
    """The host and common words of a URL are not secret, nor are the names of headers."""
    parts = {
        KEY: {KEY},
        "https://hooks.example.com": set(),
        "http://127.0.0.1:8080/pages": set(),
        "https://am.example.com/alertmanager": set(),
        HOOK: {f"/services/{TOKEN}", TOKEN},
        "https://t0ken:word@h/x": {"t0ken", "word"},
        "https://t0ken:w%2Ford@h/x": {"t0ken", "w%2Ford", "w/ord"},
        f"https://h/x?a={TOKEN}&v=1": {TOKEN},
        "https://h/4c1d9a7e2b": {"4c1d9a7e2b", "/4c1d9a7e2b"},
        "https://[": {"https://["},
        "a=bc12,Auth=Basic%20xyz9": {
            "a=bc12,Auth=Basic%20xyz9",
            "bc12",
            "Basic%20xyz9",
            "Basic xyz9",
            "xyz9",
        },
    }

    assert {value: set(secret_parts(value)) for value in parts} == parts


# -- redaction covers a whole evaluation ------------------------------------------------------


planted = st.sampled_from(PLANTED)


def finding(text, **changes):
    entry = Finding(
        alertname="StreamingQueryFailed",
        query="bronze",
        severity=Severity.CRITICAL,
        state=QueryState.FAILED,
        reason=f"ValueError: {text}",
        summary=f"bronze failed: {text}",
        evidence={"error_message": text, "checkpoint": f"/tables/{text}", "all_queries": "7 of 8"},
        cause=text,
    )
    return msgspec.structs.replace(entry, **changes)


def evaluated(*findings):
    health = {entry.query: QueryHealth(entry.state, entry.reason, 60.0) for entry in findings}
    return Evaluation(findings, {**health, "silver": QueryHealth(QueryState.RUNNING, "", 60.0)})


def rendered(evaluation):
    """Everything that can be sent or shown of an evaluation."""
    alerts = [
        alert_of(entry, "app", Guidance("https://runbooks/{alertname}.md"), 0.0)
        for entry in evaluation.findings
    ]
    return msgspec.json.encode([evaluation, alerts]).decode()


@given(st.lists(planted, min_size=1, max_size=4), st.text(max_size=20), st.text(max_size=20))
def test_many_secrets_in_any_text_are_redacted_from_the_evaluation(secrets, begin, end):
    findings = [finding(f"{begin}\n{entry.text}\n{end}", query=entry.kind) for entry in secrets]
    text = rendered(redacted(evaluated(*findings), Redactor().text))

    assert [item.kind for item in secrets if item.secret in text] == []


def test_labels_of_an_alert_are_not_redacted():
    """Labels are the identity: an alert under another key would never be resolved."""
    before = finding("x", query=f"token={HUNTER}")
    (after,) = redacted(evaluated(before), Redactor().text).findings

    assert (after.alertname, after.query, after.severity, after.state) == (
        before.alertname, before.query, before.severity, before.state
    )  # fmt: skip


def test_redaction_changes_only_the_reason_of_a_health():
    evaluation = Evaluation(
        (), {"a": QueryHealth(QueryState.STALLED, f"token={HUNTER}", 7.0, ignored=True)}
    )

    assert redacted(evaluation, Redactor().text).health == {
        "a": QueryHealth(QueryState.STALLED, f"token={REDACTED}", 7.0, ignored=True)
    }


def test_withheld_finding_keeps_its_error_class():
    evidence = {ERROR_CLASS: "ConcurrentAppendException", "error_message": HUNTER}
    evaluation = evaluated(finding(HUNTER, evidence=evidence))
    (reported,) = redacted(evaluation, Redactor(patterns=["("]).text).findings

    assert reported.reason == f"ConcurrentAppendException: {WITHHELD}"
    assert reported.evidence == {
        ERROR_CLASS: "ConcurrentAppendException",
        "error_message": WITHHELD,
    }
    assert reported.summary == WITHHELD


def test_withheld_finding_without_an_error_is_still_reported():
    (reported,) = redacted(evaluated(finding(HUNTER)), Redactor(patterns=["("]).text).findings

    assert (reported.alertname, reported.query, reported.reason) == (
        "StreamingQueryFailed",
        "bronze",
        WITHHELD,
    )
