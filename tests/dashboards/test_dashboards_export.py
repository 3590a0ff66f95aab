"""``querypulse dashboards export`` writes all shipped files or none."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

import pytest
from support.panels import values_of
from support.prometheus import accepted
from support.repository import ROOT
from support.rule_steps import steps_of

from querypulse.commands import cli, export_dashboards
from querypulse.settings.settings import DEFAULT_RUNBOOKS

USAGE_ERROR = 2
RUNBOOK = "runbooks/StreamingQueryFailed.md"

BROKEN_ADDRESSES = (
    "",
    "runbooks",
    "ftp://h/x",
    'https://h/"x',
    "https://h/a b",
    "https://h/#{{x}}",
    "https://u:hidden@h/x",
    "https://hidden@h/x",
)

pytestmark = pytest.mark.usefixtures("clean_environment")


@pytest.fixture
def export(capsys):
    """Run the command; returns exit code, output and errors."""

    def run(*arguments):
        code = cli.main(["dashboards", "export", *map(str, arguments)])
        return code, *capsys.readouterr()

    return run


def content(folder):
    """Relative path -> bytes of every file below a folder."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@cache
def committed():
    """Relative path -> bytes of the files of ``dashboards/`` that are data."""
    folders = {path.name for path in (ROOT / "dashboards").iterdir() if path.is_dir()}
    assert folders - {"__pycache__"} <= {*export_dashboards.FOLDERS}
    files = content(ROOT / "dashboards").items()
    return {name: data for name, data in files if "/" in name and "__pycache__" not in name}


def assert_refused(answer, *words):
    code, output, errors = answer
    assert (code, output) == (USAGE_ERROR, "")
    assert errors.startswith("querypulse: dashboards export: ")
    assert errors.count("\n") == 1
    assert [word for word in words if word not in errors] == []


# -- exported files -------------------------------------------------------------------------------


def test_all_data_files_are_exported_unchanged(export, tmp_path):
    code, output, errors = export(tmp_path / "here" / "stack")

    assert (code, errors) == (0, "")
    assert content(tmp_path / "here" / "stack") == committed()
    assert RUNBOOK in committed()
    *written, last = output.splitlines()
    assert written == [str(tmp_path / "here" / "stack" / name) for name in sorted(committed())]
    assert last.startswith(f"{len(committed())} files written below ")
    modes = {path.stat().st_mode & 0o777 for path in tmp_path.rglob("*.*") if path.is_file()}
    assert modes == {0o644}


