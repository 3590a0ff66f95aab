"""Redaction removes secrets of every kind in any context, those that settings name, and no more."""

from __future__ import annotations

import json
import logging
import re
from base64 import b64encode, urlsafe_b64encode
from types import SimpleNamespace
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import assume, example, given
from hypothesis import settings as effort
from hypothesis import strategies as st
from support.planted import HUNTER, PLANTED

from querypulse.alerting.redaction import NAMES, OPTIONS, TEXTS
from querypulse.core import redaction
from querypulse.core.redaction import (
    CUT_CHARACTERS,
    MAX_CHARACTERS,
    MAX_WITH_PATTERNS,
    MIN_CHARACTERS,
    REDACTED,
    WITHHELD,
    Redactor,
    is_random,
    redact,
    unusable,
)
from querypulse.listener.failure import describe_failure
from querypulse.settings.settings import Settings
from querypulse.sidecar.assemble import make_redactor

WORDS = ["batch", "812", "of", "run", "offset", "topic", "partition", "day=1", "a.b.C:", "at", "->"]
PRINTABLE = st.text(alphabet="ab =:;,&/@{}()[]<>\\\"'-.%\n", max_size=20)

planted = st.sampled_from(PLANTED)
NAMED = (
    "password PASSWORD db.passwd pwd my_secret fs.s3a.secret.key access_key api-key authToken token "
    "privateKey client_credential pass DB_PASS dbPass x-signature sig"
)
QUOTES = [
    *[("=", ""), (": ", ""), (" = ", ""), (":", ""), (" -> ", ""), ('": "', '"'), ("': '", "'")],
    *[('="', '"'), ("='", "'"), ('\\":\\"', '\\"'), ("=>", ""), ('=("', '")'), ("', '", "'")],
]
names, quotes = st.sampled_from(NAMED.split()), st.sampled_from(QUOTES)
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


# -- secrets of our settings ----------------------------------------------------------------------

OWN = "R0UT1NG/key+with=signs 'and' \"quotes\" ü"
secrets = st.text(min_size=MIN_CHARACTERS, max_size=40).filter(lambda text: len(text.strip()) > 5)
words = st.text(alphabet="xyz .\n", max_size=20)


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


def test_secret_of_one_or_two_characters_hides_nothing():
    shown = {secret: Redactor([secret]).text("abc a b c") for secret in ("", " ", "a", "b ", "bc")}

    assert shown == dict.fromkeys(shown, "abc a b c")


PARTS_OF_WORDS = [
    "orders-prod failed",
    "prod-eu is down",
    "table prod.orders",
    "table lake.prod.orders",
    "prod_orders",
    "product",
    "reprod",
    "host a.prod",
    "env2prod",
    "prod1",
    "2prod",
    "Prod",
]


@pytest.mark.parametrize("text", PARTS_OF_WORDS)
def test_secret_that_is_a_word_is_not_cut_out_of_a_longer_one(text):
    assert Redactor(["prod"]).text(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("prod", "*"),
        ("logged in with prod", "logged in with *"),
        ("It is prod.", "It is *."),
        ("'prod', \"prod\"", "'*', \"*\""),
        ("x=prod&y=prod;", "x=*&y=*;"),
        ("user:prod@host", "user:*@host"),
        ("/prod/", "/*/"),
        ("x%3Dprod%26y", "x%3D*%26y"),
        ("line\\nprod\\n", "line\\n*\\n"),
        ("(cHJvZA==)", "(*==)"),
        ("x%253Dprod", "x%253D*"),
        ("x=3Dprod", "x=3D*"),
        (r"x\u003dprod\u0026y", r"x\u003d*\u0026y"),
        ("\x1b[31mprod\x1b[0m", "\x1b[31m*\x1b[0m"),
    ],
)
def test_secret_that_is_a_word_is_hidden_as_a_word(text, shown):
    assert Redactor(["prod"]).text(text).replace(REDACTED, "*") == shown


def test_random_secret_is_hidden_within_longer_words():
    key = "R0UT1NG0123abcd4567"

    assert key not in Redactor([key]).text(f"-p{key}x orders_{key}.gz {key}-1")


PLAIN = [
    "prod",
    "staging",
    "us-east-1",
    "eu-west-1a",
    "10.0.0.12",
    "ip-10-0-12-171.ec2.internal",
    "2026-11-28",
    "1.0",
    "2016-06-01",
    "20261128T101500Z",
    "1732838400000",
    "123456789012",
    "team-payments",
    "payments-alerts-v2",
    "orders_2024_v2",
    "streaming-orders-2024-11",
    "streaming-orders-2024-11-28-eu",
    "spark-3.5.1-bin-hadoop3.3.4",
    "pages2024",
    "customerorders2024",
    "x86_64-linux-gnu",
    "StreamingQueryFailedAlerts",
    "PagerDutyAlertsProdEU",
    "alertmanager",
    "application/x-protobuf",
    "https://otel.example.com:4317/v1/metrics",
    "analytics.warehouse.orders_v12",
    "a/triggers/manual/run",
    "hello@example.com",
    "3f2a",
    "orders7",
    "correcthorsebatterystaple",
    "getUserAccountNameById",
    "StreamingQueryFailed",
    "true",
    "0.25",
]
RANDOM = [
    "3f2504e0-4f89-11d3-9a0c-0305e82c3301",
    "4c1d9a7e2b",
    "9f86d081884c7d65",
    "R0123456789abcdefghijklmnopqrstu",
    "d41d8cd98f00b204e9800998ecf8427e",
    "s3cr3t-0123456789-abcdefghij",
    "T0KEN567890abcdefgh",
    "hunter2hunter2x9Q7",
    "7Hq9ZtR2mWx4Kc8VbN1pLs6Y",
    "QWxhZGRpbjpvcGVuIHNlc2FtZQ==",
    "01ARZ3NDEKTSV4RRFFQ69G5FAV",
    "AbCdEfGhIjKlMnOpQrStUv",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIi0",
    "k3y_9dJ-2mQ0z_Xw8-Ty4",
    "wJalrXUtnFEMI/K7MDENG/bPxRfi",
    "QlRhvXbNcZpWkJtY",
]


