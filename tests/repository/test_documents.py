"""What README, docs and runbooks say is true: commands, code, settings, defaults and names.

A value after a name, as in "`stall_floor_seconds` (60 s)" or "`--interval SECONDS` (5 s)", is its
default. ``tests/dashboards/test_catalogue.py`` compares the metrics, ``python -m tools.links`` the
links.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import inspect
import json
import re
import shlex
import signal
import sys
from contextlib import redirect_stderr
from functools import cache
from io import StringIO
from unittest.mock import MagicMock, create_autospec

import msgspec
import pytest
import standardwebhooks
import yaml
from support.published_states import full_published
from support.repository import (
    ROOT,
    evidence_of,
    families,
    fenced,
    files,
    markdown,
    own_alerts,
    prometheus_rules,
    runbooks,
)

import querypulse
from querypulse.alerting import silences
from querypulse.alerting.delivery import outbox
from querypulse.alerting.facts import Reported
from querypulse.alerting.finding import Finding, Severity
from querypulse.alerting.receivers import email, http
from querypulse.alerting.words.messages import alert_of
from querypulse.commands import cli, exit_code
from querypulse.core.states import STATES, QueryState
from querypulse.exporter import pages as pages_module
from querypulse.exporter.server import CLIENT_SECONDS
from querypulse.exporter.status import UNREADY, Status, status
from querypulse.listener.state import state
from querypulse.settings.links import guidance
from querypulse.settings.loading import NO_SETTINGS, SPARK_PREFIX, load_settings
from querypulse.settings.receivers import routes
from querypulse.settings.settings import DEFAULT_RUNBOOKS, TYPES, Settings, check_value
from querypulse.sidecar.assemble import make_receivers
from querypulse.sidecar.sidecar import EXIT_SECONDS

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
OF_SPARK = {
    "StreamingQuery",
    "StreamingQueryException",
    "StreamingQueryListener",
    "StreamingQueryManager",
}
OF_OTHERS = {"--archives", "--conf", "--files", "--name", "--packages", "--py-files", "--user"}
OF_OTHERS |= {"--supervise", "--command-config"}
"""Flags of spark-submit, curl and Kafka's tools."""
ANNOTATIONS = {"runbook_url", "spark_ui_url", "delivery_delay_seconds"}
COMMAND = re.compile(r"(?:^|\$\(|[ ]|bin/)(querypulse [^#|>)\n]+)")
STATED = re.compile(r"`((?:--)?[a-z][a-z_-]+)(?: [A-Z]+)?` \((\d[\d,.]*)(?: s\b|[,);])")


@cache
def pages():
    """Path -> text of what users read."""
    own = ("README.md", "SECURITY.md", "docs/", "dashboards/")
    return {name: text for name, text in markdown().items() if name.startswith(own)}


def blocks(*languages):
    """Page and number -> the blocks of these languages."""
    return {
        f"{name}-{number}": block
        for name, text in pages().items()
        for language in languages
        for number, block in enumerate(fenced(text, language))
    }


def inline():
    """Each code span of the pages, outside of blocks, with its page."""
    for name, text in pages().items():
        prose = re.sub(r"^( *)```.*?^\1```$", "", text, flags=re.MULTILINE | re.DOTALL)
        yield from ((name, span) for span in re.findall(r"`([^`\n]+)`", prose))


def test_no_page_is_long_and_there_are_few():
    docs = {name: text.count("\n") for name, text in pages().items() if name.startswith("docs/")}

    assert len(docs) <= 25
    assert {name: lines for name, lines in docs.items() if lines > 200} == {}
    assert pages()["README.md"].count("\n") <= 125


def none_of(problems):
    return {name: problem for name, problem in problems.items() if problem}


# -- commands ---------------------------------------------------------------------------------


def commands():
    """Each ``querypulse ...`` of a block, in one line and without its comment, with its page."""
    for name, block in blocks("", "sh", "console", "ini", "dockerfile").items():
        joined = re.sub(r"\\\n\s*", "", block)
        for line in joined.splitlines():
            command = COMMAND.search(re.sub(r"git\+\S+|pip\S* .*", "", line))
            if command and not line.lstrip().startswith(("[", "|", "#")):
                yield name, command.group(1)


def mistake(command):
    """Why the command line refuses these words; empty if it does not."""
    words = shlex.split(command)[1:]
    if words[:1] == ["run"] and len(words) > 1:
        return ""
    errors = StringIO()
    try:
        with redirect_stderr(errors):
            cli._parser().parse_args(words)
    except SystemExit:
        return errors.getvalue() or ("" if words == ["--version"] else "help")
    return ""


