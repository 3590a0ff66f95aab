"""Every runbook has the same structure, and the commands in it work when copied.

``curl`` and ``jq`` ask a served driver that has the alert; PromQL and ``kubectl`` are parsed by their own
parsers. ``tests/spark/test_spark_restart.py`` reads a checkpoint.
"""

from __future__ import annotations

import os
import re
import subprocess
from functools import cache

import msgspec
import pytest
from msgspec.structs import replace
from support.exporter_http import serving
from support.metrics_page import labels_of
from support.panels import DASHBOARDS, values_of
from support.patience import PATIENCE_SECONDS, WALL
from support.prometheus import assert_valid
from support.published_states import full_published, published
from support.repository import ROOT, evidence_of, families, fenced, runbooks, series
from support.rules import CASES

from querypulse.alerting.words.messages import Guidance, alert_of
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
    """The PromQL expressions of a runbook: one per line, unless the next line is indented."""
    joined = [re.sub(r"\n +", " ", code) for code in fenced(texts()[name], "promql")]
    return [line for code in joined for line in code.splitlines() if line]


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


# -- what each page says of ends and placeholders ---------------------------------------------------

ENDS = {
    "StreamingQueryFailed",
    "StreamingQueryFlapping",
    "StreamingQueryGivenUp",
    "StreamingQueryMissing",
    "StreamingQueryStopped",
}
"""Alerts of which the driver may have ended, too."""
RESTART = "https://github.com/querypulse/querypulse/blob/main/docs/restart.md"
PLACEHOLDER = re.compile(r"(?<![\w-])(?:[A-Z]+_)*[A-Z]+(?=(?::\d+)?(?![\w\]-]))")
RETENTION = re.compile(r"(?:retention\.\w+|(?:Duration|-ms)')\s*=\s*('[^']*'|[\w-]+)")
"""The value that a command gives one."""
WORDS = {"ALERTS", "KILLED", "OOM"}
"""What is to be written as it is."""
WORDS |= {"ALTER", "BY", "DESCRIBE", "FROM", "HISTORY", "ORDER", "SELECT", "SET", "SHOW", "TABLE"}
WORDS |= {"TBLPROPERTIES"}


def placeholders(text):
    """The words in capitals of the code blocks: to be replaced, or a variable to be set."""
    code = "\n".join(
        code for language in ("sh", "promql", "sql") for code in fenced(text, language)
    )
    return set(PLACEHOLDER.findall(code)) - WORDS


def explained(text):
    """The placeholders that the page explains in one place."""
    paragraph = text.partition("**In the commands**: ")[2].partition("\n\n")[0]
    return set(re.findall(r"`\$?([A-Z_]+)(?::\d+)?`", paragraph))


def test_each_placeholder_in_a_command_is_explained_on_the_page():
    unexplained = {name: placeholders(text) - explained(text) for name, text in texts().items()}

    assert {name: words for name, words in unexplained.items() if words} == {}
    assert placeholders("```sh\nls $FOO BAR\n```") == {"FOO", "BAR"}


def test_no_command_sets_a_retention_that_may_be_shorter_than_the_one_in_force():
    """It would delete what the query has not read. Minus one is no limit."""
    blocks = [
        code for text in texts().values() for kind in ("sh", "sql") for code in fenced(text, kind)
    ]
    values = [value for code in blocks for value in RETENTION.findall(code)]

    assert len(values) > 4
    assert [value for value in values if re.search(r"(?<!-)\d", value)] == []
    mitigation = section("StreamingDataLossRisk", "Mitigation")
    assert mitigation.index("--describe") < mitigation.index("--alter") < mitigation.index("=OLD_")
    assert mitigation.index("SHOW TBLPROPERTIES") < mitigation.index("SET TBLPROPERTIES")


def test_process_id_is_that_of_the_jvm_or_of_python():
    assert [name for name, text in texts().items() if re.search(r"(?<![_A-Z])PID\b", text)] == []


def test_each_runbook_links_to_the_commands_of_the_platform():
    headings = (ROOT / "docs/restart.md").read_text().lower()
    for name, text in texts().items():
        assert RESTART in section(name, "Diagnosis"), name
        for anchor in re.findall(rf"{RESTART}#([\w-]+)", text):
            assert f"# {anchor.replace('-', ' ')}\n" in headings, (name, anchor)


def test_runbook_about_an_end_says_what_to_do_if_the_driver_has_ended():
    for name in ENDS:
        assert re.search(r"\*\*If (the|no) driver (has ended|ends|is there)", texts()[name]), name


def test_runbook_names_no_evidence_of_other_alerts():
    """An annotation that no driver can attach to this alert sends people to search for it."""
    evidence = {name: evidence_of(name) for name in texts()}
    every = set().union(*evidence.values())
    fields = {name for record in status_records() for name in record["properties"]}
    for name, text in texts().items():
        said = set(re.findall(r"`(\w+)` in the (?:alert|warning)", text))
        assert said & every <= evidence[name] | fields, name


