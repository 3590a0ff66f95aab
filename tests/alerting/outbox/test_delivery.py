"""The thread around the outbox: one request at a time, and never in the way of others."""

import threading

import pytest
from support.deliveries import WALL, MemorySpool, Recorder, incident, outage, over, wrong_token
from support.patience import NEVER, PATIENCE_SECONDS, Clock, ended, until

from querypulse.alerting.delivery import Delivery, Route
from querypulse.alerting.outbox import Known
from querypulse.alerting.receivers.receiver import ReceiverCapabilities
from querypulse.core.guard import Guard


@pytest.fixture
def deliver():
    """Start deliveries, and close them at the end."""
    started = []

    def start(receiver, **options):
        started.append(Delivery(receiver, Guard(), **options))
        started[-1].start()
        return started[-1]

    yield start
    for delivery in started:
        delivery.close(PATIENCE_SECONDS)
    left = [one.name for one in threading.enumerate() if one.name.startswith("querypulse-deliver")]
    assert not left


# -- sending ----------------------------------------------------------------------------------


def test_newest_set_wins_and_offering_never_blocks(deliver):
    """The worker goes on while a receiver hangs; a warning that ended in between is not sent."""
    recorder = Recorder()
    recorder.free.clear()
    delivery = deliver(recorder)
    delivery.offer((incident("a"),))
    recorder.wait_for(1)
    delivery.offer((incident("a"), incident("b", severity="warning")))
    delivery.offer((incident("a"), incident("c")))
    assert delivery.pending == 2
    recorder.free.set()

    assert delivery.flush(PATIENCE_SECONDS)
    assert recorder.sent == [("a", "firing"), ("c", "firing")]
    assert delivery.losses["obsolete"] == 1


def test_delivered_incident_stays_with_its_receiver_until_it_ends(deliver):
    """It is only a warning by now; without further messages it would stay open."""
    recorder = Recorder()
    delivery = deliver(recorder, route=Route(severities=("critical",)))
    for one in (incident(), incident(severity="warning"), over(incident(severity="warning"), WALL)):
        delivery.offer((one,))
        assert delivery.flush(PATIENCE_SECONDS)

    assert recorder.sent == [("a", "firing"), ("a", "resolved")]


def test_next_occurrence_of_an_ended_incident_follows_the_route(deliver):
    """Even while the receiver still gets repeats of the end."""
    recorder = Recorder(
        capabilities=ReceiverCapabilities(resend_seconds=60.0, resend_resolved_seconds=300.0)
    )
    delivery = deliver(recorder, route=Route(severities=()), wall=Clock(WALL))
    delivery.escalate_to_fallback((incident(),))
    assert delivery.flush(PATIENCE_SECONDS)
    for firing in ((), (incident(starts_at=WALL + 9),)):
        delivery.offer(firing)
        assert delivery.flush(PATIENCE_SECONDS)

    assert recorder.sent == [("a", "firing"), ("a", "resolved")]


# -- logging ----------------------------------------------------------------------------------


def test_error_is_logged_when_it_changes(deliver, caplog):
    """Once for many pages and attempts; a wrong token as an error, an outage as a warning."""
    recorder = Recorder(
        a=[wrong_token(), wrong_token(), wrong_token("answered 404"), outage()],
        b=[wrong_token(), wrong_token()],
    )
    delivery = deliver(recorder)
    delivery.offer((incident("a"), incident("b")))
    for _ in range(5):
        delivery.flush(PATIENCE_SECONDS)
    delivery.close(PATIENCE_SECONDS)
    logged = [(one.levelname, one.getMessage()) for one in caplog.records]

    assert [level for level, _ in logged] == ["ERROR", "ERROR", "WARNING"]
    assert logged[0][1] == (
        "querypulse: recorder did not take StreamingQueryFailed of a: answered 401; "
        "kept, next attempt in 300 s"
    )


@pytest.mark.contains_errors
def test_bug_in_a_receiver_is_contained(deliver, caplog):
    delivery = deliver(Recorder(a=[KeyError("bug")]))
    delivery.offer((incident(),))
    while not delivery.flush(PATIENCE_SECONDS):
        assert delivery.outcomes["failed"] == 1

    assert +delivery.outcomes == {"delivered": 1, "failed": 1}
    assert delivery.guard.errors == {"deliver-recorder": 1}


# -- the spool --------------------------------------------------------------------------------