def test_commands_of_blocks_are_accepted():
    written = dict(map(reversed, commands()))

    assert len(written) > 15
    assert none_of({command: mistake(command) for command in written}) == {}


def parsers(parser):
    """Name -> the parser of each command, and of each command below one."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, inner in action.choices.items():
                yield name, inner
                yield from parsers(inner)


def test_commands_and_flags_of_the_text_exist():
    flags = {name: set(inner._option_string_actions) for name, inner in parsers(cli._parser())}
    flags["dashboards"] |= flags["export"]
    every = set().union(*flags.values(), OF_OTHERS)
    unknown = set()
    for page, span in inline():
        if span.startswith("--") and re.split(r"[ =]", span)[0] not in every:
            unknown.add((page, span))
        if span.startswith("querypulse "):
            name, *words = re.sub(r"\$\(.*", "", span).split()[1:]
            given = {word for word in words if word.startswith("--")}
            if name != "--version" and not given <= flags.get(name, set()):
                unknown.add((page, span))
    assert unknown == set()


def test_targets_of_make_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {
        (page, target)
        for page, text in (pages() | {"CONTRIBUTING.md": markdown()["CONTRIBUTING.md"]}).items()
        for target in re.findall(r"(?:`|^)make ([a-z-]+)", text, re.MULTILINE)
    }
    assert {(page, target) for page, target in named if target not in targets} == set()


def test_exit_codes_of_the_demo_are_those_of_the_code():
    _, _, rest = pages()["docs/attach.md"].partition("| exit code |")
    shown = re.findall(r"^\| (\d+) \|", rest, re.MULTILINE)

    assert shown == ["0", "1", "2", "3", "130"]
    assert (exit_code.COULD_NOT_BEGIN, exit_code.INTERRUPTED) == (2, 130)


# -- code -------------------------------------------------------------------------------------


class Names(dict):
    """The names that an example takes from its job: anything."""

    def __missing__(self, name):
        if hasattr(builtins, name):
            raise KeyError(name)
        return MagicMock(name=name)


@pytest.fixture
def job(monkeypatch):
    """Run an example; Spark is a stub, and so is what its calls do, but not their signatures."""
    sidecar = create_autospec(querypulse.Sidecar, instance=True)
    sidecar.listener = sidecar.collector = MagicMock()

    def attach(_, **arguments):
        Settings(**arguments)
        return sidecar

    def sidecar_of(**arguments):
        return attach(None, **arguments)

    monkeypatch.setattr(querypulse, "attach", attach, raising=False)
    monkeypatch.setattr(querypulse, "Sidecar", sidecar_of, raising=False)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(standardwebhooks.Webhook, "verify", lambda *_: None)
    dbutils = MagicMock()
    dbutils.secrets.get.return_value = SECRETS["routing_key_file"]

    def run(code):
        names = Names(
            sidecar=sidecar, attach=attach, dbutils=dbutils, secret=SECRETS["secret_files"]
        )
        try:
            exec(compile(ast.parse(code), "example", "exec"), {}, names)
        except Exception as error:  # any error is the example's
            return repr(error)
        return ""

    return run


def test_each_example_in_python_runs(job):
    examples = blocks("python")

    assert len(examples) > 10
    assert none_of({name: job(code) for name, code in examples.items()}) == {}


def test_examples_in_json_and_yaml_can_be_parsed():
    assert all(json.loads(code) for code in blocks("json").values())
    assert all(yaml.safe_load(code) for code in blocks("yaml").values())


# -- settings ---------------------------------------------------------------------------------


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


def problem_of(example, folder):
    """Why an example cannot be used; empty if it can."""
    try:
        settings = Settings(**usable(tomllib.loads(example), folder))
        names = {receiver.name for receiver in make_receivers(settings)}
    except (ValueError, TypeError) as error:
        return repr(error)
    return "" if names == routes(settings).keys() else f"receivers {names}"


def test_each_example_of_settings_can_be_used(tmp_path):
    examples = blocks("toml")

    assert len(examples) > 5
    assert none_of({name: problem_of(code, tmp_path) for name, code in examples.items()}) == {}


def test_variables_and_conf_are_settings_with_allowed_values():
    deployed = {
        str(path): path.read_text() for path in (ROOT / "deploy").rglob("*") if path.is_file()
    }
    unknown = {}
    for name, text in (pages() | deployed).items():
        variables = set(re.findall(r"\bQUERYPULSE_[A-Z_]+[A-Z]\b", text)) - NO_SETTINGS
        conf = set(re.findall(rf"{re.escape(SPARK_PREFIX)}(\w+)", text))
        named = {variable.removeprefix("QUERYPULSE_").lower() for variable in variables} | conf
        given = dict(re.findall(r"\b(QUERYPULSE_[A-Z_]+)=([^\s,`']+)", text))
        loaded = load_settings(
            {}, {key: value for key, value in given.items() if key not in NO_SETTINGS}, {}
        )
        unknown[name] = (named - TYPES.keys() - {"artifacts"}) or loaded.problems
    assert none_of(unknown) == {}


def fields(*records):
    """The names of the fields of records, and of the records in them."""
    schemas = msgspec.json.schema_components(records)[1].values()
    return {name for schema in schemas for name in schema.get("properties", {})}


def test_named_settings_exist():
    """Also fields of ``/status`` and arguments, which have names of the same kind."""
    words = r"seconds|urls?|files?|dir|factor|ratio|tolerance|offsets|patterns|headers|queries"
    names = {*fields(Settings, Status), *inspect.signature(querypulse.Sidecar.supervise).parameters}
    names |= {name for alert in runbooks() for name in evidence_of(alert)} | ANNOTATIONS
    unknown = {
        (page, span)
        for page, span in inline()
        if re.fullmatch(rf"(?!test_)[a-z]+(_[a-z]+)*_({words})", span)
        and span not in {*names, *families()}
    }
    assert unknown == set()


def defaults():
    """Setting or flag -> its default, where that is a number."""
    numbers = {
        field.name: field.default
        for field in msgspec.structs.fields(Settings)
        if isinstance(field.default, int | float)
    }
    for _, command in parsers(cli._parser()):
        for action in command._actions:
            if isinstance(action.default, int | float) and action.option_strings:
                numbers[action.option_strings[-1]] = action.default
    return numbers


def test_stated_defaults_are_those_of_the_code():
    stated = [
        (page, name, float(number.replace(",", "").rstrip(".")))
        for page, text in pages().items()
        for name, number in STATED.findall(text)
    ]
    actual = defaults()

    assert len(stated) > 5
    assert [row for row in stated if row[1] in actual and row[2] != actual[row[1]]] == []


def test_arguments_of_supervise_have_the_documented_defaults():
    parameters = inspect.signature(querypulse.Sidecar.supervise).parameters
    shown = re.findall(r"^\| `(\w+)` \| `(\d+)` \|", pages()["docs/in-a-job.md"], re.MULTILINE)

    assert {name for name, _ in shown} == set(parameters) - {"self", "starts"}
    assert {name: float(number) for name, number in shown} == {
        name: parameters[name].default for name, _ in shown
    }


def test_page_of_settings_is_current_and_has_each_of_them_once_with_a_valid_example(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    from tools.settings import page

    text = pages()["docs/settings.md"]
    rows = re.findall(r"^\| `(\w+)` \|.*\| `(.+)` \|$", text, re.MULTILINE)

    assert page(text) == text
    assert sorted(name for name, _ in rows) == sorted(Settings.__struct_fields__)
    for name, example in rows:
        assert check_value(name, tomllib.loads(f"value = {example}")["value"], "page") is not None


# -- names ------------------------------------------------------------------------------------


def test_each_alert_has_a_runbook_a_paragraph_and_a_line():
    from_prometheus = {rule["alert"] for rule in prometheus_rules() if "alert" in rule}
    index = pages()["dashboards/runbooks/README.md"]

    assert set(runbooks()) == own_alerts() | from_prometheus
    assert [name for name in own_alerts() if name not in pages()["docs/rules.md"]] == []
    assert [name for name in runbooks() if name not in index] == []


def test_oldest_versions_of_the_dependencies_are_documented():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = dict(re.findall(r"([\w-]+)>=([\d.]+)", "\n".join(project["dependencies"])))
    page = (ROOT / "docs/attach.md").read_text()
    text = page.partition("at least these")[2].partition("The tests")[0]

    assert dict(re.findall(r"`([\w-]+)`\s([\d.]+\d)", text)) == declared


def test_each_alert_links_to_its_runbook():
    for name in own_alerts():
        finding = Finding(
            name,
            "q",
            Severity.CRITICAL,
            QueryState.FAILED,
            Reported(reason="reason", summary="summary"),
        )
        shown = alert_of(finding, "app", guidance(Settings()), 0.0)
        assert shown.annotations["runbook_url"] == f"{DEFAULT_RUNBOOKS}/{name}.md"
    for rule in prometheus_rules():
        if name := rule.get("alert"):
            assert rule["annotations"]["runbook_url"] == f"{DEFAULT_RUNBOOKS}/{name}.md"
    (home,) = re.findall(r'(?m)^Repository = "(.+)"$', (ROOT / "pyproject.toml").read_text())
    assert f"{home}/blob/main/dashboards/runbooks" == DEFAULT_RUNBOOKS


def test_named_alerts_exist():
    named = {
        (page, name)
        for page, text in pages().items()
        for name in re.findall(r"(?<![\w.])((?:Streaming|Querypulse)[A-Z]\w+)", text)
    }
    assert {row for row in named if row[1] not in {*runbooks(), *OF_SPARK}} == set()


def test_page_of_the_status_document_has_each_of_its_fields():
    document = msgspec.to_builtins(status(full_published()))
    page = pages()["docs/status.md"]
    fields = {*document, *document["queries"][0], *document["monitor"]}

    assert {
        name for name in fields if f"`{name}`" not in page and f"`{name}[]`" not in page
    } == set()


def test_costs_in_the_readme_are_those_of_the_last_benchmark():
    table = pages()["docs/internals/benchmarks.md"]
    rows = re.findall(r"(?m)^\| (.+?) \| ([\d.]+) [um]?s\S*(?: \(± ([\d.]+)\))?", table)
    measured = {row: float(number) for row, number, _ in rows}
    # A result below its margin says only that the cost is below both together.
    most = {row: float(number) + float(margin or 0) for row, number, margin in rows}
    costs = [
        f"at most {most['idle: querypulse, added to post()']:.0f} µs",
        f"{most['busy: querypulse, added to post()']:.0f} µs beside a busy interpreter",
        f"takes {measured['idle: stock']:.0f} ms",
        f"{measured['death to page, idle bus: median']:.2f} s",
        f"{measured['hang to page, idle bus: median']:.1f} s",
        f"{measured['querypulse: CPU of its threads']:.0f} ms a second",
        f"{measured['attach(), the first of a process'] / 1000:.1f} s",
    ]
    assert [cost for cost in costs if cost not in pages()["README.md"]] == []


def test_states_of_the_page_are_those_of_a_query():
    page = pages()["docs/status.md"]
    (readiness,) = re.findall(r"(?m)^\| `/readyz` \| 503 (.*)$", page)

    assert ", ".join(f"`{name}`" for name in STATES) in page
    assert set(re.findall(r"`([a-z_]+)`", readiness)) == UNREADY


def test_files_that_contributing_names_exist():
    kinds = ("py", "java", "yaml", "json", "md", "txt")
    paths = "\n".join(f"/{path}" for kind in kinds for path in files(f"*.{kind}")) + "\n"
    pattern = rf"`([\w./-]+\.(?:{'|'.join(kinds)}))`"
    text = markdown()["CONTRIBUTING.md"]
    named = [name for name in re.findall(pattern, text) if not name.startswith("build/")]

    assert len(named) > 40
    assert [name for name in named if f"/{name}\n" not in paths] == []


def test_every_file_to_deploy_is_on_a_page():
    """Or its folder, below that of the platform."""
    text = "".join(pages().values())
    paths = [path.relative_to(ROOT) for path in (ROOT / "deploy").rglob("*") if path.is_file()]

    def is_on_a_page(path):
        places = [place for place in (path, *path.parents) if len(place.parts) > 2]
        return any(f"](../{place.as_posix()})" in text for place in places)

    assert [path for path in paths if not is_on_a_page(path)] == []


def test_limits_in_the_text_are_those_of_the_code():
    gone = f"the newest {state.MAX_GONE_QUERIES:,} with a name and {state.MAX_GONE_UNNAMED} without"
    said = [
        ("README.md", f"the exit waits at most {EXIT_SECONDS:.0f} s"),
        ("docs/alerts.md", f"holds {silences.MAX_SILENCES:,} silences"),
        ("docs/limits.md", f"after {state.KEEP_COMPLETED_SECONDS / 60:.0f} minutes"),
        ("docs/limits.md", gone),
        ("docs/receivers.md", f"takes about {http.TOTAL_SECONDS:.0f} seconds"),
        ("docs/receivers.md", f"{email.TOTAL_SECONDS:.0f} s for the whole"),
        ("docs/receivers.md", f"holds {outbox.MAX_ROWS} rows"),
        ("docs/security.md", f"{pages_module.MAX_WATCHERS} requests can wait"),
        ("docs/status.md", f"a client has {CLIENT_SECONDS:.0f} s to send its request"),
    ]
    assert [row for row in said if row[1] not in " ".join(pages()[row[0]].split())] == []
