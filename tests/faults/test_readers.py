"""Readers that are many, hostile or broken cost the driver nothing, and hide nothing."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path

import pytest
from fuzzing import targets
from hypothesis import given
from hypothesis import strategies as st
from support.exporter_http import connected, get, serving
from support.published_states import full_published

from querypulse.alerting.silences import SilenceStore, post_silence
from querypulse.core.guard import Guard

BODY_BYTES = 100_000_000


@pytest.mark.fault(
    "Readers over HTTP",
    "A body of 100 MB",
    "401 without the token, 405 where nothing may be posted, else 413; it is not kept; `/livez` answers",
)
@pytest.mark.parametrize(
    ("path", "token", "code"),
    [
        ("/silences", "t", b"413"),
        ("/metrics", "t", b"405"),
        ("/silences", "wrong", b"401"),
        ("/livez", "wrong", b"401"),
    ],
)
def test_huge_body_is_refused_and_not_kept(path, token, code):
    head = (
        f"POST {path} HTTP/1.1\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Length: {BODY_BYTES}\r\n\r\n"
    ).encode()
    Path("/proc/self/clear_refs").write_text("5")
    before = peak_bytes()
    with (
        serving(full_published(), token="t") as server,
        connected(server) as client,
    ):
        client.sendall(head)
        answer = client.recv(1000)
        # The server may close the connection before it has got all.
        with suppress(OSError):
            for _ in range(100):
                client.sendall(b"x" * (BODY_BYTES // 100))
        live = get(server, "/livez", Authorization="Bearer t")

    grown = peak_bytes() - before
    assert live.status_code == 200
    assert grown < BODY_BYTES / 4
    assert answer.split()[1] == code


def peak_bytes():
    """The most memory that this process has had since ``clear_refs`` (proc(5))."""
    (line,) = re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(line) * 1024


WORDS = (
    "GET POST /metrics /../../etc/passwd /silences /status ? %00 \x00 HTTP/1.1 HTTP/9.9 \r\n \n : Host "
    "Accept Content-Length -1 99999999999 Authorization Bearer gzip \xff\xfe [:: //"
)
PIECES = st.sampled_from([b" ", *(word.encode("latin-1") for word in WORDS.split(" "))])
HEADS = st.one_of(st.binary(max_size=400), st.lists(PIECES, max_size=40).map(b"".join))
SILENCE = {
    "queries": "billing", "minutes": 60, "until": "2036-01-01T00:00:00Z", "alertname": "*",
    "reason": "backfill", "app": "shop", "colour": 1,
}  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=6,
)
VALUES = st.one_of(JSON, st.sampled_from(list(SILENCE.values())))
BODIES = st.one_of(
    st.binary(max_size=200),
    JSON.map(json.dumps).map(str.encode),
    st.dictionaries(st.sampled_from(list(SILENCE)), VALUES).map(json.dumps).map(str.encode),
    st.lists(st.sampled_from(list(SILENCE)), unique=True).map(
        lambda names: json.dumps({name: SILENCE[name] for name in names}).encode()
    ),
)


@pytest.mark.fault(
    "Readers over HTTP",
    "Random bytes as a request",
    "An HTTP answer, or none; no error of ours",
)
@given(head=HEADS)
def test_any_request_gets_an_http_answer_or_none(head):
    targets.http(head + b"\r\n\r\n")


@pytest.mark.fault(
    "Readers over HTTP",
    "Any body posted as a silence, with the token",
    "201 and a silence, or 400 and none; no error of ours",
)
@given(body=BODIES)
def test_any_posted_body_is_a_silence_or_a_bad_request(body):
    silencing = SilenceStore(None, Guard())
    code, content = post_silence(body, silencing, ("billing",))

    assert (code, len(silencing())) in ((201, 1), (400, 0))
    assert content["queries"] if code == 201 else content["error"]
