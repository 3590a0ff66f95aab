"""The answer of each path, over real HTTP on loopback."""

from __future__ import annotations

import gc

import msgspec
import pytest
import requests
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text
from support.exporter_http import get, raw, serving
from support.patience import PATIENCE_SECONDS
from support.published_states import full_published, published
from support.story import Story

from querypulse.core.guard import Guard
from querypulse.exporter.published_state import QueryRow
from querypulse.exporter.status import Status, status

PATHS = ("/metrics", "/status", "/livez", "/readyz")
OPENMETRICS = [
    "application/openmetrics-text",
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,text/plain;version=0.0.4;q=0.2",
    "application/openmetrics-text;version=nonsense\t;escaping=\x01",
]


def codes(server, paths=PATHS, **headers):
    return {path: get(server, path, **headers).status_code for path in paths}


def healthy():
    return published(Story().started(at=0).commit(batch=1, at=90))


def test_metrics_are_openmetrics_on_request():
    with serving(full_published()) as server:
        answers = [get(server, "/metrics", Accept=accept) for accept in OPENMETRICS]
    assert {answer.headers["Content-Type"] for answer in answers} == {
        "application/openmetrics-text; version=1.0.0; charset=utf-8; escaping=underscores"
    }
    (text,) = {answer.text for answer in answers}
    assert text.endswith("# EOF\n")
    assert list(parse_openmetrics(text))


def test_status_equals_the_snapshot():
    shown = full_published()
    with serving(shown) as server:
        answer = get(server, "/status")
    assert answer.headers["Content-Type"] == "application/json"
    assert msgspec.json.decode(answer.content, type=Status) == status(shown)


def test_reading_leaves_nothing_for_the_garbage_collector():
    state = full_published()
    with serving(state) as server:
        get(server, "/metrics")
        gc.collect()
        gc.disable()
        try:
            assert all(get(server, path).ok for path in ("/metrics", "/status"))
            assert not any(isinstance(kept, QueryRow) for kept in gc.get_objects())
        finally:
            gc.enable()


def test_livez_shows_whether_the_worker_is_alive():
    beats = [True]
    with serving(full_published(), alive=lambda: beats[-1]) as server:
        assert get(server, "/livez").status_code == 200
        beats.append(False)
        assert get(server, "/livez").status_code == 503


def test_readyz_is_200_when_healthy_and_otherwise_gives_reasons():
    with serving(healthy()) as server:
        answer = get(server, "/readyz")
        assert (answer.status_code, answer.json()) == (200, {"ready": True, "reasons": []})
    with serving(full_published()) as server:
        answer = get(server, "/readyz")
        assert answer.status_code == 503
        reasons = {reason["query"]: reason["state"] for reason in answer.json()["reasons"]}
        assert reasons == {"dead": "failed", "absent": "starting"}


def test_only_metrics_and_livez_answer_200_before_the_first_evaluation():
    with serving(None) as server:
        assert codes(server) == {"/metrics": 200, "/status": 503, "/livez": 200, "/readyz": 503}
        families = list(parse_text(get(server, "/metrics").text))
        assert [family.name for family in families] == ["querypulse_build_info"]
        assert "error" in get(server, "/status").json()


@pytest.mark.parametrize("path", ["/", *PATHS])
def test_head_answers_only_the_headers_of_get(path):
    with serving(full_published()) as server:
        url, plain = f"{server.url}{path}", {"Accept-Encoding": "identity"}
        head = requests.head(url, headers=plain, timeout=PATIENCE_SECONDS)
        full = requests.get(url, headers=plain, timeout=PATIENCE_SECONDS)
        body = raw(server, f"HEAD {path} HTTP/1.1\r\n\r\n".encode()).partition(b"\r\n\r\n")[2]
    assert (head.status_code, body) == (full.status_code, b"")
    assert {**head.headers, "Date": ""} == {**full.headers, "Date": ""}


def test_long_answers_are_compressed_if_accepted():
    with serving(full_published()) as server:
        plain = get(server, "/metrics", **{"Accept-Encoding": "identity"})
        packed = get(server, "/metrics", **{"Accept-Encoding": "br, gzip"})
        short = get(server, "/livez", **{"Accept-Encoding": "gzip"})
    encodings = [answer.headers.get("Content-Encoding") for answer in (plain, packed, short)]
    assert encodings == [None, "gzip", None]
    assert packed.content == plain.content
    assert int(packed.headers["Content-Length"]) < len(plain.content) / 4


@pytest.mark.fault(
    "Readers over HTTP", "No token, or a wrong one", "401 on every path that holds data"
)
def test_token_is_required_on_every_path():
    wrong = ("Bearer s3cret", "Bearer ", "Bearer", "Basic s3cret-ü", "s3cret-ü", "\xff")
    right = ("Bearer s3cret-ü", "bearer  s3cret-ü")
    with serving(healthy(), token="s3cret-ü") as server:
        for path in PATHS:
            missing = get(server, path)
            assert (missing.status_code, missing.headers["WWW-Authenticate"]) == (401, "Bearer")
            assert b"s3cret" not in missing.content
        for code, tokens in ((401, wrong), (200, right)):
            for token in tokens:
                answers = codes(server, Authorization=token.encode())
                assert answers == dict.fromkeys(PATHS, code), token


@pytest.mark.fault(
    "Readers over HTTP", "Unknown paths and methods without a token", "Nothing is revealed"
)
def test_unknown_path_or_method_reveals_nothing_without_a_token_and_a_runbook_needs_none():
    runbooks = {"StreamingQueryFailed": "# StreamingQueryFailed"}
    with serving(healthy(), token="t", runbook=runbooks.get) as server:
        assert get(server, "/nonsense").status_code == 401
        assert requests.post(server.url + "/metrics", timeout=PATIENCE_SECONDS).status_code == 401
        assert get(server, "/runbooks/StreamingQueryFailed").text == "# StreamingQueryFailed"


@pytest.mark.contains_errors
def test_error_in_a_page_answers_500_and_is_counted(capfd):
    guard = Guard()
    faults = [RuntimeError("secret detail")]

    def newest():
        if faults:
            raise faults[0]
        return full_published()

    with serving(newest, alive=newest, guard=guard) as server:
        for path in PATHS:
            answer = get(server, path)
            assert (answer.status_code, b"secret" in answer.content) == (500, False)
        assert guard.errors["exporter"] == len(PATHS)
        faults.clear()
        assert get(server, "/metrics").status_code == 200
    assert "Traceback" not in capfd.readouterr().out
