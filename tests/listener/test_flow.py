"""Who reads what another query writes."""

from __future__ import annotations

from support.flowing import Lake

from querypulse.listener.state.flow import (
    MAX_EDGES,
    Declared,
    Flow,
    Node,
    Places,
    flow_of,
    path_place,
)


def node(label, reads="", writes=""):
    reads, writes = (tuple(path_place(f"/{one}") for one in side.split()) for side in (reads, writes))  # fmt: skip
    return Node(label, label, Places(reads, writes))


def test_reader_is_downstream_of_the_writer():
    flow = flow_of((node("bronze", "landing", "b"), node("silver", "b", "s"), node("gold", "s")))

    assert flow.upstream == {"silver": ("bronze",), "gold": ("silver",)}
    assert flow.downstream == {"bronze": ("silver",), "silver": ("gold",)}


def test_query_that_reads_what_it_writes_is_not_its_own_neighbour():
    assert flow_of((node("a", "t", "t"),)) == Flow()


def test_cycle_is_an_ordinary_graph():
    flow = flow_of((node("a", "y", "x"), node("b", "x", "y")))

    assert flow.upstream == {"a": ("b",), "b": ("a",)}


def test_two_readers_of_one_source_are_no_neighbours():
    assert flow_of((node("a", "landing", "x"), node("b", "landing", "y"))) == Flow()


def test_declared_places_connect_queries_by_name_pattern():
    nodes = (node("bronze-1"), node("bronze-2"), node("gold", "lake"), node("other"))
    declared = (Declared("bronze-*", writes=(path_place("/lake"),)),)

    assert flow_of(nodes, declared).upstream == {"gold": ("bronze-1", "bronze-2")}


def test_unchanged_queries_give_the_same_graph():
    nodes = (node("a", "", "x"), node("b", "x"))

    assert flow_of(nodes) is flow_of(tuple(nodes))


def test_number_of_edges_is_bounded():
    writers = tuple(node(f"w{number}", "", "x") for number in range(200))
    readers = tuple(node(f"r{number}", "x") for number in range(200))
    flow = flow_of(writers + readers)

    assert not flow.complete
    assert sum(map(len, flow.upstream.values())) <= MAX_EDGES


def test_places_of_a_query_outlive_its_restart():
    lake = Lake(bronze="landing", silver="bronze").batches(1, at=10)
    lake.ended("silver", at=20, exception="x").started("silver", 2, at=21)

    assert lake.evaluate(30).flow.upstream == {"silver": ("bronze",)}
