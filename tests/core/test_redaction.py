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
