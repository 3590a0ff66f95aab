"""Who reads what another query writes."""

from __future__ import annotations

from support.flowing import Lake

from querypulse.listener.state.flow import (
    MAX_EDGES,
    Declared,
    Node,
    Places,
    flow_of,
    path_place,
)


def node(label, reads="", writes=""):
    reads, writes = (tuple(path_place(f"/{name}") for name in side.split()) for side in (reads, writes))  # fmt: skip
    return Node(label, label, Places(reads, writes))


def test_reader_is_downstream_of_each_writer_of_its_place():
    lake = (Declared("bronze-*", writes=(path_place("/lake"),)),)
    cases = [
        ("a chain", [node("bronze", "landing", "b"), node("silver", "b", "s"), node("gold", "s")], (),
         {"silver": ("bronze",), "gold": ("silver",)}),
        ("a query that reads what it writes", [node("a", "t", "t")], (), {}),
        ("a cycle", [node("a", "y", "x"), node("b", "x", "y")], (), {"a": ("b",), "b": ("a",)}),
        ("two readers of one source", [node("a", "landing", "x"), node("b", "landing", "y")], (), {}),
        ("places that are declared for a pattern of names",
         [node("bronze-1"), node("bronze-2"), node("gold", "lake"), node("other")], lake,
         {"gold": ("bronze-1", "bronze-2")}),
    ]  # fmt: skip

    for what, nodes, declared, upstream in cases:
        flow = flow_of(tuple(nodes), declared)
        pairs = {(reader, writer) for reader, writers in upstream.items() for writer in writers}
        assert flow.upstream == upstream, what
        assert {(r, w) for w, readers in flow.downstream.items() for r in readers} == pairs, what


def test_unchanged_queries_give_the_same_graph():
    nodes = (node("a", "", "x"), node("b", "x"))

    assert flow_of(nodes) is flow_of(tuple(nodes))


def test_number_of_edges_is_bounded():
    writers = tuple(node(f"w{number}", "", "x") for number in range(200))
    readers = tuple(node(f"r{number}", "x") for number in range(200))
    flow = flow_of(writers + readers)

    assert 0 < sum(map(len, flow.upstream.values())) <= MAX_EDGES


def test_places_of_a_query_outlive_its_restart():
    lake = Lake(bronze="landing", silver="bronze").batches(1, at=10)
    lake.ended("silver", at=20, exception="x").started("silver", 2, at=21)

    assert lake.evaluate(30).flow.upstream == {"silver": ("bronze",)}