@pytest.mark.parametrize("name", PLAIN)
def test_name_date_version_or_address_is_not_random(name):
    assert not is_random(name)


@pytest.mark.parametrize("key", RANDOM)
def test_key_is_random(key):
    assert is_random(key)


# -- patterns ---------------------------------------------------------------------------------

URLS = {"option_patterns": ["(?i)url|jdbc"]}
JAVAS = [r"\p{Alpha}"]
"""Python cannot use it."""
HIDDEN_BY = [
    ({"patterns": [r"ACME-\d+", r"(?i)internal \w+"]}, "ACME-77 of INTERNAL thing", "* of *"),
    # Java applies a flag only to the rest of the pattern; here it hides more, never less.
    ({"patterns": ["acme|(?i)corp"]}, "ACME Corp", "* *"),
    ({"key_patterns": ["(?i)REGION"]}, "region=eu", "region=*"),
    ({"key_patterns": ["(?i)REGION"]}, "acme.region: eu", "acme.region: *"),
    ({"key_patterns": ["(?i)REGION"]}, '"region": "eu"', '"region": "*"'),
    ({"key_patterns": ["(?i)REGION"]}, "region -> eu", "region -> *"),
    (URLS, "url=jdbc:x", "url=*"),
    (URLS, "'url': 'jdbc:x'", "'url': '*'"),
    (URLS, "Map(url -> jdbc:x)", "Map(url -> *"),
    (URLS, "hourly: no commit for 60 s", "hourly: no commit for 60 s"),
    (URLS, "see the url: it is gone", "see the url: it is gone"),
    (URLS, "curl 7", "curl 7"),
    ({"patterns": JAVAS}, "Files were added", WITHHELD),
    ({"patterns": JAVAS}, "", ""),
    ({"key_patterns": JAVAS}, "a=b, c: d and e", "a=*, c: * and e"),
    ({"option_patterns": JAVAS}, "a=b, c: d and e", "a=*, c: d and e"),
]


def test_patterns_hide_what_they_match_and_unusable_ones_everything_they_could():
    clean = [Redactor(**patterns).text(text) for patterns, text, _ in HIDDEN_BY]

    assert [text.replace(REDACTED, "*") for text in clean] == [shown for *_, shown in HIDDEN_BY]


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


def test_text_whose_redaction_fails_is_withheld(monkeypatch):
    def fail(*_):
        raise RecursionError

    monkeypatch.setattr(redaction, "hide_values", fail)  # no real text makes it fail

    assert Redactor().text(f"token={HUNTER}") == WITHHELD


# -- Spark's own settings -----------------------------------------------------------------------


def session(conf, **settings):
    """What redacts the texts of a session with this conf."""
    redacting = make_redactor(Settings(**settings))
    redacting.honour(conf.get)
    return redacting


def test_default_session_hides_url_options_and_all_known_shapes():
    redactor = session({})

    assert redactor.text("options: {'url': 'jdbc:x'}") == f"options: {{'url': '{REDACTED}'}}"
    leaked = [entry.kind for entry in PLANTED if entry.secret in redactor.text(entry.text)]
    assert leaked == []


def test_session_settings_add_patterns():
    redactor = session(
        {NAMES: "region", OPTIONS: "dbtable", TEXTS[0]: "ACME-1", TEXTS[1]: "ACME-2"},
        pagerduty_routing_key="own-value",
        redact_patterns=["ACME-3"],
    )

    clean = redactor.text("region: eu, dbtable=t, url=x, ACME-1 ACME-2 ACME-3 own-value ACME-4")

    assert clean == (
        f"region: {REDACTED}, dbtable={REDACTED}, url=x, "
        f"{REDACTED} {REDACTED} {REDACTED} {REDACTED} ACME-4"
    )


@pytest.mark.parametrize("name", [NAMES, OPTIONS, *TEXTS])
def test_unusable_setting_is_logged_once_without_its_value(name, caplog):
    redactor = session({name: r"hunter2\p{Alpha}"})
    redactor.text("a=b")
    redactor.text("a=b")

    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert name in record.getMessage()
    assert "hunter2" not in record.getMessage()
    assert "b" not in redactor.text("a=b")
