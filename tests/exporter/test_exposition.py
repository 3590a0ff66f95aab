"""Our exposition equals that of ``prometheus_client`` byte for byte, for any values and labels."""

from __future__ import annotations

import re
from itertools import accumulate
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import core, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from support.published_states import Collector, full_published, published

from querypulse.exporter.exposition import Family, as_openmetrics, as_text
from querypulse.exporter.metrics import all_families
from querypulse.exporter.published_state import Buckets

NAMES = ("query", "app")
FORMATS = [(as_text, generate_latest), (as_openmetrics, generate_openmetrics)]

# Half a surrogate pair breaks any exposition; families never contain one.
texts = st.text(st.characters(exclude_categories=["Cs"]))
labels = st.lists(st.tuples(texts, texts), unique=True, max_size=4)
values = st.floats() | st.integers(-(2**70), 2**70) | st.booleans()


@st.composite
def figures(draw):
    """The same family as ours and as the library's, for every kind of value."""
    kind, name = draw(
        st.sampled_from([(core.CounterMetricFamily, "a_total"), (core.GaugeMetricFamily, "a")])
    )
    help_text, names = draw(texts), draw(st.sampled_from([NAMES, ()]))
    ours, theirs = Family(name, help_text, names), kind(name, help_text, labels=names)
    for pair in draw(labels) if names else [()]:
        value = draw(values)
        ours.samples.append((name, names, pair, value))
        theirs.add_metric(pair, value)
    return ours, theirs


@st.composite
def histograms(draw):
    help_text = draw(texts)
    ours = Family("a_seconds", help_text, (*NAMES, "le"))
    theirs = core.HistogramMetricFamily("a_seconds", help_text, labels=NAMES)
    for pair in draw(labels):
        counts, total = draw(st.lists(st.integers(0, 10**9), min_size=3, max_size=3)), draw(values)
        ours.add_buckets(pair, Buckets((0.5, 1e6), tuple(counts), total))
        bounds = zip(("0.5", "1000000.0", "+Inf"), accumulate(counts), strict=True)
        theirs.add_metric(pair, list(bounds), total)
    return ours, theirs


@st.composite
def infos(draw):
    help_text = draw(texts)
    ours = Family("a_info", help_text, (*NAMES, "version", "a"))
    theirs = core.InfoMetricFamily("a", help_text, labels=NAMES)
    for pair in draw(labels):
        facts = {"version": draw(texts), "a": draw(texts)}
        ours.add((*pair, *facts.values()), 1)
        theirs.add_metric(pair, facts)
    return ours, theirs


both_ways = figures() | histograms() | infos()


@pytest.mark.parametrize(("ours", "theirs"), FORMATS)
@given(made=st.lists(both_ways, max_size=3))
def test_any_families_are_written_as_the_library_writes_them(ours, theirs, made):
    library = SimpleNamespace(collect=lambda: [other for _, other in made])
    assert ours([entry for entry, _ in made]) == theirs(library)


@pytest.mark.parametrize(("ours", "theirs"), FORMATS)
def test_our_metrics_are_written_as_the_library_writes_them(ours, theirs):
    for shown in (None, published(), full_published()):
        assert ours(all_families(shown)) == theirs(Collector(shown))


def test_our_names_need_no_escaping():
    for family in Collector(full_published()).collect():
        for sample in family.samples:
            assert re.fullmatch("[a-zA-Z_][a-zA-Z0-9_]*", sample.name)
            assert all(re.fullmatch("[a-zA-Z_][a-zA-Z0-9_]*", label) for label in sample.labels)
