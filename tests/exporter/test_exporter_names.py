"""Label values of every kind, and promtool's checks."""

from __future__ import annotations

import pytest
from support.exporter_exposition import FORMATS, samples
from support.published_states import published
from support.story import Story

from querypulse.listener.state.identity import base_label

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
@pytest.mark.parametrize(("parse", "render"), FORMATS, ids=["text", "openmetrics"])
def test_hostile_name_is_a_valid_label(parse, render):
    failures = {}
    for name in HOSTILE:
        shown = published(Story().started("q", at=0), expected=(name,), app=name)
        label, app = (text.encode("utf-8", "replace").decode() for text in (base_label(name), name))
        states = {
            (sample.labels["query"], sample.labels["app"])
            for sample in samples(shown, parse, render)
            if sample.name == "spark_streaming_query_state"
        }
        if states != {("q", app), (label, app)}:
            failures[name] = states
    assert failures == {}


def test_two_queries_with_one_name_do_not_share_series():
    story = Story().started("a", at=0).started_again("a", at=1)
    names = {s.labels["query"] for s in samples(published(story)) if "query" in s.labels}
    assert len(names) == 2
