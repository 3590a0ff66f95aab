"""What our settings and Spark's name as secret is hidden too; what cannot be read hides more."""

from __future__ import annotations

import json
import logging
import re
import time
from base64 import b64encode, urlsafe_b64encode
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support.planted import HUNTER, PLANTED

from querypulse.listener import redaction
from querypulse.listener.own_secrets import MIN_CHARACTERS, secrets_of_url
from querypulse.listener.redaction import (
    CUT_CHARACTERS,
    MAX_WITH_PATTERNS,
    REDACTED,
    WITHHELD,
    Redactor,
    redact,
    unusable,
)
from querypulse.listener.spark_redaction import NAMES, OPTIONS, TEXTS, session_redactor

OWN = "R0UT1NG/key+with=signs 'and' \"quotes\" ü"
secrets = st.text(min_size=MIN_CHARACTERS, max_size=40).filter(lambda text: len(text.strip()) > 5)
words = st.text(alphabet="xyz .\n", max_size=20)

# -- our own ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "form",
    [
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
    ],
)
def test_our_own_secret_is_gone_in_every_form(form):
    core = form.strip('"')[6:-6]
    clean = Redactor([OWN]).text(f"posting with {form} failed")

    assert core not in clean
    assert REDACTED in clean
    assert clean.endswith(" failed")


@given(secrets, words, words)
def test_any_secret_of_ours_is_gone_in_plain_url_encoded_and_base64(secret, begin, end):
    redactor = Redactor([secret])
    plain = secret.strip()
    assume(plain not in begin + end and plain not in REDACTED)

    for form in (plain, quote(plain, safe=""), b64encode(plain.encode()).decode().rstrip("=")):
        clean = redactor.text(f"{begin} {form} {end}")
        assert form not in clean.replace(REDACTED, "")
        assert redactor.text(clean) == clean


@pytest.mark.parametrize("secret", ["", " ", "a", "abc", "   abc   "])
def test_what_is_too_short_to_be_a_secret_hides_nothing(secret):
    assert Redactor([secret]).text("abc a b c") == "abc a b c"


@pytest.mark.parametrize("secret", [REDACTED, "redacted", "acte"])
def test_a_secret_that_is_part_of_our_own_mark_does_not_make_it_grow(secret):
    redactor = Redactor([secret])
    once = redactor.text(f"token={HUNTER} is {secret}")

    assert redactor.text(once) == once


def test_hundreds_of_our_own_secrets_cost_little():
    """The worker redacts all texts of all findings, four times a second."""
    redactor = Redactor([f"secret-number-{index}" for index in range(100)])
    began = time.process_time()
    redactor.text("x" * 60_000)

    assert time.process_time() - began < 1.0


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://hooks.example/services/T0/B0/hunter2hunter2", {"hunter2hunter2", "/services/T0/B0/hunter2hunter2"}),
        ("https://user:hunter2@example/alerts", {"user", "hunter2"}),
        ("https://example/hook?code=hunter2&v=1", {"hunter2"}),
        ("https://example/hook/", set()),
        ("http://127.0.0.1:8080", set()),
        ("https://example/4c1d9a7e2b", {"4c1d9a7e2b", "/4c1d9a7e2b"}),
    ],
)  # fmt: skip
def test_the_secret_parts_of_a_receivers_url_are_known(url, expected):
    assert set(secrets_of_url(url)) == expected


# -- patterns ---------------------------------------------------------------------------------


def test_what_a_pattern_matches_is_hidden():
    redactor = Redactor(patterns=[r"ACME-\d+", r"(?i)internal \w+"])

    assert redactor.text("ACME-77 of INTERNAL thing") == f"{REDACTED} of {REDACTED}"


@pytest.mark.parametrize("text", ["region=eu", "acme.region: eu", '"region": "eu"', "region -> eu"])
def test_what_a_pattern_of_names_matches_hides_the_value(text):
    clean = Redactor(key_patterns=["(?i)REGION"]).text(text)

    assert "eu" not in clean
    assert "region" in clean


@pytest.mark.parametrize("text", ["url=jdbc:x", "'url': 'jdbc:x'", "Map(url -> jdbc:x)", "(url,jdbc=jdbc:x)"])  # fmt: skip
def test_a_pattern_of_options_hides_the_value_of_an_option(text):
    assert "jdbc:x" not in Redactor(option_patterns=["(?i)url|jdbc"]).text(text)


@pytest.mark.parametrize(
    "text", ["hourly: no commit for 60 s", "see the url: it is gone", "curl 7"]
)
def test_a_pattern_of_options_leaves_prose_alone(text):
    assert Redactor(option_patterns=["(?i)url"]).text(text) == text


@pytest.mark.parametrize("pattern", [r"\w+", "e", "x*", r"\[.*?\]", "(?s).*", "redacted", "d|t"])
@given(st.lists(st.sampled_from(["a", "red", "[", "]", " ", "x", "token=b "]), max_size=8))
def test_redacting_twice_with_any_pattern_changes_nothing_more(pattern, parts):
    redactor = Redactor(patterns=[pattern])
    once = redactor.text("".join(parts))

    assert redactor.text(once) == once


