"""How fresh queries were, on a real disk: one process stores it, and the next one goes on with it."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace
from support.patience import PATIENCE_SECONDS, WALL
from support.worker_harness import WorkerHarness

from querypulse.alerting.delivery.spool import FRESHNESS_SECONDS, FailureHistory, Kept, since
from querypulse.listener.mailbox import Ending
from querypulse.listener.past_failures import mark_of
from querypulse.listener.state.freshness import Freshness, Promise

COUNT = Freshness(
    promise=Promise(60.0, 0.99),
    counted_at=WALL,
    complete_until=WALL - 5.0,
    total_seconds=100.0,
    bad_seconds=10.0,
    bad_by_day={int(WALL // 86_400): 10.0},
    planned_until=0.0,
)


def process(spool, promised=60.0):
    """A worker with a promise, and the history that it keeps."""
    history = FailureHistory(spool)
    history.left = spool.load(PATIENCE_SECONDS)
    return WorkerHarness(history, freshness_seconds=promised)


def ends(harness, spool):
    """As a killed process ends, whose last count was stored."""
    assert spool.flush(PATIENCE_SECONDS)
    spool.close(PATIENCE_SECONDS)
    return harness.published[-1].freshness["a"]


def test_the_next_process_goes_on_with_the_counts_and_adds_the_time_between(spool):
    first = spool()
    harness = process(first).started().step().commit().step(after=FRESHNESS_SECONDS)
    before = ends(harness, first)
    second = spool()
    harness = process(second)
    harness.clock.now += 500.0
    harness.started().step(after=1.0)
    count = harness.published[-1].freshness["a"]

    assert before.total_seconds > 0
    assert count.total_seconds == pytest.approx(
        before.total_seconds + 501 - FRESHNESS_SECONDS - 1.1
    )
    assert count.bad_seconds == pytest.approx(count.total_seconds - before.total_seconds, abs=61)
    assert harness.errors == []
    second.close(PATIENCE_SECONDS)


def test_counts_are_stored_every_few_seconds_and_at_the_end(spool):
    kept = spool()
    offers = []
    offer = kept.offer_freshness
    kept.offer_freshness = lambda counts: offers.append(counts) or offer(counts)
    harness = process(kept).started().step()
    for _ in range(8):
        harness.step(after=FRESHNESS_SECONDS / 3.75)
    assert len(offers) == 3
    harness.inbox.put(Ending(crashed=False), lifecycle=True)
    harness.step(after=2.0)

    assert len(offers) == 4
    assert ends(harness, kept).total_seconds == offers[-1][mark_of("a")].total_seconds


def test_counters_never_go_back_though_a_process_is_killed_between_two_stores(spool):
    """Or Prometheus would add all of them once more."""
    first = spool()
    harness = process(first, 2.0).started().step()
    for _ in range(int(FRESHNESS_SECONDS) - 2):
        harness.commit().step(after=1.0)
    published = harness.published[-1].freshness["a"]
    elapsed = harness.clock.now
    ends(harness, first)
    second = spool()
    harness = process(second, 2.0)
    harness.clock.now = elapsed + 300.0
    harness.started().step(after=1.0)
    count = harness.published[-1].freshness["a"]
    second.close(PATIENCE_SECONDS)

    assert count.total_seconds >= published.total_seconds
    assert count.good_seconds >= published.good_seconds
    assert harness.errors == []


def test_without_a_promise_nothing_is_stored(spool):
    kept = spool()
    history = FailureHistory(kept)
    history.left = kept.load(PATIENCE_SECONDS)
    WorkerHarness(history).started().step()
    assert kept.flush(PATIENCE_SECONDS)
    kept.close(PATIENCE_SECONDS)

    left = spool().load(PATIENCE_SECONDS)
    assert left is None or left.freshness == {}


def test_counts_that_are_known_are_not_restored_twice():
    known, other = {"a": COUNT}, {"a": replace(COUNT, total_seconds=200.0), "b": COUNT}

    assert since(Kept(freshness=known), Kept(freshness=other)).freshness == {"b": COUNT}
    assert since(None, Kept(freshness=other)).freshness == other


@pytest.mark.parametrize(
    "change",
    [{"bad_seconds": 101.0}, {"counted_at": -5.0}, {"complete_until": 1e300}],
)
def test_a_count_that_nobody_could_have_written_is_put_aside(change, spool, tmp_path):
    kept = spool()
    kept.load(PATIENCE_SECONDS)
    kept.offer_freshness({"a": COUNT})
    assert kept.flush(PATIENCE_SECONDS)
    kept.close(PATIENCE_SECONDS)
    (file,) = tmp_path.rglob("outbox-*.json")
    document = msgspec.json.decode(file.read_bytes())
    document["freshness"]["a"] |= change
    file.write_bytes(msgspec.json.encode(document))

    assert spool().load(PATIENCE_SECONDS) is None
