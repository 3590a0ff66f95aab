"""The first inputs of each target, made of what the tests have recorded and of what users write."""

from __future__ import annotations

import json

import msgspec
from support.event_log import recorded
from support.story import poll, processing, run

from querypulse.listener.commit_log import LoggedBatches, LogReport, StartingPoint, Written
from querypulse.listener.events import EventKind
from querypulse.listener.probe_report import ProbeReport
from querypulse.listener.source_polls import SourceReport

LETTERS = {
    EventKind.STARTED: b"S",
    EventKind.PROGRESS: b"P",
    EventKind.IDLE: b"I",
    EventKind.TERMINATED: b"T",
}
MOST_RECORDED = 24
AUTHORIZED = b"Authorization: Bearer t0ken\r\n"


def events() -> list[bytes]:
    """Some recorded events of each kind, shape and version of Spark."""
    inputs = [LETTERS[kind] + text.encode() for kind, text in recorded()]
    return inputs[:: max(1, len(inputs) // MOST_RECORDED)]


def state() -> list[bytes]:
    """Histories of one query, and of the recorded ones."""
    started = b'S{"id":"id-a","runId":"a-1","name":"a","timestamp":"2026-01-01T00:00:00Z"}'
    failed = b'T{"id":"id-a","runId":"a-1","exception":"a.B: no","errorClassOnException":"X"}'
    polled = _report("R", _probe(run("a", 1, batch=3)))
    busy = _report("R", _probe(processing("a", 1, batch=4, tasks=2)))
    logs = LogReport(
        0.0,
        {"a-1": LoggedBatches(4, 3)},
        {"b-1": "gone"},
        {"a-1": StartingPoint(Written(3, -5.0), Written(4, -1.0), 2.0)},
    )
    read = _report("L", logs)
    sources = SourceReport(0.0, {"a-1": {0: poll(at=1.0, committed=5, since=2.0)}}, {"b-1": "no"})
    asked = _report("D", sources)
    recordings = [LETTERS[kind] + text.encode() for kind, text in recorded(shape="json")]
    return [
        b"\n".join([started, polled, b"+5", busy, read, asked, b"+100", b"V", failed, b"V"]),
        b"\n".join([polled, b"+9", _report("R", _probe()), b"+100", b"V", b"F", b"Na"]),
        b"\n".join([started, b"Ea", b"Z", b"+60", failed, b"+9", started.replace(b"a-1", b"a-2")]),
        *(b"\n+2\n".join(recordings[at : at + 6]) for at in range(0, len(recordings), 20)),
    ]


def http() -> list[bytes]:
    """Requests for each page, and silences."""
    silence = b'{"queries": "billing", "minutes": 60, "reason": "backfill"}'
    ending = b'{"queries": "*", "until": "2036-01-01T00:00:00Z", "app": "shop*", "alertname": "S*"}'
    paths = (b"/", b"/metrics", b"/status?x=1", b"/livez", b"/readyz", b"/watch", b"/watch/page")
    runbooks = (b"/runbooks/StreamingQueryFailed.md", b"/runbooks/../status", b"//status", b"*")
    return [
        *(b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\n\r\n" for path in (*paths, *runbooks)),
        *(b"GET " + path + b" HTTP/1.1\r\n" + AUTHORIZED + b"\r\n" for path in (*paths, *runbooks)),
        b"GET /metrics HTTP/1.0\r\nAccept: application/openmetrics-text;version=1.0.0\r\n"
        b"Accept-Encoding: gzip\r\n" + AUTHORIZED + b"\r\n",
        *(_post(body) for body in (silence, ending, b"[]", b"")),
        _post(silence).replace(AUTHORIZED, b""),
        _post(silence).replace(b"Content-Length", b"Transfer-Encoding: chunked\r\nX"),
        b"GET /\r\n\r\n",
    ]


def settings() -> list[bytes]:
    """Each source, with settings of each type."""
    table = '{"nightly*": {"stall_floor_seconds": 3600}, "scratch*": {"ignore": true}}'
    receivers = '[{"type": "webhook", "name": "a", "url": "https://h.example/x", "severities": ["critical"]}]'
    silences = '[{"queries": "a", "until": "2036-12-01T06:00:00Z"}]'
    toml = (
        'app_name = "shop"\nexpected_queries = ["a", "b"]\nhttp_port = 0\nstall_critical_seconds = 1.5\n'
        '[queries."nightly*"]\nstall_floor_seconds = 60\n[[receivers]]\ntype = "slack"\n'
        'webhook_url_file = "/s"\n[[silences]]\nqueries = "a"\nuntil = 2036-12-01T06:00:00Z\n'
    )
    lines = (
        f"APP_NAME=shop\nEXPECTED_QUERIES=a, b\nHTTP_PORT=tcp://10.0.0.1:80\nQUERIES={table}\n"
        f"RECEIVERS={receivers}\nSILENCES={silences}\nREDACT_PATTERNS=a|b\nSPOOL_DIR=/spool\n"
        "WEBHOOK_URL=https://user:secret@h.example/x\nCOLOUR=1\nALERTMANAGER_URLS=http://a:9093"
    )
    arguments = {
        "queries": json.loads(table),
        "receivers": json.loads(receivers),
        "expected_queries": ["a"],
        "http_port": 0,
        "lag_allowed_seconds": None,
    }
    silenced = b'{"queries":"a","until":"2036-12-01T06:00:00Z","app":"shop*","reason":"x"}\n'
    return [
        b"T" + toml.encode(),
        b"E" + lines.encode(),
        b"C" + lines.lower().encode(),
        b"A" + json.dumps(arguments).encode(),
        b"S" + silenced + b'{"queries":"b","until":"9999-12-31T23:59:59+14:00","app":"*"}\n',
    ]


def _report(letter: str, report: msgspec.Struct) -> bytes:
    return letter.encode() + msgspec.json.encode(report)


def _probe(*runs) -> ProbeReport:
    return ProbeReport(0.5, 1.0, runs)


def _post(body: bytes) -> bytes:
    length = f"Content-Length: {len(body)}\r\n\r\n".encode()
    return b"POST /silences HTTP/1.1\r\n" + AUTHORIZED + length + body


SEEDS = {"events": events, "state": state, "http": http, "settings": settings}