# -- commands to copy -------------------------------------------------------------------------------


@pytest.mark.prometheus
def test_every_promql_expression_is_valid(tmp_path):
    asked = [line for name in texts() for line in promql(name)]

    assert len(asked) > len(texts())
    assert_valid(asked, tmp_path)


def test_promql_selects_the_app_of_the_alert():
    """Two jobs may have a query of one name; what has no label ``app`` selects the driver."""
    unselected = [
        (name, metric)
        for name in texts()
        for expression in promql(name)
        for metric, _, labels in re.findall(r"\b(\w+)\b(\{([^{}]*)\})?", expression)
        if metric in series() and not selects_one_app(metric, labels)
    ]

    assert unselected == []


def selects_one_app(metric, labels):
    if 'app="APP"' in labels:
        return True
    has_app = "app" in labels_of(families()[series()[metric]])
    return 'instance="DRIVER:9719"' in labels and not (has_app and "streaming" in metric)


def jq(name):
    """The jq programs of a runbook, without the text in quotes."""
    return [
        re.sub(r'"[^"]*"', '""', program) for program in re.findall(r"jq '([^']*)'", texts()[name])
    ]


def status_records():
    return msgspec.json.schema(Status)["$defs"].values()


def test_every_jq_program_is_balanced_and_its_paths_exist_in_status():
    """A path is a field of ``/status``, a label or evidence of this alert."""
    labels = {"alertname", "app", "query", "severity"}
    reported = {"summary", "description", "reason", "runbook_url", "next_steps"}
    fields = {field for record in status_records() for field in record["properties"]}
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


TOKEN = "s3cret-token-of-a-driver"
EMPTY = re.compile(r"[][{}]$|\bnull,?$")
"""A line of the output of jq that says nothing."""


def shell(name):
    """The shell blocks of a runbook."""
    return fenced(texts()[name], "sh")


def run(command, **environment):
    """Run a block of a runbook as a person would."""
    return subprocess.run(
        ["bash", "-c", command],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        env={**os.environ, **environment},
    )


def states_with(alertname):
    """What drivers publish that have this alert, and the name of the query: the rows of the rules."""
    for case in CASES.values():
        evaluation = case.story.evaluate(case.moment, **case.settings)
        findings = [found for found in evaluation.findings if found.alertname == alertname]
        if findings:
            guidance = Guidance("https://runbooks.example/{alertname}.md")
            alerts = tuple(alert_of(found, "shop", guidance, WALL) for found in findings)
            state = published(case.story, now=case.moment)
            yield replace(state, health=evaluation.health, alerts=alerts), findings[0].query
    yield full_published(), "busy"


def answers(command, name):
    """What the command prints about the first driver that has what it asks for."""
    for state, query in states_with(name):
        with serving(state, token=TOKEN) as server:
            place = server.url.removeprefix("http://")
            done = run(command.replace("DRIVER:9719", place).replace("NAME", query), TOKEN=TOKEN)
        assert (done.returncode, done.stderr) == (0, ""), (name, command)
        if any(not EMPTY.search(line) for line in done.stdout.splitlines()):
            return done.stdout
    return ""


def of_the_driver():
    return [
        (name, code) for name in texts() for code in shell(name) if "http://DRIVER:9719" in code
    ]


@pytest.mark.slow
def test_every_command_to_a_driver_answers_on_one_with_the_alert():
    silent = [(name, code) for name, code in of_the_driver() if not answers(code, name)]

    assert len(of_the_driver()) >= len(of_drivers())
    assert silent == []


def test_a_driver_that_refuses_is_not_taken_for_one_without_answers():
    with serving(full_published(), token=TOKEN) as server:
        place = server.url.removeprefix("http://")
        for name, code in of_the_driver():
            done = run(code.replace("DRIVER:9719", place), TOKEN="")
            assert "401" in done.stderr, name
    curls = [line for name in texts() for code in shell(name) for line in code.splitlines()]
    hidden = [line for line in curls if "curl " in line and not re.search("-fsS|http_code", line)]
    assert hidden == []


def test_every_shell_block_can_be_parsed():
    blocks = [code for name in texts() for code in shell(name)]
    blocks += fenced((ROOT / "docs/restart.md").read_text(), "sh")

    assert [code for code in blocks if run(f"set -n\n{code}").stderr] == []


@pytest.mark.kubectl
def test_kubectl_knows_every_command_and_flag():
    """It parses them before it connects."""
    blocks = [code for name in texts() for code in shell(name)]
    blocks += fenced((ROOT / "docs/restart.md").read_text(), "sh")
    commands = [
        line.split("  #")[0] for code in blocks for line in code.splitlines() if "kubectl " in line
    ]
    nowhere = "kubectl --server=http://127.0.0.1:1 --request-timeout=1s "

    assert len(commands) > 8
    for command in commands:
        done = run(command.replace("kubectl ", nowhere))
        assert re.search("refused|could not find", done.stderr), (command, done.stderr)
