"""Redaction takes linear time for any text, because a slow redaction blocks the worker:
no alert is sent meanwhile, and no other Python thread of the driver runs.

A text as a whole is compared with the same text in pieces, in CPU time of one thread: the work for
both is equal if it is linear, on any machine.
"""

from __future__ import annotations

import math
import time

import pytest
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st
from support.planted import PLANTED

from querypulse.core.redaction import (
    AFTER_NAMES,
    REDACTED,
    SECRET_NAME,
    SHAPES,
    Redactor,
    hide_values,
)

pytestmark = pytest.mark.slow

SIZE = 16 * 1024
PIECES = 8
"""Each is longer than the texts that a redactor remembers."""
ALLOWED = 3.0
"""How many times the work for the pieces the whole may take: linear work once, quadratic 8 times."""
TRIES = 10
"""A measurement that shows too much is repeated: something may have disturbed it."""
TOO_FAST_SECONDS = 0.0002
"""No machine does quadratic work with ``SIZE`` characters in this time."""

HOSTILE = (
    *["a", "A", "1", ".", "-", "_", " ", "\n", "\t", "=", ":", "/", "@", '"', "'", "\\", "+", "%", "("],
    *["a ", "a=", "a:", "a->", "a %", "a.b-c_", 'a"', "a\\", 'a" , "', 'a\\"', "a%3D", "a</name> ", "é="],
    *["password", "password=", "password: ", 'password="', "password='\\'", 'password=\\"', "pwd '"],
    *["password=((", "password=a(b(", "password= ", "password=&quot;", "a&quot;", "&", "a    value", '"a", "value"', "token->", "token", "sig", "sas=", "--token", "--a"],
    *["-----BEGIN ", "-----BEGIN PRIVATE KEY", "-----BEGIN PRIVATE KEY-----END", "-----END"],
    *["ey", "eyaaaaaaaa.", "eyaaaaaaaaa.eyaaaaaaaa.", "AKIA", "AIza", "AIza" + "a" * 34 + "!", "ya29.", "1Q~"],
    *["aaa1Q~", "aaa1Q~" + "a" * 30 + "!", "dapi" + "a" * 31 + "g", "gh", "ghp_", "xoxb-", "xapp-", "glc_", "hvs."],
    *["://", "://a:", "://a:b", "://a:b/", "https://a", "https://a:b/", "://:", ":a:", "://a:1/", "@://a:"],
    *["jdbc:oracle:thin:a/", "jdbc:oracle:a:" + "a" * 100, "aws", "aws secret ", "awssecret", "secret"],
    *["authorization: ", "authorization", "authorization:a ", "bearer ", "basic aaaaaaa ", "cookie: ", "cookie"],
    *["hooks.slack.com/", "with url: ", '"GET ', '"GET a', "identified by 'a", "a" * 85 + "=", "a" * 86 + "="],
    *["://a:1;", "://a:1;a=", "://a:b;a=", "://a:?", "://a:?a", 'jdbc:oracle:thin:a/"', "jdbc:oracle:thin:a/a@"],
    *["token=a;", "token=a;token:", ";token=a ", ";token=a;b ", ";token=a,;", ";token=;", ";token=a://", ";token=" + "a" * 250],
    *["token={", "token={}}", "}}", "token=None)", "token=a'a", "token=token=", 'token=a/token="a', "token = ", "pass"],
    *["auth=(", "auth=(a,", "auth=('a','", "tokens=[a, ", "a, ", "auth(' ", "BasicAuth(", "Authorization: token='"],
    *["-u ", "-u a", "-u a:", "-u 'a", "-u 'a:", '-u "a:\\', "--user=a:", "'-u', '", "--pass "],
    *["sk-", "sk-" + "a" * 19 + " ", " sk-a", "sk_live_", "sk_live_" + "a" * 9 + "-", "rk_test_", "npm_", "npm_" + "a" * 35 + "!"],
    *["SG.", "SG." + "a" * 16 + ".", "SG." + "a" * 16 + ".aaaaaaaaaaaaaaa ", "SG." + "a" * 15, " SG.aaaaaaaaaaaaaaaa"],
    *[REDACTED, f"{REDACTED}=", f"a={REDACTED}", f"token={REDACTED}a ", "[", "]", "<", ">", "<a>", "{"],
)  # fmt: skip


def fill(unit, size):
    return (unit * (size // len(unit) + 1))[:size]


def seconds(work, texts):
    began = time.thread_time()
    for text in texts:
        work(text)
    return time.thread_time() - began


def growth(work, unit):
    """How many times the work for its pieces is the work for a whole text."""
    whole, pieces = [fill(unit, SIZE)], [fill(unit, SIZE // PIECES)] * PIECES
    grown = math.inf
    for _ in range(TRIES):
        taken = seconds(work, whole)
        if taken < TOO_FAST_SECONDS:
            return 0.0
        grown = min(grown, taken / seconds(work, pieces))
        if grown < ALLOWED:
            break
    return grown


def hide(pattern):
    return lambda text: pattern.sub(REDACTED, text)


def slow_units(work, units):
    return {unit: grown for unit in units if (grown := growth(work, unit)) >= ALLOWED}


def test_every_shape_is_linear_in_hostile_text():
    patterns = (*SHAPES, *AFTER_NAMES)
    slow = {pattern.pattern: slow_units(hide(pattern), HOSTILE) for pattern in patterns}

    assert {pattern: units for pattern, units in slow.items() if units} == {}


@pytest.mark.fault(
    "Names and texts", "Texts made to slow regular expressions down", "Time grows linearly"
)
@pytest.mark.parametrize(
    "work",
    [
        lambda text: hide_values(text, lambda name, _: bool(SECRET_NAME.search(name)), REDACTED),
        Redactor(["own-secret-value"])._replace,
    ],
    ids=["hiding values", "all of it"],
)
def test_whole_redaction_is_linear_in_hostile_text(work):
    assert slow_units(work, HOSTILE) == {}


def test_redaction_of_a_hundred_own_secrets_is_linear():
    """The worker redacts all texts of all findings four times per second."""
    redactor = Redactor([f"secret-number-{index}" for index in range(100)])

    assert slow_units(redactor._replace, ["x", "secret-", "secret-number-1"]) == {}


@given(st.sampled_from(PLANTED), st.data())
@effort(max_examples=30)
def test_redaction_is_linear_in_truncated_secrets(planted, data):
    begun = planted.text[: data.draw(st.integers(1, len(planted.text)))]

    assert slow_units(Redactor()._replace, [begun]) == {}
