"""What users see stays the same, byte for byte, while the code below it is simplified.

``OUTSIDE=write pytest tests/repository/test_outside.py`` writes the files again.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec
import pytest
from support.exporter_http import get, raw, serving
from support.published_states import full_published

from querypulse.commands import cli
from querypulse.exporter.exposition import as_openmetrics, as_text
from querypulse.exporter.metrics import all_families
from querypulse.exporter.status import status

FOLDER = Path(__file__).parents[1] / "fixtures" / "outside"
COMMANDS = (
    "",
    "demo",
    "run",
    "launcher",
    "auto-attach",
    "connect-server",
    "replay",
    "check",
    "test-alert",
    "watch",
    "silence",
    "incidents",
    "incident",
    "dashboards",
    "dashboards export",
)
REQUESTS = (
    b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n",
    b"HEAD /status HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n",
    b"POST /livez HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\r\n",
    b"GET /livez HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n",
    b"GET /livez HTTP/1.1\r\n\r\n",
    b"GET /livez HTTP/1.0\r\n\r\n",
    b"GET  HTTP/1.1\r\n\r\n",
    b"nonsense\r\n\r\n",
    b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n" + b"X: y\r\n" * 200 + b"\r\n",
    b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n",
)
PATHS = (
    "/livez",
    "/readyz",
    "/status",
    "/metrics",
    "/",
    "/runbooks/StreamingQueryFailed",
    "/nothing",
    "/status?x=1",
    "/watch",
)
CHANGING = ("Date:", "Content-Length:", "Content-Security-Policy:")


def command_help(capsys, monkeypatch) -> str:
    monkeypatch.setenv("COLUMNS", "100")
    texts = []
    for command in COMMANDS:
        words = command.split()
        with pytest.raises(SystemExit):
            cli.main([*words, "--help"])
        texts.append(f"$ querypulse {command} --help\n{capsys.readouterr().out}")
    return "\n".join(texts)


def status_document() -> str:
    document = msgspec.json.encode(status(full_published()))
    return msgspec.json.format(document, indent=1).decode() + "\n"


def metrics_text() -> str:
    families = all_families(full_published())
    return (as_text(families) + as_openmetrics(families)).decode()


def answers() -> str:
    """Status line and headers of each answer, and what an error says."""
    shown = []
    with serving(
        full_published(), runbook=lambda name: "# a runbook" if "Failed" in name else None
    ) as server:
        for path in PATHS[:-1]:
            answer = get(server, path)
            headers = [f"{name}: {value}" for name, value in sorted(answer.headers.items())]
            text = answer.text if len(answer.text) < 200 else "..."
            shown.append(
                "\n".join((f"> {path}", f"{answer.status_code} {answer.reason}", *headers, text))
            )
        for request in REQUESTS:
            text = raw(server, request).decode()
            shown.append(f"> {request[:60]!r}\n{text if len(text) < 1000 else text[:300]}")
    lines = "\n\n".join(shown).splitlines()
    return "\n".join(line for line in lines if not line.startswith(CHANGING)) + "\n"


def compare(name: str, text: str) -> None:
    file = FOLDER / name
    if os.environ.get("OUTSIDE") == "write":
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="argparse formats help differently")
def test_help_of_each_command_is_as_before(capsys, monkeypatch):
    compare("help.txt", command_help(capsys, monkeypatch))


def test_status_document_is_as_before():
    compare("status.json", status_document())


def test_metrics_are_as_before():
    compare("metrics.txt", metrics_text())


def test_answers_of_the_server_are_as_before():
    compare("answers.txt", answers())
