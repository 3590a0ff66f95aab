"""Every runbook has the same structure, and the commands in it work when copied."""

from __future__ import annotations

import re
import subprocess

import msgspec
import pytest
import yaml
from support.repository import evidence_of, families, fenced, grafana, metrics_in, runbooks, series

from querypulse.exporter.status import Status
from querypulse.settings.links import next_steps, runbook

SECTIONS = [
    "Next steps", "Meaning", "Impact", "Diagnosis", "Mitigation", "When it does not fire",
]  # fmt: skip
RUNBOOKS = runbooks()
ABOUT_DRIVERS = sorted(set(RUNBOOKS) - {"QuerypulseWatchdog"})
"""QuerypulseWatchdog concerns Prometheus and Alertmanager."""
STATUS = msgspec.json.schema(Status)["$defs"]


def section(name, title):
    return RUNBOOKS[name].split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def promql(name):
    """The PromQL expressions of a runbook, one per line."""
    return [line for code in fenced(RUNBOOKS[name], "promql") for line in code.splitlines() if line]


# -- structure --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RUNBOOKS)
def test_runbook_has_a_title_a_paragraph_and_six_sections(name):
    text = RUNBOOKS[name]

    assert text.startswith(f"# {name}\n\n")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == SECTIONS
    assert text.split("\n\n")[1].count("\n") <= 2


@pytest.mark.parametrize("name", RUNBOOKS)
def test_alert_includes_the_three_next_steps_of_its_runbook(name):
    steps = next_steps()[name]

    assert steps.strip() == section(name, "Next steps").strip()
    assert [line[:3] for line in steps.splitlines()] == ["1. ", "2. ", "3. "]
    assert max(map(len, steps.splitlines())) <= 105
    assert not set("[]`*") & set(steps)


@pytest.mark.parametrize("name", RUNBOOKS)
def test_package_contains_every_runbook(name):
    assert runbook(name) == RUNBOOKS[name]


@pytest.mark.parametrize(
    "name", ["", "README", "README.md", "../runbooks/StreamingBatchSlow", "NoSuchAlert", "a" * 999]
)
def test_unknown_runbook_is_none(name):
    assert runbook(name) is None


@pytest.mark.parametrize("name", RUNBOOKS)
def test_diagnosis_starts_with_the_quickest_check(name):
    assert section(name, "Diagnosis").startswith("\n**Quick check**: ")


@pytest.mark.parametrize("name", ABOUT_DRIVERS)
@pytest.mark.parametrize("where", ["```promql", "/status", "Spark UI", "Grafana", "status page"])
def test_diagnosis_names_every_place_to_check(name, where):
    assert where in section(name, "Diagnosis")


@pytest.mark.parametrize("name", RUNBOOKS)
def test_runbook_has_mitigation_and_silent_cases(name):
    assert "\n* " in section(name, "Mitigation")
    assert "\n* " in section(name, "When it does not fire")


def panels():
    """(dashboard title, panel title) of every Grafana panel."""
    found = set()
    for dashboard in grafana().values():
        name = dashboard["title"].rpartition(" ")[2].capitalize()
        for panel in dashboard["panels"]:
            found |= {(name, one["title"]) for one in (panel, *panel.get("panels", []))}
    return found


@pytest.mark.parametrize("name", ABOUT_DRIVERS)
def test_panel_named_in_a_runbook_exists(name):
    named = re.findall(r"\*(Fleet|Query)\*,\s+\*([^*]+)\*", RUNBOOKS[name])

    assert {(board, " ".join(title.split())) for board, title in named} <= panels()
    assert named or "Grafana, *" not in RUNBOOKS[name]


# -- commands to copy -------------------------------------------------------------------------------


@pytest.mark.prometheus
def test_every_promql_expression_is_valid(tmp_path):
    """Each expression becomes a recording rule, because promtool parses those."""
    asked = [(name, line) for name in RUNBOOKS for line in promql(name)]
    rules = [{"record": f"line:{number}", "expr": line} for number, (_, line) in enumerate(asked)]
    (tmp_path / "rules.yaml").write_text(
        yaml.safe_dump({"groups": [{"name": "runbooks", "rules": rules}]})
    )
    checked = subprocess.run(
        ["promtool", "check", "rules", "--lint=none", str(tmp_path / "rules.yaml")],
        capture_output=True,
        text=True,
    )

    assert checked.returncode == 0, checked.stderr
    assert f"{len(asked)} rules found" in checked.stdout
    assert len(asked) > len(RUNBOOKS)


@pytest.mark.parametrize("name", RUNBOOKS)
def test_runbook_uses_only_existing_metrics(name):
    assert metrics_in("\n".join(promql(name))) <= set(series())
    assert metrics_in(RUNBOOKS[name]) <= set(series()) | set(families())


def jq(name):
    """The jq programs of a runbook, without the text in quotes."""
    found = re.findall(r"jq '([^']*)'", RUNBOOKS[name])
    return [re.sub(r'"[^"]*"', '""', program) for program in found]


@pytest.mark.parametrize("name", ABOUT_DRIVERS)
def test_every_jq_path_exists_in_status(name):
    """A path is a field of ``/status``, a label or evidence of this alert."""
    labels = {"alertname", "app", "query", "severity"}
    reported = {"summary", "description", "reason", "runbook_url", "next_steps"} | evidence_of(name)
    fields = {field for record in STATUS.values() for field in record["properties"]}
    asked = set()
    for program in jq(name):
        asked |= set(re.findall(r"\.(\w+)", program))
        for shown in re.findall(r"\{([^}]*)\}", program):
            asked |= {part.partition(":")[0].strip() for part in shown.split(",")}

    assert jq(name)
    assert asked <= fields | labels | reported


@pytest.mark.parametrize("name", RUNBOOKS)
def test_jq_program_has_balanced_brackets(name):
    for program in jq(name):
        for opening, closing in ("()", "[]", "{}"):
            assert program.count(opening) == program.count(closing), program


@pytest.mark.parametrize("name", RUNBOOKS)
def test_commands_fit_a_terminal(name):
    lines = [
        line
        for kind in ("sh", "promql")
        for code in fenced(RUNBOOKS[name], kind)
        for line in code.splitlines()
    ]

    assert [line for line in lines if len(line) > 120] == []
