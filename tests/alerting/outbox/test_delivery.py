"""Deliveries: a thread around each outbox, in nobody's way; routes, and fallbacks when one fails."""

import threading
from functools import partial
from types import SimpleNamespace

import pytest
from msgspec.structs import replace
from support.deliveries import (
    WALL,
    MemorySpool,
    Recorder,
    gone,
    incident,
    outage,
    over,
    poison,
    wrong_token,
)
from support.patience import NEVER, PATIENCE_SECONDS, Clock, ended, until

from querypulse.alerting.delivery.deliveries import Delivery, Notifier, Route
from querypulse.alerting.delivery.outbox import Known
from querypulse.alerting.receivers.receiver import ReceiverCapabilities
from querypulse.core.guard import Guard


@pytest.fixture
def make():
    """Make deliveries, and close them at the end."""
    made = []

    def make(receiver, **options):
        made.append(Delivery(receiver, Guard(), **options))
        return made[-1]

    yield make
    for delivery in made:
        delivery.close(PATIENCE_SECONDS)
    left = [one.name for one in threading.enumerate() if one.name.startswith("querypulse-deliver")]
    assert not left


@pytest.fixture
def deliver(make):
    """Make and start a delivery."""

    def start(receiver, **options):
        delivery = make(receiver, **options)
        delivery.start()
        return delivery

    return start


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


def test_driver_that_reports_its_own_end_does_not_wait_for_the_disk(deliver):
    """Who has killed its JVM may kill this process a moment later."""
    recorder, waits = Recorder(), []

    class SlowSpool(MemorySpool):
        def write_ahead(self):
            waits.append(len(recorder.sent))

    delivery = deliver(recorder, spool=SlowSpool())
    delivery.offer((incident("*", name="StreamingDriverDown"),))
    assert delivery.flush(PATIENCE_SECONDS)

    assert recorder.sent == [("*", "firing")]
    assert waits == []


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


def test_flush_of_all_receivers_leaves_each_its_share_of_the_time():
    """One that hangs uses up its own; what one does not need, the others have."""
    deadline, shares = SimpleNamespace(left=9.0), []

    class Hanging(Delivery):
        def flush(self, deadline_seconds):
            shares.append(deadline_seconds)
            deadline.left -= deadline_seconds
            return False

    class Quick(Delivery):
        def flush(self, deadline_seconds):
            shares.append(deadline_seconds)
            return True

    kinds = {"hangs": Hanging, "quick": Quick, "last": Hanging}
    notifier = Notifier([kind(Recorder(name), Guard()) for name, kind in kinds.items()])

    assert notifier.flush(deadline) is False
    assert shares == [3.0, 3.0, 6.0]


# -- several receivers, routes and fallbacks ------------------------------------------------------


class DispatchHarness:
    """Receivers by name, each with a route, behind one notifier."""

    def __init__(self, make, routes, left=None, **recorders):
        self.clock, self.wall = Clock(), Clock(WALL)
        self.recorders = {name: recorders.get(name) or Recorder() for name in routes}
        for name, recorder in self.recorders.items():
            recorder.name = name
        self.deliveries = {
            name: make(self.recorders[name], route=route, clock=self.clock, wall=self.wall)
            for name, route in routes.items()
        }
        spool = MemorySpool(**left) if left else None
        self.restored = []
        self.notifier = Notifier(
            tuple(self.deliveries.values()), spool, restore=self.restored.extend, wall=self.wall
        )
        for delivery in self.deliveries.values():
            delivery.start()

    def offer(self, *incidents, after=0.0):
        """Offer ``after`` seconds later, and let every delivery succeed or fail."""
        self.clock.now += after
        self.wall.now += after
        self.notifier.offer(incidents)
        self.settle()

    def settle(self):
        for delivery in self.deliveries.values():
            delivery.flush(PATIENCE_SECONDS)

    def sent(self, name):
        """The messages of that receiver, without repeats."""
        return list(dict.fromkeys(self.recorders[name].sent))


@pytest.fixture
def start(make):
    return partial(DispatchHarness, make)


def failing(error):
    recorder = Recorder()
    recorder.always = error
    return recorder


PAGER = Route(fallback="phone")
PHONE = Route(severities=())


A, B, C = incident("a"), incident("b"), incident("c")
LATER = incident(starts_at=WALL + 200.0)
OVER = over(incident(), WALL + 5)
TRIGGER, RESOLVE = ("a", "firing"), ("a", "resolved")
ESCALATED = [
    ("not accepted in time", outage(), [((A,), 0.0), ((A,), 59.0)], []),
    ("not accepted for a minute", outage(), [((A,), 0.0), ((A,), 60.0)], [TRIGGER]),
    ("rejected: at once", poison(), [((A,), 0.0), ((A,), 0.25)], [TRIGGER]),
    (
        "while the first answers 410: what waits, and what comes later",
        gone(),
        [((A, B), 0.0), ((A, B, C), 0.25), ((A, B, C), 61.0)],
        [TRIGGER, ("b", "firing"), ("c", "firing")],
    ),
    (
        "a page that ended before it was taken: trigger and resolve, once each",
        wrong_token(),
        [((A,), 0.0), ((OVER,), 5.0), *[((), 30.0)] * 5],
        [TRIGGER, RESOLVE],
    ),
    (
        "the next occurrence, too",
        wrong_token(),
        [((A,), 40.0), ((A,), 60.0), ((), 100.0), ((LATER,), 40.0), ((LATER,), 60.0), ((), 100.0)],
        [TRIGGER, RESOLVE] * 2,
    ),
]


