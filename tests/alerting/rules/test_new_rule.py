"""The recipe "Add a rule" of CONTRIBUTING.md, followed step by step."""

from __future__ import annotations

from enum import Enum
from importlib import import_module

import pytest
from support.story import Story

from querypulse.alerting import kinds
from querypulse.alerting.facts import Facts
from querypulse.alerting.finding import Severity
from querypulse.alerting.kinds import Code, Kind
from querypulse.alerting.rules import ORDER
from querypulse.alerting.rules.evidence import report
from querypulse.alerting.words.messages import Guidance, alert_of
from querypulse.alerting.words.reasons import text_of
from querypulse.core.states import QueryState

NAME = "StreamingDiskFull"


class NewCode(str, Enum):
    DISK_FULL = "disk_full"


class DiskFull(Facts, frozen=True, kw_only=True):
    """The disk below the checkpoint is full."""

    code = NewCode.DISK_FULL
    free_bytes: int


def disk_full(context):
    """``StreamingDiskFull``: a rule that finds a full disk below every query that has begun."""
    if not context.query.run.activity_seen:
        return None
    return report(context, NAME, Severity.WARNING, DiskFull(free_bytes=7))


@text_of.register
def _disk_full(found: DiskFull) -> str:
    return f"{found.free_bytes} bytes are free"


@pytest.fixture
def new_rule(monkeypatch):
    kind = Kind(name=NAME, state=QueryState.STALLED, does="has a full disk", do="have full disks")
    monkeypatch.setitem(kinds.KINDS, NAME, kind)
    monkeypatch.setattr(import_module("querypulse.alerting.evaluate"), "ORDER", (*ORDER, disk_full))


def found(story, now):
    return [finding for finding in story.evaluate(now).findings if finding.alertname == NAME]


@pytest.mark.usefixtures("new_rule")
def test_new_rule_is_an_alert_with_its_headline_reason_and_state():
    [finding] = found(Story().started(at=0).commit(batch=0, at=10), 11)
    alert = alert_of(finding, "etl", Guidance("https://x/{alertname}"), 0.0)

    assert finding.state is QueryState.STALLED
    assert alert.annotations["summary"] == "[etl] a has a full disk: 7 bytes are free"
    assert alert.annotations["reason"] == "7 bytes are free"
    assert alert.annotations["runbook_url"] == f"https://x/{NAME}"


@pytest.mark.usefixtures("new_rule")
def test_new_rule_is_silent_before_the_query_begins():
    assert found(Story().started(at=0), 1) == []


def subclasses(of):
    for child in of.__subclasses__():
        yield child
        yield from subclasses(child)


@pytest.mark.parametrize("facts", list(subclasses(Facts)), ids=lambda facts: facts.__name__)
def test_every_class_of_facts_has_a_code_and_words(facts):
    assert isinstance(facts.code, NewCode if facts is DiskFull else Code)
    assert text_of.dispatch(facts) is not text_of.dispatch(object)
