"""The age of the newest data that has passed through a chain of queries."""

from __future__ import annotations

from support.flowing import Lake, folder

from querypulse.alerting.evaluate import retired
from querypulse.listener.events import SourceProgress
from querypulse.listener.state.end_to_end import EndToEnd


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
    event_sources = chain.reads
    chain.reads = {"bronze": []}
    chain.commit(
        "bronze", batch=2, at=20, sources=(half,), sink="FileSink[/lake/bronze]"
    ).update(20)  # fmt: skip
    assert chain.passed == {}

    chain.reads = event_sources
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
