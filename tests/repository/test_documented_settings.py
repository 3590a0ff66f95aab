"""Examples and limits in the documents are those of the code."""

from __future__ import annotations

import sys

from support.repository import ROOT, fenced

from querypulse.alerting.receivers import email
from querypulse.alerting.receivers.http import MAX_IDLE_SECONDS, TOTAL_SECONDS
from querypulse.exporter.server import HEAD_SECONDS
from querypulse.settings.receivers import receivers, routes
from querypulse.settings.settings import Settings

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SECRETS = {
    "routing_key_file": "R0123456789abcdefghijklmnopqrstu",
    "pagerduty_routing_key_file": "R0123456789abcdefghijklmnopqrstu",
    "secret_files": "whsec_" + "QUJD" * 12,
    "webhook_secret_file": "whsec_" + "QUJD" * 12,
    "password_file": "word",
}
CERTIFICATES = {"ca_file", "client_cert_file", "client_key_file"}


def usable(table, folder):
    """The table with files that exist; certificates are left out."""
    made = {}
    for name, value in table.items():
        if name in CERTIFICATES:
            continue
        if name.endswith(("_file", "_files")) and name != "silence_file":
            file = folder / name
            file.write_text(SECRETS.get(name, "https://hooks.example.com/x"))
            made[name] = [str(file)] if isinstance(value, list) else str(file)
        elif isinstance(value, dict):
            made[name] = usable(value, folder)
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            made[name] = [usable(inner, folder) for inner in value]
        else:
            made[name] = value
    return made


def examples():
    """Each TOML example of the documents, by its page and number."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return {
        f"{page.name}-{number}": block
        for page in pages
        for number, block in enumerate(fenced(page.read_text(), "toml"))
    }


def problem_of(example, folder):
    """Why an example cannot be used; empty if it can."""
    try:
        settings = Settings(**usable(tomllib.loads(example), folder))
        names = {receiver.name for receiver in receivers(settings)}
    except (ValueError, TypeError) as error:
        return repr(error)
    return "" if names == routes(settings).keys() else f"receivers {names}"


def test_each_example_can_be_used(tmp_path):
    problems = {name: problem_of(example, tmp_path) for name, example in examples().items()}

    assert len(problems) > 5
    assert {name: problem for name, problem in problems.items() if problem} == {}


def test_documented_limits_are_those_of_the_code():
    """The tests of servers and receivers set these limits themselves."""
    limits = {
        "status.md": [("a client has one second to send its request", HEAD_SECONDS, 1.0)],
        "receivers.md": [
            ("The deadline of 10 seconds covers all attempts", TOTAL_SECONDS, 10.0),
            ("The deadline of 10 seconds covers all attempts", email.TOTAL_SECONDS, 10.0),
            ("A connection that was idle for 30 s is not reused", MAX_IDLE_SECONDS, 30.0),
        ],
    }
    wrong = [
        (name, sentence, value)
        for name, rows in limits.items()
        for sentence, value, said in rows
        if sentence not in (ROOT / "docs" / name).read_text() or value != said
    ]
    assert wrong == []
