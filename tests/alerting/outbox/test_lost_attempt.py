"""An attempt of a driver that YARN kills: the next one reports what it could not."""

from __future__ import annotations

import threading

import pytest
from msgspec.structs import replace
from support.deliveries import Recorder, incident, outage, stale
from support.patience import PATIENCE_SECONDS, until
from support.stores import Store
from support.story import run
from support.worker_harness import WorkerHarness

from querypulse.alerting.delivery.deliveries import Delivery, Notifier
from querypulse.alerting.delivery.spool import Spool
from querypulse.alerting.delivery.spool_holder import LEASE_SECONDS
from querypulse.alerting.receivers.receiver import ReceiverCapabilities
from querypulse.core.guard import Guard
from querypulse.core.threads import Deadline
from querypulse.listener.probe_report import Context
from querypulse.listener.state.snapshot import DriverAttempt

BY_KEY = ReceiverCapabilities(orphan_after_seconds=0.0)
DOWN = ("*", "firing")
UP = ("*", "resolved")


class Attempt(WorkerHarness):
    """A driver in YARN's cluster mode, with a chat as its receiver; time is the same for all.

    It begins ``seconds`` after its predecessor, in the store ``files`` that outlives it.
    """

    def __init__(
        self,
        files,
        number=1,
        *,
        seconds=0.0,
        application="application_1_0001",
        capabilities=None,
        app="etl",
    ):
        self.now = 1_700_000_000.0 + seconds
        self.store = Store(files)
        self.guard = Guard()
        attempt = None if number is None else DriverAttempt(application, number, "host n7")
        self.spool = Spool(self.store, app, self.guard, attempt=attempt, wall=lambda: self.now)
        self.recorder = Recorder("chat", capabilities)
        self.delivery = Delivery(self.recorder, self.guard, spool=self.spool, wall=self.unix_time)
        left = []
        self.notifier = Notifier(
            (self.delivery,), self.spool, restore=left.extend, wall=self.unix_time
        )
        super().__init__(self.notifier.failure_history)
        self.wall = self.now - self.clock.now
        self.worker._lifecycle.restore(left, self.clock.now)
        self.delivery.start()

    def unix_time(self):
        return self.now

    def offer(self, incidents):
        super().offer(incidents)
        self.notifier.offer(incidents)

    def step(self, after=1.2):
        self.now += after
        super().step(after)
        self.delivery.flush(PATIENCE_SECONDS)
        return self

    def is_stored(self):
        """Everything that it offered has reached the store, where it may write there."""
        until(lambda: self.spool.flush(0.0), "all is stored")
        return self

    def works(self, seconds=30):
        """Its query starts and commits for so long."""
        self.started()
        for batch in range(seconds):
            self.commit(batch=batch).step()
        return self

    def is_killed(self):
        """SIGKILL: nothing more of it reaches the store or the receiver."""
        self.store.refuses = OSError("killed")
        self.spool._loop.stop()
        with self.spool._changed:
            self.spool._changed.notify_all()
        self.spool._loop.join(PATIENCE_SECONDS)

    def ends(self):
        """Any orderly end, after which its process may fail."""
        self.notifier.close(Deadline(PATIENCE_SECONDS))

    @property
    def sent(self):
        return self.recorder.sent


@pytest.fixture
def attempts(monkeypatch):
    monkeypatch.setattr("querypulse.alerting.delivery.spool.RETRY_SECONDS", 0.05)
    monkeypatch.setattr(Spool.load, "__defaults__", (PATIENCE_SECONDS,))
    files, made = {}, []

    def start(*number, **options):
        made.append(Attempt(files, *number, **options))
        return made[-1]

    start.files = files
    yield start
    for one in made:
        one.ends()
    assert "querypulse-spool" not in {thread.name for thread in threading.enumerate()}