def test_second_export_writes_nothing(export, tmp_path):
    export(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    code, output, errors = export(tmp_path)

    assert (code, errors) == (0, "")
    assert output == f"0 files written below {tmp_path}, {len(committed())} were up to date\n"
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_foreign_files_and_a_link_to_the_folder_are_left_alone(export, tmp_path):
    real = tmp_path / "real"
    (real / "grafana").mkdir(parents=True)
    (real / "grafana" / "own.json").write_text("{}")
    (tmp_path / "link").symlink_to(real)
    code, *_ = export(tmp_path / "link")

    assert code == 0
    assert content(real) == {**committed(), "grafana/own.json": b"{}"}


def test_runbook_links_follow_the_setting(export, tmp_path, monkeypatch):
    monkeypatch.setenv("QUERYPULSE_RUNBOOKS_URL", "https://wiki.example.com/runbooks/")
    export(tmp_path)

    for name, data in content(tmp_path).items():
        expected = committed()[name].replace(
            DEFAULT_RUNBOOKS.encode(), b"https://wiki.example.com/runbooks"
        )
        assert data == expected, name


@pytest.mark.prometheus
def test_alerts_of_prometheus_link_to_the_dashboard_of_the_setting(export, tmp_path, monkeypatch):
    url = "https://grafana.example/d/querypulse-query?var-app={app}&var-query={query}"
    monkeypatch.setenv("QUERYPULSE_DASHBOARD_URL", url)
    export(tmp_path)
    rules = tmp_path / "prometheus"
    accepted("promtool", "check", "rules", *rules.glob("*.yaml"))
    test = rules / "link.yaml"
    runbook = "https://github.com/querypulse/querypulse/blob/main/dashboards/runbooks"
    test.write_text(
        LINKED.replace("RUNBOOK", runbook).replace(
            "STEPS", json.dumps(steps_of("StreamingQueryStopped"))
        )
    )

    accepted("promtool", "test", "rules", test)


LINKED = """
rule_files: [drivers.yaml, queries.yaml]
tests:
  - interval: 1m
    input_series:
      - {series: 'querypulse_driver_heartbeat_timestamp_seconds{app="a&b"}', values: '0+60x9'}
      - {series: 'spark_streaming_query_alert{app="a&b", query="x y", alertname="StreamingQueryStopped", severity="critical"}', values: '1x9'}
    promql_expr_test: []
    alert_rule_test:
      - eval_time: 5m
        alertname: StreamingQueryStopped
        exp_alerts:
          - exp_labels: {app: a&b, query: x y, severity: critical}
            exp_annotations:
              summary: Streaming query x y of a&b has ended and is not back
              description: >-
                x y has ended without an exception, although its trigger has no end and nobody announced a stop, and
                was not back within gone_grace_seconds; or another query was started on its checkpoint, and Spark
                stopped it at once. The query * means all of them: their SparkContext stopped unexpectedly, or the
                main program ended.
              reason: ""
              next_steps: STEPS
              runbook_url: RUNBOOK/StreamingQueryStopped.md
              dashboard_url: https://grafana.example/d/querypulse-query?var-app=a%26b&var-query=x+y
"""


def test_dashboards_select_by_each_label_that_is_named(export, tmp_path):
    code, _, errors = export(tmp_path, "--label", "env", "--label", "team")
    plain, labelled = committed(), content(tmp_path)

    assert (code, errors) == (0, "")
    changed = {name for name in plain if plain[name] != labelled[name]}
    assert changed == {"grafana/fleet.json", "grafana/query.json"}
    for name in changed:
        dashboard = json.loads(labelled[name])
        variables = [variable["name"] for variable in dashboard["templating"]["list"]]
        assert variables == ["datasource", "job", "env", "team", "instance", "app", "query"]
        selectors = re.findall(r"\{[^{}]*=[^{}]*\}", "\n".join(values_of(dashboard, "expr")))
        selects = [', env=~"$env", team=~"$team"' in selector for selector in selectors]
        assert (len(selects) > 50, set(selects)) == (True, {True})
        assert "${instance:queryparam}&${env:queryparam}&${team:queryparam}" in str(dashboard)


@pytest.mark.parametrize("label", ["", "a-b", "1a", "app", "query", "job", "instance", "état"])
def test_label_that_cannot_be_selected_is_refused(export, tmp_path, capsys, label):
    with pytest.raises(SystemExit) as refused:
        export(tmp_path, f"--label={label}")

    assert refused.value.code == USAGE_ERROR
    assert repr(label) in capsys.readouterr().err
    assert content(tmp_path) == {}


# -- refusals -------------------------------------------------------------------------------------


def test_changed_files_are_overwritten_only_by_force_and_without_it_nothing_is_written(
    export, tmp_path
):
    export(tmp_path)
    changed = (RUNBOOK, "runbooks/StreamingQueryStopped.md")
    for name in changed:
        (tmp_path / name).write_text("ours\n")
    (tmp_path / "runbooks" / "StreamingBatchSlow.md").unlink()
    before = content(tmp_path)

    assert_refused(export(tmp_path), *changed, "--force", "nothing was")
    assert content(tmp_path) == before
    code, output, errors = export("--force", tmp_path)
    assert (code, errors) == (0, "")
    assert content(tmp_path) == committed()
    assert len(output.splitlines()) == 4


def test_folder_in_the_place_of_a_file_is_left_as_it_is(export, tmp_path):
    (tmp_path / RUNBOOK).mkdir(parents=True)

    assert_refused(export(tmp_path, "--force"), RUNBOOK, "Is a directory", "nothing was written")
    assert content(tmp_path) == {}


def test_full_disk_leaves_no_partial_file_and_exits_with_1(export, tmp_path, monkeypatch):
    replaced = export_dashboards.write_whole
    written = []

    def until_full(path, data, mode):
        if len(written) == 3:
            raise OSError(28, "No space left on device")
        written.append(path)
        replaced(path, data, mode)

    monkeypatch.setattr(export_dashboards, "write_whole", until_full)
    code, output, errors = export(tmp_path)

    assert code == 1
    assert "No space left on device; 3 of" in errors
    assert errors.count("\n") == 1
    assert [Path(line) for line in output.splitlines()] == written
    assert all(committed()[name] == data for name, data in content(tmp_path).items())


def test_runbook_address_that_would_break_a_file_is_rejected(export, tmp_path, monkeypatch):
    for address in BROKEN_ADDRESSES:
        monkeypatch.setenv("QUERYPULSE_RUNBOOKS_URL", address)
        code, output, errors = export(tmp_path / "stack")

        assert (code, output) == (USAGE_ERROR, ""), address
        assert "setting 'runbooks_url'" in errors, address
        assert "hidden" not in errors, address
        assert not (tmp_path / "stack").exists(), address
