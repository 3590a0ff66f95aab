"""Redaction takes linear time for any text, because a slow redaction blocks the worker:
no alert is sent meanwhile, and no other Python thread of the driver runs.
"""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st
from support.planted import PLANTED

from querypulse.core.redaction import (
    AFTER_NAMES,
    CUT_CHARACTERS,
    MAX_CHARACTERS,
    PREFIXED,
    REDACTED,
    SECRET_NAME,
    WHOLE,
    Redactor,
    hide_values,
)
from querypulse.listener.commit_log import short_reason
from querypulse.listener.failure import describe_failure, died_of_stopped_context

pytestmark = pytest.mark.slow

LARGE = (MAX_CHARACTERS - CUT_CHARACTERS) // 2
ALLOWED = 7.0
"""The limit for four times the text: linear work takes 4 times as long, quadratic work 16 times."""
TOO_FAST_TO_MEASURE = 0.002

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
EXCEPTION_PARTS = (
    "SparkException: ",
    "Job aborted due to stage failure: ",
    "Job aborted due to stage failure:  executor ",
    "Job aborted due to stage failure: " + " executor " * 50,
    "because the return value of ",
    'because the return value of "org.apache.spark.',
    'because the return value of "org.apache.spark.a()',
    "Caused by: a.b",
    "[A",
    "Traceback (most recent call last):",
    "Traceback (most recent call last):\n",
    "\n: ",
    "\tat ",
    "Caused by: ",
)


def fill(unit, size):
    return (unit * (size // len(unit) + 1))[:size]


def seconds(work, text):
    """The best of two runs in CPU time of this thread, because the machine may be busy."""
    taken = []
    for _ in range(2):
        began = time.thread_time()
        work(text)
        taken.append(time.thread_time() - began)
    return min(taken)


def growth(work, unit, size=LARGE):
    """The growth in time for four times the text; 0 if both are too fast to measure."""
    for _ in range(3):
        large = seconds(work, fill(unit, size))
        if large < TOO_FAST_TO_MEASURE:
            return 0.0
        grown = large / seconds(work, fill(unit, size // 4))
        if grown < ALLOWED:
            break
    return grown


def hide(pattern):
    return lambda text: pattern.sub(REDACTED, text)


def slow_units(work, units):
    return {unit: grown for unit in units if (grown := growth(work, unit)) >= ALLOWED}


def test_growth_detects_a_quadratic_pattern():
    assert growth(hide(re.compile("a*b")), "a", LARGE // 2) >= ALLOWED


@pytest.mark.parametrize(
    "pattern", [*WHOLE, *PREFIXED, *AFTER_NAMES], ids=lambda pattern: pattern.pattern[:40]
)
def test_every_shape_is_linear_in_hostile_text(pattern):
    assert slow_units(hide(pattern), HOSTILE) == {}


def test_hiding_values_is_linear_in_hostile_text():
    def work(text):
        hide_values(text, lambda name, _: SECRET_NAME.search(name) is not None, REDACTED)

    assert slow_units(work, HOSTILE) == {}


@pytest.mark.parametrize("work", [describe_failure, died_of_stopped_context, short_reason])
def test_finding_the_cause_is_linear_in_hostile_text(work):
    assert slow_units(work, EXCEPTION_PARTS) == {}


@pytest.mark.fault(
    "Names and texts", "Texts made to slow regular expressions down", "Time grows linearly"
)
@pytest.mark.parametrize("unit", HOSTILE)
def test_whole_redaction_is_linear_in_hostile_text(unit):
    assert slow_units(Redactor(["own-secret-value"])._replace, [unit]) == {}


@given(st.sampled_from(PLANTED), st.data())
@effort(max_examples=30)
def test_redaction_is_linear_in_truncated_secrets(planted, data):
    begun = planted.text[: data.draw(st.integers(1, len(planted.text)))]

    assert slow_units(Redactor()._replace, [begun]) == {}
