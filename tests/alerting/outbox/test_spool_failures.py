"""Failures of queries on a real disk: one process stores them, the next one restores them."""

from __future__ import annotations

import pytest
from support.patience import PATIENCE_SECONDS, until
from support.spooling import entry
from support.story import CONFLICT, poll
from support.worker_harness import WALL, WorkerHarness

from querypulse.alerting.delivery.outbox import Known
from querypulse.alerting.delivery.spool import FailureHistory, Kept
from querypulse.alerting.incidents.lifecycle import Opened
from querypulse.listener.mailbox import Ending, ProgramEnd
from querypulse.listener.past_failures import FailedQuery, mark_of
from querypulse.listener.source_polls import SourceReport
from querypulse.listener.state.history import RunFailure
from querypulse.sidecar.worker import TICK_SECONDS


def failed(number=1):
    failures = tuple(RunFailure(WALL + n, 7, "ValueError") for n in range(2))
    return FailedQuery(f"id-{number}", mark_of(f"q{number}"), failures, 2, WALL + 2)


def kept(spool, *failures, opened=(), **entries):
    """A spool with these on the disk, closed."""
    spool.load(PATIENCE_SECONDS)
    for receiver, rows in entries.items():
        spool.offer_rows(receiver, rows)
    spool.offer_history(failures, opened)
    assert spool.flush(PATIENCE_SECONDS)
    spool.close(PATIENCE_SECONDS)


def left(spool):
    """The failures a new process restores."""
    return spool.load(PATIENCE_SECONDS).failures


def test_next_process_restores_failures_opened_alerts_and_rows_once(spool):
    opened = Opened("StreamingQueryFailed", "a", (WALL, WALL + 9.5))
    rows = {"pager": (entry(1), entry(2, Known.FIRING)), "chat": (entry(1, Known.UNSURE),)}
    kept(spool(), failed(1), failed(2), opened=(opened,), **rows)
    successor = spool()
    restored = successor.load(PATIENCE_SECONDS)
    assert restored == Kept(rows=rows, failures=(failed(1), failed(2)), opened=(opened,))
    assert successor.load(0.0) is None
    successor.close(PATIENCE_SECONDS)
    kept(spool(), pager=(), chat=())

    assert spool().load(PATIENCE_SECONDS).rows == {}


def test_failures_stay_without_an_offer(spool):
    """``querypulse watch`` knows no query, and neither does a driver without queries."""
    kept(spool(), failed())
    watch = spool()
    watch.load(PATIENCE_SECONDS)
    watch.offer_rows("pager", (entry(1),))
    assert watch.flush(PATIENCE_SECONDS)
    watch.close(PATIENCE_SECONDS)

    assert left(spool()) == (failed(),)


def test_unknown_fields_of_a_newer_version_are_ignored(spool, folder):
    kept(spool(), failed())
    (file,) = folder.glob("outbox-*.json")
    file.write_bytes(file.read_bytes().replace(b'{"query_id"', b'{"colour":1,"query_id"'))

    assert left(spool()) == (failed(),)


def failure_history(spool):
    """What is kept in the spool, with what was left there."""
    result = FailureHistory(spool)
    result.left = spool.load(PATIENCE_SECONDS)
    return result


def dies(memory, *, at):
    """A process that starts at second ``at``, commits and fails."""
    harness = WorkerHarness(memory)
    harness.wall = WALL + at
    harness.started().step(1.0).commit(batch=at).step(1.0)
    return harness.ended(exception=CONFLICT).step().step()


def run_process(spool, *, at):
    """The alerts of a process that dies, and closes its spool."""
    harness = dies(failure_history(spool), at=at)
    spool.close(PATIENCE_SECONDS)
    return dict(harness.reported)


def test_failures_over_several_processes_are_reported_as_flapping(spool):
    reported = [run_process(spool(), at=120 * number) for number in range(4)]

    assert reported == [{"StreamingQueryFailed": "a"}] * 2 + [{"StreamingQueryFlapping": "a"}] * 2


def test_failures_restored_late_count_and_are_kept(spool, monkeypatch):
    monkeypatch.setattr("querypulse.alerting.delivery.spool.RETRY_SECONDS", 0.05)
    for number in range(2):
        run_process(spool(), at=120 * number)
    slow = spool()
    slow.load(PATIENCE_SECONDS)
    one = spool()
    memory = failure_history(one)
    assert memory.left is None
    harness = dies(memory, at=240)
    assert dict(harness.reported) == {"StreamingQueryFailed": "a"}
    slow.close(PATIENCE_SECONDS)
    memory.left = until(lambda: one.load(0.0), "the lock is free")
    harness.step().step()
    assert one.flush(PATIENCE_SECONDS)
    one.close(PATIENCE_SECONDS)

    assert dict(harness.reported) == {"StreamingQueryFailed": "a", "StreamingQueryFlapping": "a"}
    assert [len(one.failures) for one in left(spool())] == [3]


class FakeSpool:
    """A spool in memory: the failures that it was offered."""

    attempt = None

    def __init__(self):
        self.offers = []

    def offer_end(self, *, is_expected):
        assert not is_expected

    def offer_history(self, failures, opened):
        if not self.offers or self.offers[-1] != failures:
            self.offers.append(failures)


def failing(memory):
    return WorkerHarness(memory).started().step().ended(exception=CONFLICT).step()


def times_of(fake_spool):
    return [[died.at - WALL for one in kept for died in one.failures] for kept in fake_spool.offers]


def test_clock_drift_does_not_offer_a_failure_twice():
    fake_spool = FakeSpool()
    harness = failing(FailureHistory(fake_spool))
    for drift in (0.1, -0.3, 4.0):
        harness.wall = WALL + drift
        harness.step()

    assert times_of(fake_spool) == [[], [pytest.approx(1000.0 + TICK_SECONDS)]]


@pytest.mark.fault(
    "Time and pauses",
    "The wall clock is set between two processes",
    "Ages of kept failures stay right",
)
def test_time_of_a_failure_follows_a_clock_change():
    """Otherwise the next process sees a failure that is too old or in the future."""
    fake_spool = FakeSpool()
    harness = failing(FailureHistory(fake_spool))
    harness.wall = WALL - 3600.0
    harness.step()

    failed_at = pytest.approx(1000.0 + TICK_SECONDS)
    an_hour_earlier = pytest.approx(1000.0 + TICK_SECONDS - 3600.0)
    assert times_of(fake_spool) == [[], [failed_at], [an_hour_earlier]]


@pytest.mark.parametrize(
    ("program", "is_known"), [(ProgramEnd("the main program ended"), True), (None, False)]
)
def test_position_of_an_active_query_is_left_only_by_a_process_that_ends(program, is_known):
    fake_spool = FakeSpool()
    harness = WorkerHarness(FailureHistory(fake_spool)).started().step()
    asked = poll(at=harness.clock(), committed=100)
    harness.worker.state.apply_sources(SourceReport(harness.clock(), {"a-1": {0: asked}}))
    harness.step()
    assert [one.reading is not None for one in fake_spool.offers[-1]] == [True]

    harness.inbox.put(Ending(crashed=False, program=program), lifecycle=True)
    harness.step()

    assert any(one.reading is not None for one in fake_spool.offers[-1]) == is_known


def test_redacted_error_class_is_not_stored():
    fake_spool = FakeSpool()
    memory = FailureHistory(fake_spool, lambda text: text.replace("Concurrent", "***"))
    failing(memory)

    ((one,),) = fake_spool.offers[1:]
    assert [died.error_class for died in one.failures] == ["***AppendException"]
