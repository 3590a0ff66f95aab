"""Evaluations are redacted: secrets of our settings, of Spark's and of custom patterns."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.planted import HUNTER, PLANTED
from support.story import Story

from querypulse.alerting.evaluate import Evaluation
from querypulse.alerting.facts import NotSeenYet
from querypulse.alerting.finding import Finding, QueryHealth, Severity, Words
from querypulse.alerting.redaction import redacted
from querypulse.alerting.words.messages import Guidance, alert_of
from querypulse.core.redaction import WITHHELD, Redactor
from querypulse.core.secret import secret_parts
from querypulse.core.states import QueryState
from querypulse.sidecar import Settings, SettingsError
from querypulse.sidecar.assemble import make_redactor
from querypulse.sidecar.failure import first_failure

KEY = "R0123456789abcdefghijklmnopqrstu"
TOKEN = "T0KEN567890abcdefgh"
HOOK = f"https://hooks.example.com/services/{TOKEN}"


def finding(text, **changes):
    """A finding with ``text`` in every field that can hold it."""
    entry = Finding(
        alertname="StreamingQueryFailed",
        query="bronze",
        severity=Severity.CRITICAL,
        state=QueryState.FAILED,
        facts=NotSeenYet(),
        words=Words(
            reason=f"ValueError: {text}",
            summary=f"bronze failed: {text}",
            evidence={"error_message": text, "checkpoint": f"/tables/{text}"},
            cause=f"failed: ValueError at {text}",
        ),
    )
    return msgspec.structs.replace(entry, **changes)


def evaluated(*findings):
    health = {entry.query: QueryHealth(entry.state, reason=entry.reason) for entry in findings}
    return Evaluation(findings, health)


def evaluation_of(text):
    return evaluated(finding(text))


def left(text, settings=None, conf=None):
    """The evaluation of ``text`` after redaction."""
    redacting = make_redactor(settings or Settings())
    redacting.honour((conf or {}).get)
    return repr(redacting(evaluation_of(text)))


OWN = [
    {"pagerduty_routing_key": KEY},
    {"webhook_url": f"https://hooks.example.com/{KEY}"},
    {"webhook_url": f"https://hooks.example.com/x?a={KEY}"},
    {"heartbeat_url": f"https://hc.example.com/{KEY}"},
    {"alertmanager_urls": [f"https://user:{KEY}@am"]},
]


def test_keys_of_the_settings_are_hidden():
    """For example, a job may print its environment."""
    texts = [left(f"started with {KEY} as ever", Settings(**settings)) for settings in OWN]

    assert [text for text in texts if KEY in text or "as ever" not in text] == []


def test_keys_in_files_are_hidden(tmp_path):
    (tmp_path / "key").write_text(f"{KEY}\n")
    names = ["pagerduty_routing_key", "slack_webhook_url", "heartbeat_url", "http_token"]
    settings = [Settings(**{f"{name}_file": str(tmp_path / "key")}) for name in names]

    assert [KEY in left(f"read {KEY}", each) for each in settings] == [False] * len(names)


def test_each_header_in_a_file_of_headers_is_hidden(tmp_path):
    (tmp_path / "headers").write_text(f"api-key={KEY},Authorization=Bearer%20{TOKEN}\n")
    settings = Settings(otlp_endpoint="https://x", otlp_headers_file=str(tmp_path / "headers"))

    assert KEY not in left(f"posted with {KEY}", settings)
    assert TOKEN not in left(f"posted with {TOKEN}", settings)


def test_rotated_key_is_hidden_after_a_refresh(tmp_path):
    path = tmp_path / "key"
    path.write_text(KEY)
    redacting = make_redactor(Settings(pagerduty_routing_key_file=str(path)))
    assert TOKEN in repr(redacting(evaluation_of(f"the new one is {TOKEN}")))
    path.write_text(TOKEN)
    redacting.refresh()

    assert TOKEN not in repr(redacting(evaluation_of(f"the new one is {TOKEN}")))
    assert redacting.text(f"the new one is {TOKEN}") == "the new one is [redacted]"


def test_texts_that_match_a_pattern_of_ours_or_of_spark_are_hidden():
    ours = Settings(redact_patterns=["acct-[0-9]{6,8}"])
    conf = {"spark.redaction.string.regex": "cust[0-9]+", "spark.redaction.regex": "(?i)wallet"}

    assert "acct-1234567" not in left("no row for acct-1234567 there", ours)
    assert "acct-12 " in left("no row for acct-12 there", ours)
    assert "cust77" not in left("no row for cust77", conf=conf)
    assert "abc" not in left("my.wallet=abc", conf=conf)
    assert "cust77" in left("no row for cust77")


def test_invalid_pattern_is_refused():
    for pattern in ("(", "[a-", "(?P<x", "*"):
        with pytest.raises(SettingsError, match="'redact_patterns'"):
            make_redactor(Settings(redact_patterns=[pattern]))


HEADERS = "a=bc12,Auth=Basic%20xyz9"


def test_passwords_and_tokens_of_urls_and_headers_are_secret():
    """Hosts, users, the words of a path and of a query, and the names of headers are not."""
    parts = {
        KEY: {KEY},
        "https://hooks.example.com": set(),
        "http://127.0.0.1:8080/pages": set(),
        "https://am.example.com/alertmanager": set(),
        HOOK: {f"/services/{TOKEN}", TOKEN},
        "https://t0ken@h/x": {"t0ken"},
        "https://etl:word@h/x": {"word"},
        f"https://{TOKEN}:word@h/x": {TOKEN, "word"},
        "https://etl:w%2Ford@h/x": {"w%2Ford", "w/ord"},
        f"https://h/x?a={TOKEN}&v=1": {TOKEN},
        "https://h/x?token=abc&env=prod&api-version=2016-06-01&region=us-east-1": {"abc"},
        "https://h/x?key=abcd&sig=e%2Ff": {"abcd", "e/f"},
        "https://h/4c1d9a7e2b": {"4c1d9a7e2b", "/4c1d9a7e2b"},
        "https://u:word@h:8443/alerts/prod": {"word", "h:8443/alerts/prod"},
        "https://[": {"https://["},
        HEADERS: {HEADERS, "Basic%20xyz9", "Basic xyz9", "xyz9"},
        "x-tenant=prod": {"x-tenant=prod"},
        f"x-team={TOKEN},dsn=https://abcd@h": {f"x-team={TOKEN},dsn=https://abcd@h", TOKEN, "abcd"},
        "QWxhZGRpbg==": {"QWxhZGRpbg=="},
        "etl:pass word:1": {"etl:pass word:1", "pass word:1"},
    }

    assert {value: set(secret_parts(value)) for value in parts} == parts


FAILURE = "orders-prod failed: table prod.orders, region us-east-1, owner payments, at 10.0.0.12"


@pytest.mark.parametrize(
    "given",
    [
        {"webhook_url": "https://h/pages?env=prod&region=us-east-1&team=payments&for=orders"},
        {"webhook_url": "https://h/payments/prod"},
        {"heartbeat_url": "https://h/orders/prod"},
        {"alertmanager_urls": ["https://payments:abcd@10.0.0.12:9093/prod/"]},
        {"pushgateway_url": "http://10.0.0.12:9091/prod"},
        {"receivers": [{"name": "a", "type": "webhook", "url": "https://h/prod?orders=payments"}]},
        {
            "receivers": [
                {"name": "a", "type": "alertmanager", "urls": ["https://am/prod?tenant=payments"]}
            ]
        },
    ],
    ids=repr,
)
def test_names_in_the_settings_are_not_secret(given):
    assert FAILURE in left(FAILURE, Settings(**given))


def test_names_in_headers_are_not_secret(tmp_path):
    (tmp_path / "headers").write_text(f"x-tenant=prod,x-team=payments,api-key={KEY}\n")
    settings = Settings(otlp_endpoint="https://x", otlp_headers_file=str(tmp_path / "headers"))

    assert FAILURE in left(FAILURE, settings)
    assert KEY not in left(f"{FAILURE} {KEY}", settings)


def test_password_that_is_a_name_is_hidden_as_a_word_and_no_part_of_one():
    clean = left(f"refused prod; {FAILURE}", Settings(alertmanager_urls=["https://u:prod@am"]))

    assert f"refused [redacted]; {FAILURE}" in clean


def test_path_of_words_is_hidden_behind_its_host():
    settings = Settings(webhook_url="https://h.example.com:8443/open/sesame")
    clean = left("https://h.example.com:8443/open/sesame did not answer: /open/sesame-2", settings)

    assert "https://[redacted] did not answer: /open/sesame-2" in clean


planted = st.sampled_from(PLANTED)


@given(st.lists(planted, min_size=1, max_size=4), st.text(max_size=20), st.text(max_size=20))
def test_many_secrets_in_any_text_are_redacted_from_the_evaluation(secrets, begin, end):
    findings = [finding(f"{begin}\n{entry.text}\n{end}", query=entry.kind) for entry in secrets]
    clean = redacted(evaluated(*findings), Redactor().text)
    alerts = [alert_of(entry, "app", Guidance("https://x"), 0.0) for entry in clean.findings]
    text = msgspec.json.encode([clean, alerts]).decode()

    assert [item.kind for item in secrets if item.secret in text] == []


def test_labels_of_an_alert_are_not_redacted():
    """Labels are the identity: an alert under another key would never be resolved."""
    before = finding("x", query=f"token={HUNTER}")
    (after,) = redacted(evaluated(before), Redactor().text).findings

    assert (after.alertname, after.query, after.severity, after.state) == (
        before.alertname,
        before.query,
        before.severity,
        before.state,
    )


@pytest.mark.parametrize("evidence", [{"error_class": "ConcurrentAppendException"}, {}])
def test_withheld_finding_keeps_its_name_and_its_error_class(evidence):
    reason = ": ".join([*evidence.values(), WITHHELD])
    withhold = Redactor(patterns=["("]).text
    before = finding(HUNTER, words=Words(HUNTER, HUNTER, evidence | {"error_message": HUNTER}))
    (reported,) = redacted(evaluated(before), withhold).findings

    assert (reported.alertname, reported.query) == ("StreamingQueryFailed", "bronze")
    assert reported.words == Words(reason, WITHHELD, evidence | {"error_message": WITHHELD})


def test_pattern_that_spans_two_facts_hides_what_status_and_the_exception_say():
    """The class and the message of a failure are two facts, and one reason."""
    story = Story().started(at=0).commit(batch=0, at=10)
    story.ended(
        at=20, exception="x.WalletError: card 4111-2222 refused\n\tat x.Job.run(Job.java:1)"
    )
    evaluation = story.evaluate(21)
    redacting = make_redactor(Settings(redact_patterns=["WalletError: card [0-9-]+"]))
    clean = redacting(evaluation)
    failure = first_failure(story.snapshot(21), clean)

    assert "4111" in evaluation.findings[0].words.reason
    shown = [clean.findings[0].words, clean.health["a"].reason, failure.reason]
    assert "4111" not in repr(shown)
    assert "refused" in failure.reason
