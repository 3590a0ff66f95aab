"""Readers see the graph of queries, and how old the data at its end is."""

from __future__ import annotations

from msgspec.structs import replace
from support.flowing import Lake
from support.published_states import published

from querypulse.exporter.metrics import MAX_EDGES, all_families
from querypulse.exporter.status import status
from querypulse.listener.state.flow import Flow


def of_lake(lake, **changes):
    shown = published(lake)
    return replace(shown, flow=lake.evaluate(100).flow, **changes)


def chain():
    return Lake(bronze="landing", silver="bronze", gold="silver").batches(1, at=90)


def test_status_names_the_neighbours_and_the_age():
    shown = status(of_lake(chain(), passed={"silver": 88.0}))
    queries = {query.name: query for query in shown.queries}

    assert queries["silver"].upstream == ("bronze",)
    assert queries["silver"].downstream == ("gold",)
    assert queries["silver"].end_to_end_age_seconds == 12
    assert queries["bronze"].upstream == ()
    assert queries["bronze"].end_to_end_age_seconds is None


def family(shown, name):
    """By label values: the figures of a query's family."""
    (family,) = (f for f in all_families(shown) if f.name == f"spark_streaming_query_{name}")
    return {labels: figure for _, _, labels, figure in family.samples}


def test_metrics_have_the_edges_and_only_known_ages():
    shown = of_lake(chain(), passed={"silver": 88.0})

    assert family(shown, "end_to_end_age_seconds") == {("shop", "silver"): 12}
    assert family(shown, "upstream") == {
        ("shop", "gold", "silver"): 1,
        ("shop", "silver", "bronze"): 1,
    }


def test_number_of_series_and_of_listed_neighbours_is_bounded():
    names = [f"q{number}" for number in range(100)]
    lake = Lake(**dict.fromkeys(names, ""))
    every = dict.fromkeys(names, tuple(names))
    shown = replace(published(lake), flow=Flow(upstream=every, downstream=every))

    assert {len(query.upstream) for query in status(shown).queries} == {50}
    assert len(family(shown, "upstream")) == MAX_EDGES
