"""Our exposition is byte for byte that of ``prometheus_client``, whatever the figures and labels."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import core, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.registry import Collector
from support.exporter_boards import board, full_board

from querypulse.exporter.exposition import as_openmetrics, as_text
from querypulse.exporter.query_collector import QueryCollector

FORMATS = [(as_text, generate_latest), (as_openmetrics, generate_openmetrics)]

# Half a surrogate pair breaks any exposition; families never let one in.
texts = st.text(st.characters(exclude_categories=["Cs"]))
labels = st.lists(st.tuples(texts, texts), unique=True, max_size=4)
values = st.floats() | st.integers(-(2**70), 2**70) | st.booleans()


class Made(Collector):
    """A collector of families that are there already."""

    def __init__(self, *families):
        self._families = families

    def collect(self):
        return self._families


@st.composite
def figures(draw):
    kind, name = draw(
        st.sampled_from([(core.CounterMetricFamily, "a_total"), (core.GaugeMetricFamily, "a")])
    )
    family = kind(name, draw(texts), labels=("query", "app"))
    for pair in draw(labels):
        family.add_metric(pair, draw(values))
    return family


@st.composite
def histograms(draw):
    family = core.HistogramMetricFamily("a_seconds", draw(texts), labels=("query", "app"))
    for pair in draw(labels):
        counts = [("0.5", draw(values)), ("1000000.0", draw(values)), ("+Inf", draw(values))]
        family.add_metric(pair, counts, draw(values))
    return family


@st.composite
def infos(draw):
    family = core.InfoMetricFamily("a", draw(texts), labels=("query", "app"))
    for pair in draw(labels):
        family.add_metric(pair, {"version": draw(texts), "a": draw(texts)})
    return family


@st.composite
def without_labels(draw):
    return core.GaugeMetricFamily("a", draw(texts), value=draw(values))


families = figures() | histograms() | infos() | without_labels()


@pytest.mark.parametrize(("ours", "theirs"), FORMATS)
@given(made=st.lists(families, max_size=3))
def test_any_families_are_written_as_the_library_writes_them(ours, theirs, made):
    assert ours(made) == theirs(Made(*made))


@pytest.mark.parametrize(("ours", "theirs"), FORMATS)
@pytest.mark.parametrize("shown", [None, board(), full_board()])
def test_so_is_all_that_we_serve(ours, theirs, shown):
    collector = QueryCollector(lambda: shown)

    assert ours(collector.collect()) == theirs(collector)


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, 0, 1e21, 1234567.0, 1e-9])
def test_a_figure_is_written_as_go_writes_it(value):
    family = core.GaugeMetricFamily("a", "", value=value)

    assert as_text([family]) == generate_latest(Made(family))


def test_every_name_of_ours_is_one_that_needs_no_escaping():
    for family in QueryCollector(full_board).collect():
        for sample in family.samples:
            assert re.fullmatch("[a-zA-Z_][a-zA-Z0-9_]*", sample.name)
            assert all(re.fullmatch("[a-zA-Z_][a-zA-Z0-9_]*", label) for label in sample.labels)
