"""Several receivers: each gets its own incidents, and a fallback takes over when one fails."""

import threading

import pytest
from msgspec.structs import replace
from support.clock import Clock
from support.deliveries import (
    PATIENCE_SECONDS,
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

from querypulse.alerting.delivery import Delivery, Notifier, Route
from querypulse.core.guard import Guard


class DispatchHarness:
    """Receivers by name, each with a route, behind one dispatch."""

    def __init__(self, routes, left=None, **recorders):
        self.clock, self.wall = Clock(), Clock(WALL)
        self.recorders = {name: recorders.get(name) or Recorder(name) for name in routes}
        for name, recorder in self.recorders.items():
            recorder.name = name
        self.deliveries = {
            name: Delivery(
                self.recorders[name], Guard(), route=route, clock=self.clock, wall=self.wall
            )
            for name, route in routes.items()
        }
        spool = MemorySpool(**left) if left else None
        self.notifier = Notifier(tuple(self.deliveries.values()), spool, wall=self.wall)
        for delivery in self.deliveries.values():
            delivery.start()

    def offer(self, *incidents, after=0.0):
        """Offer ``after`` seconds later, and let every delivery succeed or fail."""
        self.clock.now += after
        self.wall.now += after
        self.notifier.offer(incidents)
        return self.settle()

    def settle(self):
        for delivery in self.deliveries.values():
            delivery.flush(PATIENCE_SECONDS)
        return self

    def sent(self, name):
        """The messages of that receiver, without repeats."""
        return list(dict.fromkeys(self.recorders[name].sent))

    def close(self):
        for delivery in self.deliveries.values():
            delivery.close(PATIENCE_SECONDS)


@pytest.fixture
def start():
    harnesses = []

    def build(routes, left=None, **recorders):
        harnesses.append(DispatchHarness(routes, left, **recorders))
        return harnesses[-1]

    yield build
    for harness in harnesses:
        harness.close()
    left = [thread.name for thread in threading.enumerate()]
    assert not [name for name in left if name.startswith("querypulse-deliver")]


def failing(error):
    recorder = Recorder()
    recorder.always = error
    return recorder


PAGER = Route(fallback="phone")
PHONE = Route(severities=())


@pytest.mark.parametrize(
    ("match", "sent"),
    [
        ({}, ["prod", "dev"]),
        ({"team": "payments"}, ["prod", "dev"]),
        ({"team": "payments", "env": "prod"}, ["prod"]),
        ({"env": "d*"}, ["dev"]),
        ({"app": "e*"}, ["prod", "dev"]),
        ({"app": "other"}, []),
        ({"team": "pay"}, []),
        ({"region": "*"}, []),
    ],
)
def test_receiver_gets_only_incidents_whose_labels_match(start, match, sent):
    harness = start({"chat": Route(match=match)})
    payments = {"app": "etl", "team": "payments"}
    harness.offer(
        *(
            replace(incident(env), labels={**payments, "query": env, "env": env})
            for env in ("prod", "dev")
        )
    )

    assert [query for query, _ in harness.sent("chat")] == sent


def test_fallback_is_notified_when_the_first_receiver_does_not_accept_in_time(start):
    harness = start({"pager": PAGER, "phone": PHONE}, pager=failing(outage()))
    harness.offer(incident())
    harness.offer(incident(), after=59.0)
    assert harness.sent("phone") == []

    harness.offer(incident(), after=1.0).settle()
    assert harness.sent("phone") == [("a", "firing")]


def test_fallback_is_notified_at_once_of_rejected_incidents(start):
    harness = start({"pager": PAGER, "phone": PHONE}, pager=failing(poison()))
    harness.offer(incident())
    harness.offer(incident(), after=0.25).settle()

    assert harness.sent("phone") == [("a", "firing")]


def test_fallback_gets_everything_while_the_first_receiver_answers_410(start):
    """The fallback gets pending incidents and later ones."""
    harness = start({"pager": PAGER, "phone": PHONE}, pager=failing(gone()))
    harness.offer(incident("a"), incident("b"))
    harness.offer(incident("a"), incident("b"), incident("c"), after=0.25)
    harness.offer(incident("a"), incident("b"), incident("c"), after=61.0)
    harness.settle()

    assert sorted(harness.sent("phone")) == [("a", "firing"), ("b", "firing"), ("c", "firing")]


def test_fallback_is_notified_until_the_incident_ends(start):
    """Even if the first receiver works again in the meantime."""
    harness = start({"pager": PAGER, "phone": PHONE}, pager=failing(outage()))
    harness.offer(incident())
    harness.offer(incident(), after=60.0)
    harness.recorders["pager"].always = None
    harness.offer(incident(revision=1), after=60.0)
    harness.offer(after=60.0)

    assert harness.recorders["phone"].sent == [("a", "firing"), ("a", "firing"), ("a", "resolved")]
    assert harness.sent("pager")[-1] == ("a", "resolved")


def test_page_that_ended_before_the_first_receiver_took_it_is_not_lost(start):
    """The fallback gets the trigger and the resolve, once each."""
    harness = start({"pager": PAGER, "phone": PHONE}, pager=failing(wrong_token()))
    harness.offer(incident())
    harness.offer(over(incident(), WALL + 5), after=5.0)
    for _ in range(5):
        harness.offer(after=30.0)

    assert harness.recorders["phone"].sent == [("a", "firing"), ("a", "resolved")]
    assert harness.deliveries["pager"].pending == 1


def test_next_occurrence_is_escalated_too(start):
    """The first receiver is still down and has not accepted the previous occurrence."""
    harness = start({"pager": PAGER, "phone": PHONE}, pager=failing(wrong_token()))
    for began in (0.0, 200.0):
        firing = incident(starts_at=WALL + began)
        harness.offer(firing, after=40.0)
        harness.offer(firing, after=60.0)
        harness.offer(after=100.0)

    assert harness.recorders["phone"].sent == [("a", "firing"), ("a", "resolved")] * 2


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
    restored = successor.notifier.restored
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

    assert Notifier((delivery,), spool).restored == ()
    assert spool.rows == {"pager": (), "chat": ()}


# -- routes -----------------------------------------------------------------------------------

BRONZE = Route(queries=("bronze*",))


TAKEN = [
    (Route(), incident("a")),
    (Route(), incident("a", severity="warning")),
    (Route(severities=("warning",)), incident("a", severity="warning")),
    (BRONZE, incident("bronze_orders")),
    (BRONZE, incident("gold", "bronze_orders")),
    (BRONZE, incident("*")),
]
NOT_TAKEN = [
    (Route(severities=()), incident("a")),
    (Route(severities=()), incident("*")),
    (Route(severities=("critical",)), incident("a", severity="warning")),
    (Route(severities=("warning",)), incident("*")),
    (BRONZE, incident("gold")),
    (BRONZE, incident("Bronze_orders")),
    (BRONZE, incident("x.bronze")),
    (Route(queries=()), incident("a")),
]


def test_route_takes_incidents_by_severity_and_name():
    assert [route for route, offered in TAKEN if not route.takes(offered)] == []
    assert [route for route, offered in NOT_TAKEN if route.takes(offered)] == []
