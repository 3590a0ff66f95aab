"""Label values of every kind, and promtool's checks."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.exporter_exposition import FORMATS, samples, text
from support.published_states import full_published, published
from support.story import Story

from querypulse.listener.identity import base_label

HOSTILE = [
    "quotes \" and ' and `",
    "back\\slash \\n \\\\",
    "new\nline\r\nand\ttab",
    "umlaut ä, 漢字, 🙂, \u202e right to left",
    '"} 1\nfake_metric{x="',
    "",
    " ",
    "half a surrogate \ud800",
    "x" * 5000,
]


@pytest.mark.fault(
    "Names and texts",
    "Names with quotes, newlines, emoji, bidi marks, 5,000 characters",
    "The exposition is valid, and the label bounded",
)
@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize(("parse", "render"), FORMATS)
def test_hostile_name_is_a_valid_label(name, parse, render):
    shown = published(Story().started("q", at=0), expected=(name,), app=name)
    readable = name.encode("utf-8", "replace").decode()
    label = base_label(name).encode("utf-8", "replace").decode()
    states = [s for s in samples(shown, parse, render) if s.name == "spark_streaming_query_state"]
    assert {sample.labels["query"] for sample in states} == {"q", label}
    assert {sample.labels["app"] for sample in states} == {readable}


@given(st.text())
def test_any_name_survives_both_formats(name):
    shown = published(expected=(name,))
    for parse, render in FORMATS:
        actives = [
            s for s in samples(shown, parse, render) if s.name == "spark_streaming_query_active"
        ]
        assert [sample.labels["query"] for sample in actives] == [base_label(name)]


def test_two_queries_with_one_name_do_not_share_series():
    story = Story().started("a", at=0).started_again("a", at=1)
    names = {s.labels["query"] for s in samples(published(story)) if "query" in s.labels}
    assert len(names) == 2


@pytest.mark.prometheus
@pytest.mark.parametrize("shown", [None, full_published(), published(expected=tuple(HOSTILE[:6]))])
def test_promtool_reports_no_problem(shown):
    checked = subprocess.run(
        [shutil.which("promtool"), "check", "metrics"],
        input=text(shown).encode(),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")