@pytest.mark.parametrize(
    ("what", "error", "offers", "phone"), ESCALATED, ids=[row[0] for row in ESCALATED]
)
def test_fallback_is_notified_of_what_the_first_receiver_does_not_take(
    start, what, error, offers, phone
):
    harness = start({"pager": PAGER, "phone": PHONE}, pager=failing(error))
    for incidents, after in offers:
        harness.offer(*incidents, after=after)
    harness.settle()

    assert sorted(harness.recorders["phone"].sent) == sorted(phone)


def test_fallback_is_notified_until_the_incident_ends(start):
    """Even if the first receiver works again in the meantime."""
    harness = start({"pager": PAGER, "phone": PHONE}, pager=failing(outage()))
    harness.offer(incident())
    harness.offer(incident(), after=60.0)
    harness.recorders["pager"].always = None
    harness.offer(incident(revision=1), after=60.0)
    harness.offer(after=60.0)

    assert harness.recorders["phone"].sent == [TRIGGER, TRIGGER, RESOLVE]
    assert harness.sent("pager")[-1] == RESOLVE


def test_fallback_chain_is_followed_link_by_link(start):
    routes = {"a": Route(fallback="b"), "b": Route((), fallback="c"), "c": PHONE}
    harness = start(routes, a=failing(outage()), b=failing(outage()))
    harness.offer(incident())
    harness.offer(incident(), after=60.0)
    assert harness.sent("c") == []
    harness.offer(incident(), after=60.0)

    assert harness.sent("c") == [("a", "firing")]


@pytest.mark.parametrize("loop", [{"a": "a"}, {"a": "b", "b": "a"}, {"a": "b", "b": "c", "c": "b"}])
def test_fallback_loop_ends(start, loop):
    """Every receiver is notified exactly once, and nothing hangs."""
    routes = {name: Route(fallback=fallback) for name, fallback in loop.items()}
    harness = start(routes, **{name: failing(wrong_token()) for name in loop})
    for _ in range(4):
        harness.offer(incident(), after=60.0)
    for recorder in harness.recorders.values():
        recorder.always = None
        recorder.incidents.clear()
    harness.offer(incident(), after=60.0)

    assert all(recorder.sent == [("a", "firing")] for recorder in harness.recorders.values())


# -- successors -------------------------------------------------------------------------------


def entries_of(harness):
    return {name: delivery._outbox.rows for name, delivery in harness.deliveries.items()}


def test_successor_restores_each_receivers_entries_and_returns_open_incidents(start):
    """It returns the newest revision of each open incident; ended ones are still resolved."""
    earlier = start({"pager": Route(), "chat": Route()}, chat=failing(outage()))
    earlier.offer(incident("a"), incident("b"))
    earlier.offer(incident("a", revision=1))
    successor = start({"pager": Route(), "chat": Route()}, entries_of(earlier))
    restored = successor.restored
    successor.offer(*restored)

    assert [(left.key, left.revision) for left in restored] == [(incident("a").key, 1)]
    assert successor.sent("pager") == []
    assert sorted(successor.sent("chat")) == [("a", "firing"), ("b", "firing"), ("b", "resolved")]


def test_entries_of_a_removed_receiver_are_dropped(start):
    """Otherwise they would be restored at every start and sent to all other receivers."""
    earlier = start({"pager": Route(), "chat": Route()})
    earlier.offer(incident())
    spool = MemorySpool(pager=entries_of(earlier)["pager"])
    delivery = Delivery(Recorder("chat"), Guard(), spool=spool)

    restored = []
    Notifier((delivery,), spool, restore=restored.extend)

    assert restored == []
    assert spool.rows == {"pager": (), "chat": ()}


# -- routes -----------------------------------------------------------------------------------

BRONZE = Route(queries=("bronze*",))
WARNING = incident("a", severity="warning")
PROD = replace(
    incident("a"), labels={"app": "etl", "query": "a", "team": "payments", "env": "prod"}
)
TAKEN = [
    (Route(), incident("a")),
    (Route(), WARNING),
    (Route(severities=("warning",)), WARNING),
    (BRONZE, incident("bronze_orders")),
    (BRONZE, incident("gold", "bronze_orders")),
    (BRONZE, incident("*")),
    *((Route(match=match), PROD) for match in ({"team": "payments"}, {"env": "p*", "app": "e*"})),
]
NOT_TAKEN = [
    (Route(severities=()), incident("a")),
    (Route(severities=()), incident("*")),
    (Route(severities=("critical",)), WARNING),
    (Route(severities=("warning",)), incident("*")),
    (BRONZE, incident("gold")),
    (BRONZE, incident("Bronze_orders")),
    (BRONZE, incident("x.bronze")),
    (Route(queries=()), incident("a")),
    *((Route(match=match), PROD) for match in ({"env": "d*"}, {"app": "other"}, {"team": "pay"})),
    *((Route(match=match), PROD) for match in ({"region": "*"}, {"team": "payments", "env": "d*"})),
]


def test_route_takes_incidents_by_severity_name_and_labels():
    assert [route for route, offered in TAKEN if not route.takes(offered)] == []
    assert [route for route, offered in NOT_TAKEN if route.takes(offered)] == []
