"""The keywords of ``attach`` and ``Sidecar`` are the settings; help, editors and mypy know them."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_
from types import NoneType, UnionType
from typing import Annotated, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest
from support.repository import ROOT

from querypulse.alerting.policy import LimitSettings
from querypulse.alerting.receivers.receiver import ReceiverSettings
from querypulse.settings import arguments
from querypulse.settings.settings import TYPES, QuerySettings, Settings
from querypulse.sidecar import Sidecar, attach

OF_QUERIES = {field.name: field.type for field in msgspec.structs.fields(QuerySettings)}
LIMITS = {field.name: field.type for field in msgspec.structs.fields(LimitSettings)}


def keyword(setting):
    """The type of the keyword for a setting of this type."""
    origin = get_origin(setting)
    if origin is Annotated:
        return keyword(get_args(setting)[0])
    if origin in (Union, UnionType):
        return reduce(or_, [keyword(one) for one in get_args(setting)])
    if origin is tuple:
        of = keyword(get_args(setting)[0])
        return arguments.Texts if of is str else Sequence[Mapping[str, object] | ReceiverSettings]
    if origin is dict:
        of = get_args(setting)[1]
        return Mapping[str, arguments.QueryArguments if of is QuerySettings else keyword(of)]
    return setting


def required(setting):
    """Without None, which only means that it is not given."""
    return reduce(or_, [one for one in get_args(setting) if one is not NoneType])


def test_each_setting_is_a_keyword_of_its_type():
    """A line for each setting of ``Settings``; ``settings/arguments.py`` lacks what this shows."""
    given = get_type_hints(arguments.SettingArguments)
    wanted = {name: keyword(setting) for name, setting in TYPES.items()}

    assert {name: kind for name, kind in wanted.items() if given.get(name) != kind} == {}
    assert given.keys() - wanted.keys() == set()


def test_each_setting_of_a_query_is_a_key_of_its_type():
    given = get_type_hints(arguments.QueryArguments)
    own = {name for name in OF_QUERIES if name not in LIMITS}
    wanted = {name: keyword(kind) for name, kind in LIMITS.items()}
    wanted |= {name: keyword(OF_QUERIES[name]) for name in own}
    # What is None for a query is not given.
    wanted |= {name: keyword(required(OF_QUERIES[name])) for name in ("ignore", "reads", "writes")}

    assert {name: kind for name, kind in wanted.items() if given.get(name) != kind} == {}
    assert given.keys() == OF_QUERIES.keys()


@pytest.mark.parametrize("function", [attach, Sidecar])
def test_help_shows_each_setting_with_its_default(function):
    shown = inspect.signature(function).parameters
    record = Settings()

    assert list(shown)[-len(TYPES) :] == list(TYPES)
    assert {name: shown[name].default for name in TYPES} == {
        name: getattr(record, name) for name in TYPES
    }
    assert "settings" in shown
    assert all(shown[name].kind is inspect.Parameter.KEYWORD_ONLY for name in TYPES)


def test_attach_takes_nothing_but_the_session_by_position():
    positional = inspect.Parameter.POSITIONAL_OR_KEYWORD
    shown = inspect.signature(attach).parameters.values()

    assert [one.name for one in shown if one.kind is positional] == ["spark"]


# -- mypy -------------------------------------------------------------------------------------


ACCEPTED = """
from typing import Any
from querypulse import Settings, Sidecar, attach

def job(spark: Any, more: dict[str, Any]) -> None:
    attach(spark)
    attach(spark, expected_queries=["bronze"], stall_floor_seconds=30, labels={"env": "prod"})
    attach(spark, expected_queries=("bronze",), http_port=-1, enabled=False)
    attach(spark, queries={"nightly*": {"stall_floor_seconds": 3600, "ignore": False}})
    attach(spark, queries={"bronze": {"writes": ["delta:/lake/bronze"]}})
    attach(spark, receivers=[{"type": "slack", "name": "team", "url_file": "/run/secrets/slack"}])
    attach(spark, webhook_url=None, complete_by="06:00", lag_allowed_seconds=None)
    attach(spark, settings=Settings(http_port=-1)).close()
    attach(spark, **more)
    Sidecar(Settings(), spark)
    Sidecar(settings=Settings())
    Sidecar(expected_queries=["bronze"], spark=spark)
    why = attach(spark).await_any_failure(timeout=1)
    if why == "completed" or why == "stopped" or why == "closed" or why == "timeout":
        print(why)
"""
REFUSED = {
    "a typo": "attach(spark, stall_flor_seconds=30)",
    "a typo of Sidecar": "Sidecar(stall_flor_seconds=30)",
    "a text for a number": 'attach(spark, stall_floor_seconds="30")',
    "a text for a list": 'attach(spark, expected_queries="bronze")',
    "a number in a list": "attach(spark, expected_queries=[1])",
    "a text for a switch": 'attach(spark, enabled="false")',
    "None for a number": "attach(spark, http_port=None)",
    "a typo in queries": 'attach(spark, queries={"a": {"stall_flor_seconds": 3600}})',
    "a wrong type in queries": 'attach(spark, queries={"a": {"ignore": "yes"}})',
    "settings by position": "attach(spark, Settings())",
    "a dict for settings": "attach(spark, settings={})",
    "no session": "attach()",
    "a reason that never comes": 'attach(spark).await_any_failure() == "finished"',
    "a promise that is none": "attach(spark).snapshot().nothing",
}


@pytest.mark.slow
def test_mypy_refuses_typos_and_wrong_types_and_accepts_what_is_right(tmp_path):
    """One run for all: a line that is refused is named in the output."""
    api = pytest.importorskip("mypy.api", reason="mypy is only in the environment of make test")
    site, job = tmp_path / "site", tmp_path / "job.py"
    site.mkdir()
    (site / "querypulse").symlink_to(ROOT)
    lines = [*ACCEPTED.strip().splitlines(), "", "def mistakes(spark: Any) -> None:"]
    first = len(lines) + 1
    job.write_text("\n".join([*lines, *(f"    {call}" for call in REFUSED.values())]) + "\n")
    options = ["--strict", "--cache-dir", str(tmp_path / "cache"), "--follow-imports=silent"]
    config = ["--config-file=", "--python-executable", sys.executable]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MYPYPATH", str(site))
        output, errors, _ = api.run([*options, *config, str(job)])

    refused = {int(line.split(":")[1]) for line in output.splitlines() if ": error:" in line}
    unnamed = {call for number, call in enumerate(REFUSED, first) if number not in refused}
    assert errors == ""
    assert unnamed == set(), output
    assert {number for number in refused if number < first} == set(), output