# -- reported ---------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [5.0, LEASE_SECONDS + 5.0], ids="{:.0f} s later".format)
def test_next_attempt_reports_one_that_was_killed_and_resolves_it_once_a_query_works(
    attempts, seconds
):
    attempts(1).works().is_stored().is_killed()
    second = attempts(2, seconds=seconds).step()
    assert second.sent == [DOWN]
    (alert,) = second.recorder.incidents[0].alerts
    assert alert.code == "attempt_lost"
    assert "attempt 1 (host n7) ended" in alert.annotations["reason"]

    second.started()
    for _ in range(30):
        second.step()
    assert second.sent == [DOWN], "no query works yet"
    second.works()
    assert second.sent == [DOWN, UP]


def test_attempt_that_fails_before_the_lease_of_a_killed_one_is_over_leaves_nothing_open(attempts):
    """YARN starts an attempt only after the one before has ended: it takes the lease over."""
    attempts(1).works().is_stored().is_killed()
    second = attempts(2, seconds=10.0).works(20)
    second.notifier.offer((incident("a"),))
    until(lambda: ("a", "firing") in second.sent, "it reports its failed query")
    second.ends()

    assert ("a", "resolved") in attempts(3, seconds=35.0).works(20).sent


def test_attempt_that_was_replaced_while_it_runs_stores_nothing_more(attempts):
    """Its machine was cut off from YARN: its successor has its lease."""
    first = attempts(1).works().is_stored()
    second = attempts(2, seconds=5.0).works().is_stored()
    stored = dict(attempts.files)
    first.notifier.offer((incident("b"),))
    until(lambda: first.spool.is_taken, "it finds the other's name")

    assert {name: attempts.files[name] for name in stored if "lease" not in name} == {
        name: content for name, content in stored.items() if "lease" not in name
    }
    assert second.spool.problem == ""


def test_attempt_takes_the_lease_of_one_whose_end_was_announced(attempts):
    first = attempts(1).works()
    first.worker.state.expect_end(first.clock() + 600.0)
    first.step().is_stored().is_killed()
    second = attempts(2, seconds=5.0).works()

    assert not second.spool.is_taken


def test_each_attempt_that_is_killed_after_it_had_worked_is_reported(attempts):
    sent = []
    for number in range(1, 4):
        driver = attempts(number, seconds=number * 600.0)
        sent += driver.step().works().is_stored().sent
        driver.is_killed()

    assert sent == [DOWN, UP, DOWN, UP]


def test_report_that_no_receiver_took_is_sent_by_the_attempt_after_it(attempts):
    attempts(1).is_stored().is_killed()
    second = attempts(2, seconds=600.0)
    second.recorder.always = outage()
    second.step().is_stored().is_killed()
    third = attempts(3, seconds=1200.0).step()

    assert third.sent == [DOWN]


# -- not reported -----------------------------------------------------------------------------


def test_orderly_end_is_not_reported_though_yarn_starts_another_attempt(attempts):
    """As after a query has failed: its own alert has said so."""
    attempts(1).works().ends()

    assert attempts(2, seconds=600.0).step().sent == []


def test_first_attempt_reports_nothing(attempts):
    assert attempts(1).works().sent == []


@pytest.mark.parametrize(
    "other",
    [
        {"application": "application_1_0002"},
        {"number": 1, "application": "application_1_0002"},
        {"app": "another"},
        {"number": 1},
        {"number": None},
    ],
    ids=[
        "later attempt of another application",
        "the user has killed the application and started it again",
        "another app's spool",
        "another process of the same attempt",
        "not on YARN",
    ],
)
def test_driver_that_does_not_replace_the_killed_one_reports_nothing(attempts, other):
    attempts(1).works().is_stored().is_killed()

    assert attempts(**{"number": 2, "seconds": 600.0} | other).step().sent == []


def test_second_driver_of_the_app_that_runs_beside_the_first_reports_nothing(attempts):
    first = attempts(1).works().is_stored()
    second = attempts(1, seconds=30.0, application="application_1_0002").works()

    assert (first.sent, second.sent) == ([], [])


