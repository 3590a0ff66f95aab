"""The spool in a store without locks: a lease says whose it is, and nobody waits to read."""

from __future__ import annotations

import threading

import msgspec
import pytest
from support.deliveries import WALL, Recorder, incident, over, stale
from support.patience import PATIENCE_SECONDS, ended, until
from support.spooling import entry
from support.stores import Store

from querypulse.alerting.delivery.deliveries import Delivery, Notifier
from querypulse.alerting.delivery.outbox import Known
from querypulse.alerting.delivery.spool import Kept, Spool, since
from querypulse.alerting.delivery.spool_holder import LEASE_SECONDS, RENEW_SECONDS, Lease
from querypulse.alerting.incidents.lifecycle import Opened
from querypulse.core.guard import Guard
from querypulse.core.threads import Deadline
from querypulse.listener.past_failures import FailedQuery
from querypulse.listener.state.history import RunFailure

NAME = "outbox.lease"
DIED = RunFailure(WALL, 7, "ValueError")
LATER = RunFailure(WALL + 5, 7, "ValueError")


class Machine:
    """A process on a machine: its clocks, and its lease."""

    def __init__(self, files, *, wall=WALL):
        self.wall = wall
        self.clock = 0.0
        self.store = Store(files)
        self.lease = Lease(self.store, NAME, lambda: self.wall, lambda: self.clock)

    def waits(self, seconds):
        self.wall += seconds
        self.clock += seconds


def pass_time(seconds, *machines):
    for machine in machines:
        machine.waits(seconds)


# -- the lease --------------------------------------------------------------------------------


def test_lease_is_taken_where_nobody_has_it_and_after_its_release():
    files = {}
    a, b = Machine(files), Machine(files)
    assert a.lease.take()
    assert a.lease.take()
    assert not b.lease.take()
    a.lease.release()
    a.lease.release()

    assert files == {}
    assert b.lease.take()


@pytest.mark.parametrize("skew", [-300.0, -40.0, 0.0, 40.0], ids="clock {} s".format)
def test_running_process_keeps_its_lease_however_long(skew):
    """Clocks may differ by 40 s, and one that is behind sees a renewal in the future."""
    files = {}
    a, b = Machine(files), Machine(files, wall=WALL + skew)
    assert a.lease.take()
    for _ in range(600):
        pass_time(1.0, a, b)
        assert a.lease.keep()
        assert not b.lease.take()


def test_renewals_are_few():
    a = Machine({})
    a.lease.take()
    for _ in range(60):
        a.waits(1.0)
        a.lease.keep()

    assert [what for what, _ in a.store.calls].count("write") == 1 + 60 / RENEW_SECONDS


@pytest.mark.parametrize("skew", [-1e9, -40.0, 0.0, 40.0], ids="clock {} s".format)
def test_lease_of_a_killed_process_runs_out_by_whatever_clock(skew):
    files = {}
    a, b = Machine(files), Machine(files, wall=WALL + skew)
    a.lease.take()
    while not b.lease.take():
        b.waits(1.0)

    assert b.clock <= LEASE_SECONDS + 1


def test_next_cluster_that_starts_minutes_later_waits_for_nothing():
    files = {}
    Machine(files).lease.take()

    assert Machine(files, wall=WALL + 240).lease.take()


def test_process_that_was_frozen_finds_that_another_has_taken_over():
    """Its name in the file is then the other's, which it leaves alone."""
    files = {}
    a, b = Machine(files), Machine(files)
    a.lease.take()
    pass_time(LEASE_SECONDS + 1, a, b)
    assert b.lease.take()
    assert not a.lease.keep()
    assert not a.lease.take()
    a.lease.release()

    assert b.lease.keep()
    assert files