def test_spool_learns_of_entries_dropped_between_two_offers(deliver):
    """The thread drops a resolve that needs no more repeats, and saves nothing at that moment."""
    spool, clock = MemorySpool(), Clock(WALL)
    recorder = Recorder(
        capabilities=ReceiverCapabilities(resend_seconds=0.1, resend_resolved_seconds=30.0)
    )
    delivery = deliver(recorder, spool=spool, wall=clock)
    for incidents in ((incident(),), ()):
        delivery.offer(incidents)
        assert delivery.flush(PATIENCE_SECONDS)
    assert spool.offers[-1][1]
    clock.now += 60.0
    delivery.flush(PATIENCE_SECONDS)
    until(lambda: not delivery._outbox.rows, "the entry is dropped")
    delivery.offer(())

    assert spool.offers[-1] == ("recorder", ())


def test_every_step_is_offered_to_the_spool(deliver):
    """Including the unsure state during a request, because the process may be killed then."""
    spool = MemorySpool()
    delivery = deliver(Recorder(), spool=spool)
    delivery.offer((incident(),))
    assert delivery.flush(PATIENCE_SECONDS)
    delivery.offer(())
    assert delivery.flush(PATIENCE_SECONDS)
    states = [[entry.known for entry in entries] for _, entries in spool.offers]

    assert {name for name, _ in spool.offers} == {"recorder"}
    assert states == [
        [Known.NOTHING],
        [Known.UNSURE],
        [Known.FIRING],
        [Known.FIRING],
        [Known.UNSURE],
        [],
    ]


def test_message_waits_until_the_spool_has_stored_it_and_a_resolve_does_not(deliver):
    """So no killed process leaves a page unknown to its successor, which sends a resolve again."""
    stored, recorder, waits = threading.Event(), Recorder(), []

    class SlowSpool(MemorySpool):
        def write_ahead(self):
            waits.append(len(recorder.sent))
            stored.wait(PATIENCE_SECONDS)

    delivery = deliver(recorder, spool=SlowSpool())
    delivery.offer((incident(),))
    until(lambda: waits, "the message waits")
    assert recorder.sent == []
    stored.set()
    assert delivery.flush(PATIENCE_SECONDS)
    delivery.offer(())
    assert delivery.flush(PATIENCE_SECONDS)

    assert recorder.sent == [("a", "firing"), ("a", "resolved")]
    assert waits == [0]


# -- flush and close --------------------------------------------------------------------------


def test_flush_returns_as_soon_as_everything_was_attempted(deliver):
    """A receiver that is down does not use up the flush's deadline, which never comes."""
    recorder = Recorder(a=[wrong_token() for _ in range(9)], b=[outage() for _ in range(9)])
    delivery = deliver(recorder)
    delivery.offer((incident("a"), incident("b")))
    recorder.wait_for(2)

    assert ended(lambda: delivery.flush(NEVER)) is False
    assert delivery.outcomes["misconfigured"] >= 1
    assert delivery.pending == 2


def flush_in_vain(delivery):
    assert delivery.flush(0.0) is False


def interrupt_a_flush(delivery):
    def interrupt(*_):
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delivery._changed, "wait_for", interrupt)
        with pytest.raises(KeyboardInterrupt):
            delivery.flush(PATIENCE_SECONDS)


@pytest.mark.parametrize("flush", [flush_in_vain, interrupt_a_flush])
def test_circuit_is_in_effect_again_after_a_flush(flush):
    """The flush only bypassed it for pending messages. The test acts as the delivery's thread."""
    clock, recorder = Clock(), Recorder()
    recorder.always = outage()
    delivery = Delivery(recorder, Guard(), clock=clock)
    pages = [incident(query) for query in "abcde"]
    delivery.offer(pages)
    for clock.now in (0.0, 1.0, 3.0, 7.0, 15.0):
        delivery._step()
    assert delivery.circuit_open
    flush(delivery)
    delivery.offer([*pages, incident("f")])
    clock.now = 19.98
    delivery._step()

    assert ("f", "firing") not in recorder.sent


def test_close_is_idempotent_and_ends_a_flush(deliver):
    """Even if the delivery was never started."""
    recorder = Recorder()
    delivery = Delivery(recorder, Guard())
    delivery.offer((incident(),))
    delivery.close(1.0)
    delivery.close(1.0)

    assert delivery.flush(PATIENCE_SECONDS) is False
    assert recorder.closed == 2


@pytest.mark.contains_errors
def test_receiver_that_cannot_close_is_contained():
    recorder = Recorder()
    recorder.close = lambda: 1 / 0
    guard = Guard()
    Delivery(recorder, guard).close(1.0)

    assert guard.errors == {"close-recorder": 1}
