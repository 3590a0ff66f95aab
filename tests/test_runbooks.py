"""A runbook can be followed at night: the same order everywhere, and what is copied out of it works."""

from __future__ import annotations

import re
import subprocess

import msgspec
import pytest
import yaml
from support.repository import evidence_of, families, fenced, grafana, metrics_in, runbooks, series

from querypulse.exporter.status import Status
from querypulse.sidecar.runbooks import next_steps, runbook

SECTIONS = [
    "Next steps", "Meaning", "Impact", "Diagnosis", "Mitigation", "When it does not fire",
]  # fmt: skip
RUNBOOKS = runbooks()
ABOUT_DRIVERS = sorted(set(RUNBOOKS) - {"QuerypulseWatchdog"})
"""QuerypulseWatchdog is about Prometheus and Alertmanager."""
STATUS = msgspec.json.schema(Status)["$defs"]


def section(name, title):
    return RUNBOOKS[name].split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def promql(name):
    """One expression a line."""
    return [line for code in fenced(RUNBOOKS[name], "promql") for line in code.splitlines() if line]


# -- order ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RUNBOOKS)
def test_a_runbook_has_its_name_one_paragraph_and_six_sections(name):
    text = RUNBOOKS[name]

    assert text.startswith(f"# {name}\n\n")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == SECTIONS
    assert text.split("\n\n")[1].count("\n") <= 2


@pytest.mark.parametrize("name", RUNBOOKS)
def test_an_alert_brings_the_three_next_steps_of_its_runbook(name):
    steps = next_steps()[name]

    assert steps.strip() == section(name, "Next steps").strip()
    assert [line[:3] for line in steps.splitlines()] == ["1. ", "2. ", "3. "]
    assert max(map(len, steps.splitlines())) <= 105
    assert not set("[]`*") & set(steps)


@pytest.mark.parametrize("name", RUNBOOKS)
def test_the_package_holds_every_runbook(name):
    assert runbook(name) == RUNBOOKS[name]


@pytest.mark.parametrize(
    "name", ["", "README", "README.md", "../runbooks/StreamingBatchSlow", "NoSuchAlert", "a" * 999]
)
def test_what_is_no_runbook_is_none(name):
    assert runbook(name) is None


@pytest.mark.parametrize("name", RUNBOOKS)
def test_diagnosis_begins_with_the_quickest_poll(name):
    assert section(name, "Diagnosis").startswith("\n**Quickest look**: ")


@pytest.mark.parametrize("name", ABOUT_DRIVERS)
@pytest.mark.parametrize("where", ["```promql", "/status", "Spark UI", "Grafana", "status page"])
def test_diagnosis_says_where_to_poll(name, where):
    assert where in section(name, "Diagnosis")


@pytest.mark.parametrize("name", RUNBOOKS)
def test_a_runbook_says_what_to_do_and_when_it_is_silent(name):
    assert "\n* " in section(name, "Mitigation")
    assert "\n* " in section(name, "When it does not fire")


def panels():
    """(dashboard's title, panel's title) of everything that Grafana shows."""
    found = set()
    for dashboard in grafana().values():
        name = dashboard["title"].rpartition(" ")[2].capitalize()
        for panel in dashboard["panels"]:
            found |= {(name, one["title"]) for one in (panel, *panel.get("panels", []))}
    return found


@pytest.mark.parametrize("name", ABOUT_DRIVERS)
def test_a_panel_that_is_named_is_in_its_dashboard(name):
    named = re.findall(r"\*(Fleet|Query)\*,\s+\*([^*]+)\*", RUNBOOKS[name])

    assert {(board, " ".join(title.split())) for board, title in named} <= panels()
    assert named or "Grafana, *" not in RUNBOOKS[name]


# -- what is copied ---------------------------------------------------------------------------------


@pytest.mark.prometheus
def test_every_query_for_prometheus_is_one(tmp_path):
    """Each wrapped as a recording rule, for that is what promtool parses."""
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
def test_a_runbook_asks_for_metrics_that_there_are(name):
    assert metrics_in("\n".join(promql(name))) <= set(series())
    assert metrics_in(RUNBOOKS[name]) <= set(series()) | set(families())


def jq(name):
    """The programs in a runbook, without the text in quotes inside."""
    found = re.findall(r"jq '([^']*)'", RUNBOOKS[name])
    return [re.sub(r'"[^"]*"', '""', program) for program in found]


@pytest.mark.parametrize("name", ABOUT_DRIVERS)
def test_every_path_into_status_is_served(name):
    """Fields of ``/status``, labels, and what this alert brings as evidence."""
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
def test_a_program_for_jq_is_balanced(name):
    for program in jq(name):
        for opening, closing in ("()", "[]", "{}"):
            assert program.count(opening) == program.count(closing), program


@pytest.mark.parametrize("name", RUNBOOKS)
def test_what_is_copied_fits_a_terminal(name):
    lines = [
        line
        for kind in ("sh", "promql")
        for code in fenced(RUNBOOKS[name], kind)
        for line in code.splitlines()
    ]

    assert [line for line in lines if len(line) > 120] == []
