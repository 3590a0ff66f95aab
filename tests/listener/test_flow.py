"""Who reads what another query writes, and the age of the newest data that has passed through."""

from __future__ import annotations

import pytest
from support.story import Lake, folder

from querypulse.alerting.evaluate import retired
from querypulse.listener.events import SourceProgress
from querypulse.listener.state.end_to_end import EndToEnd
from querypulse.listener.state.flow import (
    MAX_EDGES,
    TABLE,
    TOPIC,
    Dataset,
    Datasets,
    Declared,
    Node,
    flow_of,
    name_in_namespace,
    namespace_of,
    path_dataset,
)


def node(label, reads="", writes=""):
    reads, writes = (
        tuple(path_dataset(f"/{name}") for name in side.split()) for side in (reads, writes)
    )
    return Node(label, label, Datasets(reads, writes))


@pytest.mark.parametrize(
    ("dataset", "name"),
    [
        (path_dataset("s3a://lake/silver/"), ("s3://lake", "/silver")),
        (path_dataset("hdfs://name:8020/data"), ("hdfs://name:8020", "/data")),
        (path_dataset("file:/data"), ("file", "/data")),
        (path_dataset("/data"), ("", "/data")),
        (Dataset(TOPIC, "orders", ("a:9092", "b:9092")), ("kafka://a:9092", "orders")),
        (Dataset(TOPIC, "orders"), ("", "orders")),
        (Dataset(TABLE, "lake.sales.orders"), ("catalog://lake", "sales.orders")),
    ],
    ids=str,
)
def test_a_dataset_has_the_name_that_openlineage_gives_it(dataset, name):
    assert (namespace_of(dataset), name_in_namespace(dataset)) == name


def test_reader_is_downstream_of_each_writer_of_its_place():
    lake = (Declared("bronze-*", writes=(path_dataset("/lake"),)),)
    cases = [
        (
            "a chain",
            [node("bronze", "landing", "b"), node("silver", "b", "s"), node("gold", "s")],
            (),
            {"silver": ("bronze",), "gold": ("silver",)},
        ),
        ("a query that reads what it writes", [node("a", "t", "t")], (), {}),
        ("a cycle", [node("a", "y", "x"), node("b", "x", "y")], (), {"a": ("b",), "b": ("a",)}),
        (
            "two readers of one source",
            [node("a", "landing", "x"), node("b", "landing", "y")],
            (),
            {},
        ),
        (
            "places that are declared for a pattern of names",
            [node("bronze-1"), node("bronze-2"), node("gold", "lake"), node("other")],
            lake,
            {"gold": ("bronze-1", "bronze-2")},
        ),
    ]

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


class Chain(Lake):
    """Evaluates after each batch, as the worker does."""

    def __init__(self, **reads) -> None:
        super().__init__(**reads)
        self.end_to_end = EndToEnd()
        self.passed = {}

    def commit_of(self, name, number, *, at, seconds=1.0, **fields):
        self.batch(name, number, at=at, seconds=seconds, **fields)
        return self.update(at)

    def update(self, at):
        found = self.evaluate(at)
        labels = self.state.snapshot(at).labels()
        self.passed = self.end_to_end.update(labels, found.flow, retired(found.health))
        return self


def test_first_query_passes_what_was_there_when_its_last_batch_with_rows_began():
    chain = Chain(bronze="landing").commit_of("bronze", 1, at=10, seconds=3)
    chain.commit_of("bronze", 2, at=20, input_rows=0)

    assert chain.passed == {"bronze": 7}


def test_reader_passes_what_the_writer_had_committed_before_its_batch_began():
    chain = Chain(bronze="landing", silver="bronze", gold="silver")
    chain.commit_of("bronze", 1, at=10, seconds=2)
    chain.commit_of("bronze", 2, at=20, seconds=2)
    chain.commit_of("silver", 1, at=25, seconds=8)
    chain.commit_of("gold", 1, at=30, seconds=1)

    assert chain.passed == {"bronze": 18, "silver": 8, "gold": 8}


def test_age_is_unknown_before_a_commit_of_the_writer_was_seen():
    chain = Chain(bronze="landing", silver="bronze").commit_of("silver", 1, at=5)
    chain.commit_of("bronze", 1, at=10).commit_of("silver", 2, at=11, seconds=4)

    assert chain.passed == {"bronze": 9}


def test_age_is_unknown_while_a_batch_leaves_data_unread():
    chain = Chain(bronze="landing").commit_of("bronze", 1, at=10)
    half = SourceProgress("KafkaV2[Subscribe[t]]", 5, {"t/0": 5}, {"t/0": 10}, 5)
    chain.commit("bronze", batch=2, at=20, sources=(half,), sink="FileSink[/lake/bronze]")
    assert chain.update(20).passed == {}

    assert chain.commit_of("bronze", 3, at=30).passed == {"bronze": 29}


def test_oldest_place_counts_so_that_a_dead_branch_shows():
    chain = Chain(a="x", b="y", joined="a b")
    chain.commit_of("a", 1, at=10).commit_of("b", 1, at=11).commit_of("a", 2, at=50)
    chain.commit_of("joined", 1, at=60)

    assert chain.passed["joined"] == 10


def test_newest_writer_of_one_place_counts_and_not_a_retired_one():
    chain = Chain(old="x", new="x", silver="lake")
    for name, at in (("old", 10), ("new", 20)):
        chain.commit(name, batch=1, at=at, sources=(folder("x"),), sink="FileSink[/lake/lake]")
        chain.update(at)
    assert chain.commit_of("silver", 1, at=30).passed["silver"] == 19

    chain.expect_stop("new").ended("new", at=31).update(31)
    chain.commit("old", batch=2, at=35, sources=(folder("x"),), sink="FileSink[/lake/lake]")
    chain.update(35).commit_of("silver", 2, at=40)
    assert chain.passed == {"old": 34, "silver": 34}


def test_two_queries_that_feed_each_other_do_no_harm():
    chain = Chain(a="b", b="a").commit_of("a", 1, at=10).commit_of("b", 1, at=20)

    assert chain.commit_of("a", 2, at=30).passed == {"a": 9, "b": 9}


def test_forgotten_query_leaves_nothing_behind():
    chain = Chain(a="x").commit_of("a", 1, at=10)
    chain.end_to_end.update({}, chain.evaluate(20).flow, ())

    assert chain.end_to_end.__dict__ == {"_commits": {}}
