"""Redacts secrets named by our settings and Spark's; an unusable pattern hides more."""

from __future__ import annotations

import json
import logging
import re
from base64 import b64encode, urlsafe_b64encode
from types import SimpleNamespace
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import assume, given
from hypothesis import settings as effort
from hypothesis import strategies as st
from support.planted import HUNTER, PLANTED

from querypulse.core import redaction
from querypulse.core.redaction import (
    MAX_WITH_PATTERNS,
    MIN_CHARACTERS,
    REDACTED,
    WITHHELD,
    Redactor,
    secrets_of_url,
    unusable,
)
from querypulse.settings.secrets import NAMES, OPTIONS, TEXTS, session_redactor

OWN = "R0UT1NG/key+with=signs 'and' \"quotes\" ü"
secrets = st.text(min_size=MIN_CHARACTERS, max_size=40).filter(lambda text: len(text.strip()) > 5)
words = st.text(alphabet="xyz .\n", max_size=20)

# -- secrets of our settings ------------------------------------------------------------------


def test_own_secret_is_redacted_in_every_encoding():
    forms = [
        OWN,
        quote(OWN),
        quote(OWN, safe=""),
        quote_plus(OWN),
        re.sub("%..", lambda escape: escape.group().lower(), quote(OWN, safe="")),
        json.dumps(OWN),
        json.dumps(OWN, ensure_ascii=False),
        b64encode(OWN.encode()).decode(),
        urlsafe_b64encode(OWN.encode()).decode(),
        b64encode(f"user:{OWN}".encode()).decode(),
        b64encode(f"me:{OWN}".encode()).decode(),
        b64encode(f"a:{OWN}!".encode()).decode(),
    ]
    redactor = Redactor([OWN])
    clean = {form: redactor.text(f"posting with {form} failed") for form in forms}

    assert [form for form in forms if form.strip('"')[6:-6] in clean[form]] == []
    assert [form for form in forms if REDACTED not in clean[form]] == []
    assert [form for form in forms if not clean[form].endswith(" failed")] == []


@given(secrets, words, words)
def test_any_own_secret_is_redacted_plain_url_encoded_and_in_base64(secret, begin, end):
    redactor = Redactor([secret])
    plain = secret.strip()
    assume(plain not in begin + end and plain not in REDACTED)

    for form in (plain, quote(plain, safe=""), b64encode(plain.encode()).decode().rstrip("=")):
        clean = redactor.text(f"{begin} {form} {end}")
        assert form not in clean.replace(REDACTED, "")
        assert redactor.text(clean) == clean


def test_short_secret_hides_nothing():
    shown = {
        secret: Redactor([secret]).text("abc a b c")
        for secret in ("", " ", "a", "abc", "   abc   ")
    }

    assert shown == dict.fromkeys(shown, "abc a b c")


def test_secret_parts_of_a_receivers_url():
    expected = {
        "https://hooks.example/services/T0/B0/hunter2hunter2": {"hunter2hunter2", "/services/T0/B0/hunter2hunter2"},
        "https://user:hunter2@example/alerts": {"user", "hunter2"},
        "https://example/hook?code=hunter2&v=1": {"hunter2"},
        "https://example/hook/": set(),
        "http://127.0.0.1:8080": set(),
        "https://example/4c1d9a7e2b": {"4c1d9a7e2b", "/4c1d9a7e2b"},
    }  # fmt: skip

    assert {url: set(secrets_of_url(url)) for url in expected} == expected


# -- patterns ---------------------------------------------------------------------------------


def test_text_matching_a_pattern_is_hidden():
    redactor = Redactor(patterns=[r"ACME-\d+", r"(?i)internal \w+"])

    assert redactor.text("ACME-77 of INTERNAL thing") == f"{REDACTED} of {REDACTED}"


def test_key_pattern_hides_the_value():
    redactor = Redactor(key_patterns=["(?i)REGION"])
    texts = ("region=eu", "acme.region: eu", '"region": "eu"', "region -> eu")
    clean = [redactor.text(text) for text in texts]

    assert [text for text in clean if "eu" in text or "region" not in text] == []


def test_option_pattern_hides_the_value_of_an_option():
    redactor = Redactor(option_patterns=["(?i)url|jdbc"])
    texts = ("url=jdbc:x", "'url': 'jdbc:x'", "Map(url -> jdbc:x)", "(url,jdbc=jdbc:x)")

    assert [text for text in texts if "jdbc:x" in redactor.text(text)] == []


