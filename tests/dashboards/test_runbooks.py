"""Every runbook has the same structure, and the commands in it work when copied."""

from __future__ import annotations

import re
from functools import cache

import msgspec
import pytest
from support.panels import DASHBOARDS, values_of
from support.prometheus import assert_valid
from support.repository import evidence_of, fenced, runbooks

from querypulse.exporter.status import Status
from querypulse.settings.links import next_steps, runbook

SECTIONS = ["Next steps", "Meaning", "Impact", "Diagnosis", "Mitigation", "When it does not fire"]
PLACES = (
    "```promql",
    "/status",
    "Spark UI",
    "Grafana",
    "status page",
    "**Without the HTTP server**: ",
)
texts = cache(runbooks)


def of_drivers():
    """Those that concern a driver; that of the watchdog concerns Prometheus and Alertmanager."""
    return sorted(texts().keys() - {"QuerypulseWatchdog"})


def section(name, title):
    return texts()[name].split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def promql(name):
    """The PromQL expressions of a runbook, one per line."""
    return [line for code in fenced(texts()[name], "promql") for line in code.splitlines() if line]


# -- structure --------------------------------------------------------------------------------------


def test_each_runbook_has_a_title_a_paragraph_and_six_sections():
    for name, text in texts().items():
        assert text.startswith(f"# {name}\n\n")
        assert re.findall(r"^## (.+)$", text, re.MULTILINE) == SECTIONS, name
        assert text.split("\n\n")[1].count("\n") <= 2, name


def test_each_alert_includes_the_three_next_steps_of_its_runbook():
    for name in texts():
        steps = next_steps()[name]

        assert steps.strip() == section(name, "Next steps").strip(), name
        assert [line[:3] for line in steps.splitlines()] == ["1. ", "2. ", "3. "], name
        assert max(map(len, steps.splitlines())) <= 105, name
        assert not set("[]`*") & set(steps), name


def test_package_contains_every_runbook_and_nothing_else():
    strangers = ("", "README", "README.md", "../runbooks/StreamingBatchSlow", "NoAlert", "a" * 999)

    assert {name: runbook(name) for name in texts()} == texts()
    assert [name for name in strangers if runbook(name) is not None] == []


def test_each_runbook_has_a_quick_check_every_place_to_check_mitigation_and_silent_cases():
    for name in texts():
        assert section(name, "Diagnosis").startswith("\n**Quick check**: "), name
        assert "\n* " in section(name, "Mitigation"), name
        assert "\n* " in section(name, "When it does not fire"), name
    for name in of_drivers():
        lacking = [place for place in PLACES if place not in section(name, "Diagnosis")]
        assert lacking == [], name


def panels():
    """(dashboard, title) of every Grafana panel."""
    return {
        (name.capitalize(), title)
        for name, dashboard in DASHBOARDS.items()
        for title in values_of(dashboard["panels"], "title")
    }


def test_each_panel_named_in_a_runbook_exists():
    for name in of_drivers():
        named = re.findall(r"\*(Fleet|Query)\*,\s+\*([^*]+)\*", texts()[name])

        assert {(board, " ".join(title.split())) for board, title in named} <= panels(), name
        assert named or "Grafana, *" not in texts()[name], name


# -- commands to copy -------------------------------------------------------------------------------


@pytest.mark.prometheus
def test_every_promql_expression_is_valid(tmp_path):
    asked = [line for name in texts() for line in promql(name)]

    assert len(asked) > len(texts())
    assert_valid(asked, tmp_path)


def jq(name):
    """The jq programs of a runbook, without the text in quotes."""
    return [
        re.sub(r'"[^"]*"', '""', program) for program in re.findall(r"jq '([^']*)'", texts()[name])
    ]


def test_every_jq_program_is_balanced_and_its_paths_exist_in_status():
    """A path is a field of ``/status``, a label or evidence of this alert."""
    labels = {"alertname", "app", "query", "severity"}
    reported = {"summary", "description", "reason", "runbook_url", "next_steps"}
    status = msgspec.json.schema(Status)["$defs"]
    fields = {field for record in status.values() for field in record["properties"]}
    for name in of_drivers():
        asked = set()
        for program in jq(name):
            assert all(program.count(a) == program.count(b) for a, b in ("()", "[]", "{}")), program
            asked |= set(re.findall(r"\.(\w+)", program))
            for shown in re.findall(r"\{([^}]*)\}", program):
                asked |= {part.partition(":")[0].strip() for part in shown.split(",")}

        assert jq(name), name
        assert asked <= fields | labels | reported | evidence_of(name), name


def test_commands_fit_a_terminal():
    codes = [
        code
        for text in texts().values()
        for kind in ("sh", "promql")
        for code in fenced(text, kind)
    ]

    assert [line for code in codes for line in code.splitlines() if len(line) > 120] == []