def test_of_two_that_take_it_at_one_moment_the_first_to_renew_lets_go():
    files = {}
    a, b = Machine(files), Machine(files)
    assert a.lease.take()
    # The other one has read before that.
    files.clear()
    assert b.lease.take()
    pass_time(RENEW_SECONDS, a, b)

    assert not a.lease.keep()
    assert b.lease.keep()


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[" * 9999, b'{"holder": 1}', b"null"])
def test_lease_that_nobody_can_have_written_holds_nobody_up(content):
    assert Machine({NAME: content}).lease.take()


def test_lease_that_was_deleted_is_written_again():
    files = {}
    a = Machine(files)
    a.lease.take()
    files.clear()
    a.waits(RENEW_SECONDS)

    assert a.lease.keep()
    assert NAME in files


def test_release_in_a_store_that_refuses_raises_nothing():
    a = Machine({})
    a.lease.take()
    a.store.refuses = OSError("the driver's JVM has ended")
    a.lease.release()


# -- the spool --------------------------------------------------------------------------------


class Process:
    """A driver's spool in a store that it shares with others."""

    def __init__(self, files, *, wall=WALL):
        self.wall = wall
        self.store = Store(files)
        self.spool = Spool(self.store, "etl", Guard(), wall=lambda: self.wall)

    def writes(self, **rows):
        self.spool.load(PATIENCE_SECONDS)
        for receiver, held in rows.items():
            self.spool.offer_rows(receiver, held)
        assert self.spool.flush(PATIENCE_SECONDS)
        return self

    def is_killed(self):
        """Leave the lease: nothing that it does from now on reaches the store."""
        self.store.refuses = OSError("killed")
        self.spool.close(PATIENCE_SECONDS)


@pytest.fixture
def process(monkeypatch):
    monkeypatch.setattr("querypulse.alerting.delivery.spool.RETRY_SECONDS", 0.05)
    files, made = {}, []

    def start(**options):
        made.append(Process(files, **options))
        return made[-1]

    start.files = files
    yield start
    for one in made:
        one.spool.close(PATIENCE_SECONDS)
    assert "querypulse-spool" not in {thread.name for thread in threading.enumerate()}


def kept_in(files):
    (content,) = (files[name] for name in files if name.endswith(".json"))
    return msgspec.json.decode(content, type=Kept)


def test_process_after_an_orderly_end_goes_on_at_once(process):
    process().writes(pager=(entry(1),)).spool.close(PATIENCE_SECONDS)
    successor = process()

    assert successor.spool.load(PATIENCE_SECONDS).rows == {"pager": (entry(1),)}
    assert not successor.spool.is_taken
    assert successor.spool.load(0.0) is None
    successor.writes(pager=(entry(2),))
    assert kept_in(process.files).rows == {"pager": (entry(2),)}


def test_what_a_killed_process_left_is_read_at_once_and_written_after_its_lease(process):
    process().writes(pager=(entry(1),)).is_killed()
    successor = process(wall=WALL + 30)
    assert successor.spool.load(PATIENCE_SECONDS).rows == {"pager": (entry(1),)}
    assert successor.spool.is_taken
    assert "was killed less than 60 s ago" in successor.spool.problem
    successor.spool.offer_rows("pager", (entry(2),))
    assert not successor.spool.flush(0.2)
    ended(successor.spool.write_ahead)
    assert kept_in(process.files).rows == {"pager": (entry(1),)}
    successor.wall = WALL + LEASE_SECONDS + 1

    assert successor.spool.flush(PATIENCE_SECONDS)
    assert kept_in(process.files).rows == {"pager": (entry(2),)}
    assert successor.spool.load(0.0) is None, "it was restored already"
    until(lambda: not successor.spool.problem, "the problem is over")


def test_what_the_other_process_added_before_it_ended_comes_later(process):
    """Two drivers overlap, as in a rolling update."""
    first = process()
    first.spool.offer_history((FailedQuery("a", "a", (DIED,), 1),), ())
    first.writes(pager=(entry(1),))
    second = process(wall=WALL + 1)
    assert second.spool.load(PATIENCE_SECONDS).rows == {"pager": (entry(1),)}
    first.spool.offer_history((FailedQuery("a", "a", (DIED, LATER), 2),), ())
    first.writes(pager=(entry(1), entry(3, Known.FIRING)))
    first.spool.close(PATIENCE_SECONDS)
    late = until(lambda: second.spool.load(0.0), "it may write")

    assert late.rows == {"pager": (entry(1), entry(3, Known.FIRING))}
    assert late.failures == (FailedQuery("a", "a", (LATER,), 2),), "the other was restored"
    second.writes(pager=(entry(4),))
    assert kept_in(process.files).rows == {"pager": (entry(4),)}


def test_process_that_lost_its_lease_writes_nothing_more(process, monkeypatch):
    monkeypatch.setattr("querypulse.alerting.delivery.spool_holder.RENEW_SECONDS", 0.0)
    frozen = process().writes(pager=(entry(1),))
    (lease,) = (name for name in process.files if name.endswith(".lease"))
    process.files[lease] = msgspec.json.encode({"holder": "another", "at": WALL})
    frozen.spool.offer_rows("pager", (entry(2),))
    until(lambda: frozen.spool.is_taken, "it finds the other's name")

    assert kept_in(process.files).rows == {"pager": (entry(1),)}
    frozen.spool.close(PATIENCE_SECONDS)
    assert lease in process.files


def test_store_that_hangs_delays_neither_a_page_nor_the_end(process):
    driver = process().writes(pager=(entry(1),))
    answer = threading.Event()
    driver.store.during = lambda: answer.wait(PATIENCE_SECONDS)
    driver.spool.offer_rows("pager", (entry(2),))
    ended(driver.spool.write_ahead)
    ended(driver.spool.write_ahead)
    ended(lambda: driver.spool.close(0.1))
    answer.set()


@pytest.mark.contains_errors
def test_store_that_refused_a_renewal_and_works_again_is_no_problem(process, monkeypatch):
    """Nothing else was to be written meanwhile."""
    monkeypatch.setattr("querypulse.alerting.delivery.spool_holder.RENEW_SECONDS", 0.0)
    driver = process().writes(pager=(entry(1),))
    monkeypatch.setattr(Lease, "renew_seconds", 0.05)
    driver.spool.offer_rows("pager", (entry(2),))
    assert driver.spool.flush(PATIENCE_SECONDS)
    driver.store.refuses = OSError("503 Slow Down")
    until(lambda: driver.spool.problem, "it is reported")
    driver.store.refuses = None

    until(lambda: not driver.spool.problem, "the problem is over")


@pytest.mark.contains_errors
def test_dead_jvm_is_reported_and_delays_no_end(process):
    driver = process().writes(pager=(entry(1),))
    driver.store.refuses = OSError("the driver's JVM has ended")
    driver.spool.offer_rows("pager", (entry(2),))
    until(lambda: driver.spool.problem, "it is reported")
    assert driver.spool.problem.endswith(": the driver's JVM has ended")

    ended(lambda: driver.spool.close(PATIENCE_SECONDS))


def test_news_are_what_was_not_there_before():
    """A failure or the time of an alert that is restored again would count twice."""
    known = Kept(
        rows={"pager": (entry(1),)},
        failures=(FailedQuery("a", "a", (DIED,), 1), FailedQuery("c", "c")),
        opened=(Opened("StreamingQueryFailed", "a", (WALL,)),),
    )
    left = Kept(
        rows={"pager": (entry(2),)},
        failures=(
            FailedQuery("a", "a", (DIED, LATER), 2),
            FailedQuery("b", "b", (DIED,), 1),
            FailedQuery("c", "c"),
        ),
        opened=(
            Opened("StreamingQueryFailed", "a", (WALL, WALL + 5)),
            Opened("StreamingQueryStalled", "b", (WALL,)),
        ),
    )

    assert since(None, left) == left
    assert since(known, known) == Kept(rows=known.rows)
    assert since(known, left) == Kept(
        rows=left.rows,
        failures=(FailedQuery("a", "a", (LATER,), 2), FailedQuery("b", "b", (DIED,), 1)),
        opened=(
            Opened("StreamingQueryFailed", "a", (WALL + 5,)),
            Opened("StreamingQueryStalled", "b", (WALL,)),
        ),
    )


# -- what people are notified of --------------------------------------------------------------


class Driver:
    """A notifier with one receiver, and what was restored to its lifecycle."""

    def __init__(self, process):
        self.process = process
        self.recorder = Recorder("pager")
        self.delivery = Delivery(self.recorder, Guard(), spool=process.spool, wall=lambda: WALL)
        self.restored = []
        self.notifier = Notifier(
            (self.delivery,), process.spool, restore=self.restored.extend, wall=lambda: WALL
        )
        self.delivery.start()

    def sent(self, *offered):
        """What the receiver got of these offers."""
        before = len(self.recorder.sent)
        for incidents in offered:
            self.notifier.offer(tuple(incidents))
            assert self.delivery.flush(PATIENCE_SECONDS)
        return self.recorder.sent[before:]


@pytest.fixture
def driver(process, monkeypatch):
    monkeypatch.setattr(Spool.load, "__defaults__", (PATIENCE_SECONDS,))
    drivers = []

    def start(**options):
        drivers.append(Driver(process(**options)))
        return drivers[-1]

    yield start
    for one in drivers:
        one.notifier.close(Deadline(PATIENCE_SECONDS))


@pytest.mark.fault(
    "Ends and kills",
    "SIGKILL of a driver whose spool is in a store",
    "The next one goes on with what was open at once, and may end it after the lease",
)
def test_what_a_killed_driver_reported_is_not_reported_again_and_ends_after_its_lease(driver):
    a = incident("a")
    first = driver()
    assert first.sent([a]) == [("a", "firing")]
    assert first.process.spool.flush(PATIENCE_SECONDS)
    first.process.is_killed()
    second = driver(wall=WALL + 30)
    assert [one.key for one in second.restored] == [a.key]
    assert second.sent([a], [over(a, WALL + 40)], [], []) == []
    second.process.wall = WALL + LEASE_SECONDS + 1
    until(lambda: not second.process.spool.is_taken, "the lease has run out")

    assert second.sent([], []) == [("a", "resolved")]


def test_driver_beside_a_running_one_ends_nothing_of_it_and_reports_its_own(driver):
    a, b = incident("a"), incident("b")
    first = driver()
    assert first.sent([a]) == [("a", "firing")]
    assert first.process.spool.flush(PATIENCE_SECONDS)
    second = driver(wall=WALL + 10)
    offered = ([a, stale("c")], [over(a, WALL + 11), b], [b], [b, a], [b, over(a, WALL + 12)])

    assert second.sent(*offered) == [("b", "firing")]
    assert second.sent([over(b, WALL + 13)]) == [("b", "resolved")]
    assert first.sent([]) == [("a", "resolved")]