def test_option_pattern_leaves_prose_unchanged():
    redactor = Redactor(option_patterns=["(?i)url"])
    texts = ("hourly: no commit for 60 s", "see the url: it is gone", "curl 7")

    assert [text for text in texts if redactor.text(text) != text] == []


@given(
    st.sampled_from([r"\w+", "e", "x*", r"\[.*?\]", "(?s).*", "redacted", "d|t"]),
    st.lists(st.sampled_from(["a", "red", "[", "]", " ", "x", "token=b "]), max_size=8),
)
@effort(max_examples=300)
def test_redacting_twice_with_any_pattern_changes_nothing(pattern, parts):
    redactor = Redactor(patterns=[pattern])
    once = redactor.text("".join(parts))

    assert redactor.text(once) == once


def test_custom_pattern_sees_a_bounded_text():
    """A quadratic pattern must not block the worker for long."""
    seen = []
    redactor = Redactor(patterns=["a"])
    redactor._patterns = [SimpleNamespace(sub=lambda _hide, text: seen.append(text) or text)]
    redactor.text("b " * 40_000)

    assert seen
    assert max(map(len, seen)) <= MAX_WITH_PATTERNS


# -- unusable patterns --------------------------------------------------------------------------


def test_pattern_that_python_cannot_use_like_java_is_unusable():
    patterns = (
        *(r"\p{Alpha}+", "(", "[a-z&&[^b]]", "[[a]"),
        *(r"\Qsecret\E", "(?<name>x)", r"\hfoo", "a{2,1}"),
    )
    messages = {pattern: unusable(pattern) for pattern in patterns}
    words = "not a regular expression Python can use: "

    assert {pattern for pattern, text in messages.items() if not text.startswith(words)} == set()
    assert {pattern for pattern, text in messages.items() if "secret" in text} == set()


def test_inline_flag_applies_to_the_whole_pattern():
    """Java applies it only to the rest of the pattern; here it hides more, never less."""
    assert Redactor(patterns=["acme|(?i)corp"]).text("ACME Corp") == f"{REDACTED} {REDACTED}"


def test_unusable_text_pattern_withholds_every_text():
    redactor = Redactor(patterns=[r"\p{Alpha}"])

    assert redactor.text("Files were added") == WITHHELD
    assert redactor.text("") == ""


def test_unusable_key_pattern_hides_every_value():
    redactor = Redactor(key_patterns=[r"\p{Alpha}"])

    assert redactor.text("a=b, c: d and e") == f"a={REDACTED}, c: {REDACTED} and e"


def test_unusable_option_pattern_hides_every_option():
    redactor = Redactor(option_patterns=[r"\p{Alpha}"])

    assert redactor.text("a=b, c: d and e") == f"a={REDACTED}, c: d and e"


def test_text_whose_redaction_fails_is_withheld(monkeypatch):
    def fail(*_):
        raise RecursionError

    monkeypatch.setattr(redaction, "hide_values", fail)  # no real text makes it fail

    assert Redactor().text(f"token={HUNTER}") == WITHHELD


# -- Spark's own settings -----------------------------------------------------------------------


def session(**conf):
    """A redactor for a session with these settings; ``__`` means a dot."""
    values = {name.replace("__", "."): value for name, value in conf.items()}
    return session_redactor(values.get)


def test_default_session_hides_url_options_and_all_known_shapes():
    redactor = session()

    assert redactor.text("options: {'url': 'jdbc:x'}") == f"options: {{'url': '{REDACTED}'}}"
    leaked = [entry.kind for entry in PLANTED if entry.secret in redactor.text(entry.text)]
    assert leaked == []


def test_session_settings_add_patterns():
    redactor = session_redactor(
        {NAMES: "region", OPTIONS: "dbtable", TEXTS[0]: "ACME-1", TEXTS[1]: "ACME-2"}.get,
        secrets=["own-value"],
        patterns=["ACME-3"],
    )

    clean = redactor.text("region: eu, dbtable=t, url=x, ACME-1 ACME-2 ACME-3 own-value ACME-4")

    assert clean == (
        f"region: {REDACTED}, dbtable={REDACTED}, url=x, "
        f"{REDACTED} {REDACTED} {REDACTED} {REDACTED} ACME-4"
    )


@pytest.mark.parametrize("name", [NAMES, OPTIONS, *TEXTS])
def test_unusable_setting_is_logged_once_without_its_value(name, caplog):
    redactor = session_redactor({name: r"hunter2\p{Alpha}"}.get)
    redactor.text("a=b")
    redactor.text("a=b")

    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert name in record.getMessage()
    assert "hunter2" not in record.getMessage()
    assert "b" not in redactor.text("a=b")