@pytest.mark.parametrize("pattern", [r".*x", r"(\w+\s?)*!", r"[^=]*=\w+$"])
def test_a_pattern_of_somebody_else_sees_little_text(pattern):
    """One that takes time by the square of the text must not hold the worker for long."""
    seen = []
    redactor = Redactor(patterns=["a"])
    redactor._patterns = [
        type("Spy", (), {"sub": lambda _, hide, text: seen.append(text) or text})()
    ]
    redactor.text("b " * 40_000)

    assert seen
    assert max(map(len, seen)) <= MAX_WITH_PATTERNS


def test_a_long_text_is_cut_where_somebody_elses_patterns_apply():
    redactor = Redactor(patterns=["ACME"])
    once = redactor.text("b " * 40_000)

    assert len(once) == MAX_WITH_PATTERNS - CUT_CHARACTERS
    assert redactor.text(once) == once


# -- patterns that cannot be used ---------------------------------------------------------------


@pytest.mark.parametrize(
    "pattern",
    [r"\p{Alpha}+", "(", "[a-z&&[^b]]", "[[a]", r"\Qsecret\E", "(?<name>x)", r"\hfoo", "a{2,1}"],
)
def test_a_pattern_that_python_reads_differently_or_not_at_all_is_unusable(pattern):
    assert unusable(pattern).startswith("not a regular expression Python can use: ")
    assert "secret" not in unusable(pattern)


@pytest.mark.parametrize("pattern", ["", "(?i)secret|password|token|access[.]?key", "a|(?i)b", "(?m)^x", "a{1,2}?"])  # fmt: skip
def test_a_pattern_of_sparks_own_kind_is_usable(pattern):
    assert unusable(pattern) == ""


def test_a_flag_in_the_middle_counts_for_the_whole_pattern():
    """Java lets it; here it hides more, never less."""
    assert Redactor(patterns=["acme|(?i)corp"]).text("ACME Corp") == f"{REDACTED} {REDACTED}"


def test_an_unusable_pattern_of_text_withholds_every_text():
    redactor = Redactor(patterns=[r"\p{Alpha}"])

    assert redactor.text("Files were added") == WITHHELD
    assert redactor.text("") == ""


def test_an_unusable_pattern_of_names_hides_every_value():
    redactor = Redactor(key_patterns=[r"\p{Alpha}"])

    assert redactor.text("a=b, c: d and e") == f"a={REDACTED}, c: {REDACTED} and e"


def test_an_unusable_pattern_of_options_hides_every_option():
    redactor = Redactor(option_patterns=[r"\p{Alpha}"])

    assert redactor.text("a=b, c: d and e") == f"a={REDACTED}, c: d and e"


def test_a_text_whose_redaction_fails_is_withheld(monkeypatch):
    def fail(*_):
        raise RecursionError

    monkeypatch.setattr(redaction, "hide_values", fail)  # nothing that can be sent makes it fail

    assert Redactor().text(f"token={HUNTER}") == WITHHELD


@pytest.mark.parametrize("text", [None, 3, b"token=x"])
def test_what_is_no_text_is_withheld(text):
    assert redact(text) == WITHHELD


# -- Spark's own settings -----------------------------------------------------------------------


def session(**conf):
    """A redactor of a session in which these are set; dots are written as ``__``."""
    values = {name.replace("__", "."): value for name, value in conf.items()}
    return session_redactor(values.get)


def test_a_session_that_sets_nothing_hides_urls_of_options_and_all_known_shapes():
    redactor = session()

    assert redactor.text("options: {'url': 'jdbc:x'}") == f"options: {{'url': '{REDACTED}'}}"
    leaked = [one.kind for one in PLANTED if one.secret in redactor.text(one.text)]
    assert leaked == []


@pytest.mark.parametrize("name", ["secret", "password", "token", "access.key", "accesskey", "mySecret"])  # fmt: skip
def test_the_names_spark_hides_by_default_are_hidden(name):
    assert session().text(f"spark.acme.{name}={HUNTER}") == f"spark.acme.{name}={REDACTED}"


def test_a_session_names_its_own():
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


def test_a_session_may_want_no_option_hidden():
    assert session_redactor({OPTIONS: ""}.get).text("url=x") == "url=x"


@pytest.mark.parametrize("name", [NAMES, OPTIONS, *TEXTS])
def test_a_setting_that_cannot_be_used_is_named_once_without_its_value(name, caplog):
    redactor = session_redactor({name: r"hunter2\p{Alpha}"}.get)
    redactor.text("a=b")
    redactor.text("a=b")

    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert name in record.getMessage()
    assert "hunter2" not in record.getMessage()
    assert "b" not in redactor.text("a=b")


def test_usable_settings_are_not_worth_a_word(caplog):
    session_redactor({NAMES: "(?i)secret", OPTIONS: "(?i)url", TEXTS[0]: "x"}.get)

    assert caplog.records == []
