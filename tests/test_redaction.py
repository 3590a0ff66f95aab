"""Whatever surrounds a secret, it is gone; test_failure.py has the shapes one by one."""

from __future__ import annotations

import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from querypulse.listener.failure import describe_failure
from querypulse.listener.redaction import MAX_CHARACTERS, REDACTED, redact

SECRET = "hunter2hunter2"
WORDS = ["batch", "812", "of", "run", "offset", "topic", "partition", "day=1", "a.b.C:", "at", "->"]

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
        "x-signature",
        "sig",
    ]
)
quotes = st.sampled_from(
    [("=", ""), (": ", ""), (" = ", ""), (":", ""), ('": "', '"'), ("': '", "'"), ('="', '"'), ("='", "'")]
)  # fmt: skip
before = st.sampled_from(["", " ", "Error: ", "jdbc:postgresql://h/db?user=u&", "\n", "\tat "])
after = st.sampled_from(["", " ", "&ssl=true", ";x=y", "}", "\n\tat x.y(Z.scala:1)", ", next"])


@st.composite
def named_secrets(draw):
    opening, closing = draw(quotes)
    return draw(before) + draw(names) + opening + SECRET + closing + draw(after)


@given(st.lists(named_secrets(), min_size=1, max_size=4))
def test_a_named_secret_is_gone_whatever_stands_around_it(texts):
    clean = redact(" ".join(texts))

    assert SECRET not in clean
    assert clean.count(REDACTED) >= 1


@given(st.lists(named_secrets() | st.text(alphabet="ab =:;,&/@{}\n", max_size=20), max_size=5))
@example(['{"password":"a\\"b"}'])
def test_redacting_twice_changes_nothing_more(texts):
    once = redact(" ".join(texts))

    assert redact(once) == once


@given(st.text(max_size=300))
def test_a_failure_of_any_text_is_short_and_redacted(text):
    failure = describe_failure(f"a.b.C: {text} password={SECRET}")

    assert SECRET not in failure.message
    assert len(failure.error_class) <= 100


@given(st.lists(st.sampled_from(WORDS)))
def test_words_without_a_secret_stay(words):
    assert redact(" ".join(words)) == " ".join(words)


@pytest.mark.parametrize(
    "text",
    [
        f"fs.azure.account.key.storage.dfs.core.windows.net={SECRET}",
        f"spark.hadoop.fs.azure.account.oauth2.client.secret.storage.dfs.core.windows.net: {SECRET}",
        f'{{\\"password\\": \\"{SECRET}\\"}}',
        f"Map(user -> u, password -> {SECRET})",
        f"[('user', 'u'), ('password', '{SECRET}')]",
        f'{{"password": "hun\\"{SECRET}"}}',
        f'{{"password": "{SECRET}',
        f"https://user:p@{SECRET}@host/x",
    ],
    ids=["azure key", "azure oauth", "escaped json", "scala map", "python pairs", "escaped quote", "cut short", "at sign"],
)  # fmt: skip
def test_secrets_as_sparks_own_exceptions_carry_them_are_gone(text):
    assert SECRET not in redact(text)


def test_what_is_cut_is_cut_before_it_could_be_kept():
    text = "x" * (MAX_CHARACTERS - 10) + f" password={SECRET}"

    assert SECRET not in redact(text)
    assert len(redact(text)) <= MAX_CHARACTERS + len(REDACTED)


def test_many_beginnings_of_keys_without_an_end_take_no_time_to_speak_of():
    """The worker redacts; while it does, nobody is told of anything."""
    began = time.process_time()
    redact("-----BEGIN PRIVATE KEY" * 3000)

    assert time.process_time() - began < 1.0
