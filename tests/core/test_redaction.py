"""Redaction removes secrets of every kind in any context, and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.planted import HUNTER, PLANTED

from querypulse.core import redaction
from querypulse.core.redaction import CUT_CHARACTERS, MAX_CHARACTERS, REDACTED, Redactor, redact
from querypulse.listener.failure import describe_failure

WORDS = ["batch", "812", "of", "run", "offset", "topic", "partition", "day=1", "a.b.C:", "at", "->"]
PRINTABLE = st.text(alphabet="ab =:;,&/@{}()[]<>\\\"'-.%\n", max_size=20)

planted = st.sampled_from(PLANTED)
names = st.sampled_from(
    [
        "password",
        "PASSWORD",
        "db.passwd",
        "pwd",
        "my_secret",
        "fs.s3a.secret.key",
        "access_key",
        "api-key",
        "authToken",
        "token",
        "privateKey",
        "client_credential",
        "pass",
        "DB_PASS",
        "dbPass",
        "x-signature",
        "sig",
    ]
)
quotes = st.sampled_from(
    [
        *[
            ("=", ""),
            (": ", ""),
            (" = ", ""),
            (":", ""),
            (" -> ", ""),
            ('": "', '"'),
            ("': '", "'"),
        ],
        *[('="', '"'), ("='", "'"), ('\\":\\"', '\\"'), ("=>", ""), ('=("', '")'), ("', '", "'")],
    ]
)
before = st.sampled_from(["", " ", "Error: ", "jdbc:postgresql://h/db?user=u&", "\n", "\tat ", "("])
after = st.sampled_from(["", " ", "&ssl=true", ";x=y", "}", "\n\tat x.y(Z.scala:1)", ", next", ")"])


@st.composite
def named_secrets(draw):
    name, (opening, closing) = draw(names), draw(quotes)
    opens = opening[: opening.index("'") + 1] if opening.startswith("',") else ""
    return draw(before) + opens + name + opening + HUNTER + closing + draw(after)


def test_secret_of_every_kind_is_redacted_for_good():
    clean = {secret: redact(secret.text) for secret in PLANTED}

    assert [secret.kind for secret, text in clean.items() if secret.secret in text] == []
    assert [secret.kind for secret, text in clean.items() if REDACTED not in text] == []
    assert [secret.kind for secret, text in clean.items() if redact(text) != text] == []


@given(st.lists(planted, min_size=1, max_size=4), before, after)
def test_all_secrets_in_one_text_are_redacted(secrets, begin, end):
    clean = redact("\n".join(begin + secret.text + end for secret in secrets))

    assert [secret.kind for secret in secrets if secret.secret in clean] == []


@given(st.lists(named_secrets(), min_size=1, max_size=4))
def test_named_secret_is_redacted_in_any_context(texts):
    clean = redact(" ".join(texts))

    assert HUNTER not in clean
    assert REDACTED in clean


@given(st.lists(named_secrets() | PRINTABLE | planted.map(lambda secret: secret.text), max_size=5))
@example(['{"password":"a\\"b"}'])
@example(['(password="x")'])
def test_redacting_twice_changes_nothing(texts):
    once = redact(" ".join(texts))

    assert redact(once) == once


@given(st.text(max_size=300))
def test_failure_of_any_text_is_short_and_redacted(text):
    failure = describe_failure(f"a.b.C: {text} password={HUNTER}")

    assert HUNTER not in failure.message
    assert len(failure.error_class) <= 100


def test_no_secret_is_reported_as_the_error_class():
    failures = {secret: describe_failure(f"{secret.text}: no", secret.text) for secret in PLANTED}

    assert [
        secret.kind
        for secret, failure in failures.items()
        if secret.secret in failure.error_class or secret.secret in failure.message
    ] == []


@given(st.lists(st.sampled_from(WORDS)))
def test_words_without_a_secret_are_unchanged(words):
    assert redact(" ".join(words)) == " ".join(words)


WITHOUT_SECRET = (
    "",
    "7 of 8 queries healthy; not: bronze",
    "batch 812 of run 4f: token",
    "tokens processed 5",
    "no commit for 75 s; W = 60 s = max(floor 60 s, (interval 10 s, longest 4 s) x 3)",
    "KafkaV2[Subscribe[clicks]]: 812 offsets",
    "abfss://container@account.dfs.core.windows.net/table",
    "https://github.com/querypulse/querypulse/blob/main/dashboards/runbooks/StreamingQueryFailed.md",
    "http://host:8080/path@2 answered 500",
    "hourly: 3, signal: 4, design=5, oauth2=6",
    "basic authentication required, use a bearer",
    "4f0c1b9e-1f6a-4b7e-9d0e-0d6a3a1b2c3d",
    "org.apache.spark.sql.execution.streaming.MicroBatchExecution.runBatch(MicroBatchExecution.scala:712)",
    "batch 812 committed, none planned",
    "setting 'webhook_secret_file': cannot read /etc/hook: no such file",
    "spark.acme.token.path=/run/token",
    "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "part-00000-4f0c1b9e-1f6a-4b7e-9d0e-0d6a3a1b2c3d-c000.snappy.parquet",
    "Files were added to partition [day=2024-05-01, hour=3] by a concurrent update",
    "://host:9092;x=y@z",
    "jdbc:sqlserver://host:1433;database=x;user=sa@tenant;encrypt=true",
    "jdbc:sqlserver://host;instanceName=a;user=sa@tenant",
    "get(url, auth=None, timeout=3) with password=null; token: None",
    "HTTPBasicAuth(user, word) at a.BasicAuth(BasicAuth.java:33)",
    "passed=3, bypass=1, compass: 2, pass_rate=0.98, pass-through: on",
    "risk-adjusted-position-by-account task-0123456789abcdefghijkl disk-usage-of-the-executor-nodes",
    "locale sk-SK, sk-learn; risk_live_view_of_orders, sk_test_, npm_config_registry_of_the_build, SG.a.b",
    "curl -u",
    "curl -u bob https://host:8080/p",
    "beeline -u jdbc:hive2://host:10000/default",
    "option -u: unbuffered; --user NAME: whose; -u a: b",
)


def test_text_without_a_secret_is_unchanged():
    assert {text: redact(text) for text in WITHOUT_SECRET} == {
        text: text for text in WITHOUT_SECRET
    }


def test_redacted_text_keeps_names_and_structure():
    text = f'{{"user": "u", "password": "{HUNTER}", "table": "t"}} at https://u:{HUNTER}@host/p'

    assert redact(text) == (
        f'{{"user": "u", "password": "{REDACTED}", "table": "t"}} at https://u:{REDACTED}@host/p'
    )


def test_only_the_secret_is_hidden():
    cases = {
        "jdbc:sqlserver://h:1433;user=sa@t;password=p@ss;w0rd@more;encrypt=true": "jdbc:sqlserver://h:1433;user=sa@t;password=*;encrypt=true",
        "jdbc:sqlserver://a:1;password=p@1;x@2, jdbc:sqlserver://b:1;password={q;@};x=y": "jdbc:sqlserver://a:1;password=*, jdbc:sqlserver://b:1;password={*};x=y",
        "jdbc:mysql://a:1,b:2/db?password=p@ss&x=y": "jdbc:mysql://a:1,b:2/db?password=*&x=y",
        "get(u, auth=('bob', 's)'), timeout=3)": "get(u, auth=('*', '*'), timeout=3)",
        'auth=BasicAuth("bob", "s", realm="r")': 'auth=BasicAuth("*", "*", realm="r")',
        "curl -u 'bob:p w' https://h/p": "curl -u '*' https://h/p",
        "['curl', '-u', 'bob:p', 'https://h']": "['curl', '-u', '*', 'https://h']",
        '{"url": "h;token=MySecret", "pass": "b"}': '{"url": "h;token=*", "pass": "*"}',
        "pass=true; pass: 3 of 4": "pass=*; pass: * of 4",
    }

    assert {text: redact(text).replace(REDACTED, "*") for text in cases} == cases


@pytest.mark.parametrize("share", [0.5, 0.8, 0.99])
def test_partial_secret_at_the_cut_is_redacted(share, monkeypatch):
    """A partial secret matches no shape but must not be published.

    Removing less at the cut than the product does is harder, and quicker.
    """
    cut = CUT_CHARACTERS // 8
    monkeypatch.setattr(redaction, "CUT_CHARACTERS", cut)
    monkeypatch.setattr(redaction, "MAX_CHARACTERS", 2 * cut)

    def shows_a_part(secret):
        part = secret.secret[: int(share * len(secret.secret))]
        begun = secret.text[: secret.text.index(secret.secret)] + part
        text = "x" * (2 * cut - len(begun) - 1) + " " + begun + secret.text
        return part in Redactor().text(text)

    assert [secret.kind for secret in PLANTED if shows_a_part(secret)] == []


@pytest.mark.parametrize("unit", ["token=a ", "x", "https://a:b@c ", '"password":"'])
def test_long_text_is_cut_and_redacting_it_twice_changes_nothing(unit):
    once = redact(unit * (2 * MAX_CHARACTERS // len(unit)))

    assert len(once) <= MAX_CHARACTERS
    assert redact(once) == once


def test_long_text_without_a_secret_is_kept_up_to_the_cut():
    assert len(redact("x" * (2 * MAX_CHARACTERS))) == MAX_CHARACTERS - CUT_CHARACTERS
