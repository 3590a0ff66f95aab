"""The repository as data: its Markdown, its alerts, its metrics."""

from __future__ import annotations

import re
import subprocess
from functools import lru_cache
from pathlib import Path

import yaml
from msgspec.structs import replace
from prometheus_client.core import Metric
from support.published_states import Collector, full_published
from support.rules import CASES
from support.rules.causes import CAUSES
from support.story import Story, policy, processing

from querypulse.alerting.facts import NotSeenYet
from querypulse.alerting.finding import Finding
from querypulse.alerting.kinds import DRIVER_DOWN
from querypulse.alerting.rules.context import rule_context
from querypulse.alerting.rules.evidence import collect
from querypulse.alerting.words.evidence import evidence_texts
from querypulse.alerting.words.messages import say
from querypulse.listener.events import SourceProgress
from querypulse.listener.probe_report import JobActivity, JobCounts

ROOT = Path(__file__).parents[2]
DASHBOARDS = ROOT / "dashboards"
RUNBOOKS = DASHBOARDS / "runbooks"
RULES = DASHBOARDS / "prometheus"
_FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


def files(pattern: str = "*") -> list[str]:
    """Relative path of every file that git tracks or would track, such as ``*.py``."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", pattern]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [name for name in listed.split("\0") if (ROOT / name).is_file()]


def markdown() -> dict[str, str]:
    """Relative path -> text of every Markdown file."""
    return {name: (ROOT / name).read_text() for name in files("*.md")}


def runbooks() -> dict[str, str]:
    """Alert name -> text."""
    return {
        path.stem: path.read_text()
        for path in sorted(RUNBOOKS.glob("*.md"))
        if path.stem != "README"
    }


def fenced(text: str, language: str) -> list[str]:
    """The code blocks of one language, without their indentation."""
    return [
        re.sub(f"^{indent}", "", code, flags=re.MULTILINE)
        for indent, name, code in _FENCE.findall(text)
        if name == language
    ]


@lru_cache
def own_findings() -> tuple[Finding, ...]:
    """The findings of all stories in the tables of rules and of likely causes."""
    causes = (story for story, _, _ in CAUSES.values())
    evaluations = (
        *(case.story.evaluate(case.moment, **case.settings) for case in CASES.values()),
        *(story.evaluate(story.ends_at) for story in causes),
    )
    return tuple(finding for evaluation in evaluations for finding in evaluation.findings)


def own_alerts() -> set[str]:
    """The names of the alerts of the sidecar and of ``querypulse watch``."""
    return {DRIVER_DOWN, *(finding.alertname for finding in own_findings())}


@lru_cache
def evidence_of(alertname: str) -> set[str]:
    """The names of the evidence of an alert."""
    findings = [finding for finding in own_findings() if finding.alertname == alertname]
    shown = {name for finding in findings for name in say(finding).evidence}
    return shown | evidence_of_a_query() if "query_id" in shown else shown


@lru_cache
def evidence_of_a_query() -> set[str]:
    """The names of all evidence of a query; few stories have all of it."""
    source = SourceProgress("KafkaV2[Subscribe[orders]]", 30.0, backlog_files=8.0)
    story = Story().commit(batch=0, at=1, sources=(source,))
    work = JobActivity(
        unowned=JobCounts(jobs_started=1),
        jvm_stack=("at a line",),
        python_line="/job.py:1 in write",
    )
    probed = processing(batch=1, committed_offsets="{}")
    story.probe(replace(probed, work=work), at=2)
    snapshot = story.state.snapshot(3)
    case = rule_context(snapshot.queries[0], snapshot, 3, policy())
    return {*evidence_texts(NotSeenYet(), collect(case)), "commit_log"}


def rules_of(name: str) -> list[dict]:
    """The shipped rules in a file, such as ``drivers.yaml``."""
    groups = yaml.safe_load((RULES / f"{name}.yaml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def prometheus_rules() -> list[dict]:
    """All shipped rules for Prometheus; one alert has a rule in two files."""
    return [
        rule for name in ("drivers", "queries", "freshness", "fleet") for rule in rules_of(name)
    ]


@lru_cache
def families() -> dict[str, Metric]:
    """The metric families of a driver, by their names in queries (``..._total``, ``..._info``)."""
    collected = Collector(full_published()).collect()
    return {_shown(family): family for family in collected}


def _shown(family: Metric) -> str:
    return family.name + {"counter": "_total", "info": "_info"}.get(family.type, "")


def series() -> dict[str, str]:
    """Every series name that a query may use -> its family."""
    parts = {"histogram": ("_bucket", "_sum", "_count")}
    return {
        f"{name}{part}": name
        for name, family in families().items()
        for part in parts.get(family.type, ("",))
    }