def test_attempt_that_has_reported_its_own_end_is_not_reported_again(attempts):
    """The JVM has died, and Python was killed after it had said so, before an orderly end."""
    first = attempts(1).works()
    first.poll(run(batch=30))
    first.report = replace(first.report, context=Context.JVM_GONE)
    first.step().is_stored().is_killed()
    assert first.sent == [DOWN]
    second = attempts(2, seconds=600.0).step()
    assert second.sent == []

    second.works()
    assert second.sent == [UP]


def test_attempts_that_die_before_a_query_works_are_one_incident(attempts):
    attempts(1).is_stored().is_killed()
    sent = []
    for number in range(2, 6):
        driver = attempts(number, seconds=number * 600.0).step().is_stored()
        driver.is_killed()
        sent += driver.sent

    assert sent == [DOWN]


def test_end_that_was_announced_is_not_reported(attempts):
    first = attempts(1).works()
    first.worker.state.expect_end(first.clock() + 600.0)
    first.step().is_stored().is_killed()

    assert attempts(2, seconds=600.0).step().sent == []


def test_announced_end_that_did_not_come_announces_nothing_more(attempts):
    first = attempts(1).works()
    first.worker.state.expect_end(first.clock() + 5.0)
    first.step().step().step().step().step().step().is_stored().is_killed()

    assert attempts(2, seconds=600.0).step().sent == [DOWN]


# -- end by key -------------------------------------------------------------------------------


def test_incident_that_a_killed_attempt_did_not_store_ends_by_key_after_its_lease(attempts):
    """PagerDuty and Alertmanager end what nobody remembers by its key, once it is nobody's."""
    attempts(1).works().is_stored().is_killed()
    second = attempts(2, seconds=10.0, application="application_1_0002", capabilities=BY_KEY)
    second.works(20)
    assert second.stale
    assert second.delivery._outbox.rows == (), "the other one may still run"
    second.now += LEASE_SECONDS
    until(lambda: not second.spool.is_taken, "the lease is over")
    second.step()

    assert sorted(second.recorder.wait_for(2)) == [UP, ("a", "resolved")]


def test_incident_of_a_query_that_a_killed_attempt_did_not_store_ends_by_key(attempts):
    """It had sent it, and its store could not be written any more."""
    attempts(1).works().is_stored().is_killed()
    second = attempts(2, seconds=600.0, capabilities=BY_KEY).works(20)

    assert ("a", "resolved") in second.sent


def test_what_another_attempt_stores_meanwhile_does_not_make_the_spool_complete(attempts):
    first = attempts(1).works().is_stored()
    second = attempts(2, seconds=30.0, application="application_1_0002", capabilities=BY_KEY)
    second.works(20)
    first.notifier.offer((incident("b"),))
    first.is_stored().is_killed()
    second.now += 2 * LEASE_SECONDS
    until(lambda: not second.spool.is_taken, "the lease is over")
    second.step().step()

    assert ("a", "resolved") in second.sent


def test_query_of_an_attempt_that_ended_in_order_does_not_end_by_key(attempts):
    attempts(1).works().is_stored().ends()
    second = attempts(2, seconds=600.0, capabilities=BY_KEY).works(20)

    assert ("a", "resolved") not in second.sent


def test_incident_that_has_opened_here_meanwhile_does_not_end_by_key(attempts):
    attempts(1).works().is_stored().is_killed()
    second = attempts(2, seconds=10.0, application="application_1_0002", capabilities=BY_KEY)
    second.notifier.offer((stale("*"),))
    open_now = incident("*")
    second.notifier.offer((open_now,))
    second.now += LEASE_SECONDS
    until(lambda: not second.spool.is_taken, "the lease is over")
    second.notifier.offer((open_now,))
    assert second.delivery.flush(PATIENCE_SECONDS)

    assert second.sent == [DOWN]
