"""Several receivers: each gets its own incidents, and a fallback takes over when one fails."""

import threading

import pytest
from msgspec.structs import replace
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
from support.patience import Clock

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


A, B, C = incident("a"), incident("b"), incident("c")
LATER = incident(starts_at=WALL + 200.0)
OVER = over(incident(), WALL + 5)
TRIGGER, RESOLVE = ("a", "firing"), ("a", "resolved")
ESCALATED = [
    ("not accepted in time", outage(), [((A,), 0.0), ((A,), 59.0)], []),
    ("not accepted for a minute", outage(), [((A,), 0.0), ((A,), 60.0)], [TRIGGER]),
    ("rejected: at once", poison(), [((A,), 0.0), ((A,), 0.25)], [TRIGGER]),
    ("while the first answers 410: what waits, and what comes later", gone(),
     [((A, B), 0.0), ((A, B, C), 0.25), ((A, B, C), 61.0)], [TRIGGER, ("b", "firing"), ("c", "firing")]),
    ("a page that ended before it was taken: trigger and resolve, once each", wrong_token(),
     [((A,), 0.0), ((OVER,), 5.0), *[((), 30.0)] * 5], [TRIGGER, RESOLVE]),
    ("the next occurrence, too", wrong_token(),
     [((A,), 40.0), ((A,), 60.0), ((), 100.0), ((LATER,), 40.0), ((LATER,), 60.0), ((), 100.0)], [TRIGGER, RESOLVE] * 2),
]  # fmt: skip


@pytest.mark.parametrize(
    ("error", "offers", "phone"),
    [row[1:] for row in ESCALATED],
    ids=[row[0] for row in ESCALATED],
)
def test_fallback_is_notified_of_what_the_first_receiver_does_not_take(start, error, offers, phone):
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
