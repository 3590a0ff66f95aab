"""Several receivers at once: each has its own, and a fallback when it does not listen."""

import threading

import pytest
from support.clock import Clock
from support.deliveries import (
    PATIENCE_SECONDS,
    WALL,
    Recorder,
    gone,
    incident,
    outage,
    over,
    poison,
    wrong_token,
)

from querypulse.alerting.outbox.delivery import Delivery
from querypulse.alerting.outbox.dispatch import Dispatch
from querypulse.alerting.outbox.routing import Route
from querypulse.alerting.receivers.receiver import ReceiverCapabilities
from querypulse.listener.guard import Guard


class House:
    """Receivers by name, each with a route, and the dispatch before them."""

    def __init__(self, routes, **recorders):
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
        self.dispatch = Dispatch(tuple(self.deliveries.values()), wall=self.wall)
        for delivery in self.deliveries.values():
            delivery.start()

    def offer(self, *incidents, after=0.0, stale_resolves=()):
        """Offer, ``after`` seconds later, and let every receiver be told or fail."""
        self.clock.now += after
        self.wall.now += after
        self.dispatch.offer(incidents, stale_resolves)
        return self.settle()

    def settle(self):
        for delivery in self.deliveries.values():
            delivery.flush(PATIENCE_SECONDS)
        return self

    def state(self, name):
        """What that receiver was told, repeated failures left out."""
        return list(dict.fromkeys(self.recorders[name].sent))

    def close(self):
        for delivery in self.deliveries.values():
            delivery.close(PATIENCE_SECONDS)


@pytest.fixture
def house():
    houses = []

    def build(routes, **recorders):
        houses.append(House(routes, **recorders))
        return houses[-1]

    yield build
    for one in houses:
        one.close()
    assert not [one for one in threading.enumerate() if one.name.startswith("querypulse-deliver")]


def failing(error):
    recorder = Recorder()
    recorder.always = error
    return recorder


PAGER = Route(fallback="phone")
PHONE = Route(severities=())


def test_each_receiver_is_reported_what_is_its_own(house):
    one = house(
        {
            "pager": Route(severities=("critical",)),
            "chat": Route(),
            "bronze": Route(queries=("bronze*",)),
        }
    )
    one.offer(incident("a"), incident("bronze_b", severity="warning"), incident("*"))

    assert sorted(one.state("pager")) == [("*", "firing"), ("a", "firing")]
    assert len(one.state("chat")) == 3
    assert sorted(one.state("bronze")) == [("*", "firing"), ("bronze_b", "firing")]


def test_a_fallback_is_reported_when_the_first_has_not_taken_it_in_time(house):
    one = house({"pager": PAGER, "phone": PHONE}, pager=failing(outage()))
    one.offer(incident())
    one.offer(incident(), after=59.0)
    assert one.state("phone") == []

    one.offer(incident(), after=1.0).settle()
    assert one.state("phone") == [("a", "firing")]


def test_a_fallback_is_not_reported_of_what_was_taken(house):
    one = house({"pager": PAGER, "phone": PHONE})
    one.offer(incident())
    one.offer(incident(), incident("b"), after=3600.0)
    one.offer(after=3600.0).settle()

    assert one.state("pager")[-1] in {("a", "resolved"), ("b", "resolved")}
    assert one.state("phone") == []


def test_a_fallback_is_reported_at_once_of_what_will_never_be_taken(house):
    one = house({"pager": PAGER, "phone": PHONE}, pager=failing(poison()))
    one.offer(incident())
    one.offer(incident(), after=0.25).settle()

    assert one.state("phone") == [("a", "firing")]


def test_a_fallback_has_everything_while_the_first_answers_410(house):
    """What was pending then, and what comes later."""
    one = house({"pager": PAGER, "phone": PHONE}, pager=failing(gone()))
    one.offer(incident("a"), incident("b"))
    one.offer(incident("a"), incident("b"), incident("c"), after=0.25)
    one.offer(incident("a"), incident("b"), incident("c"), after=61.0)
    one.settle()

    assert sorted(one.state("phone")) == [("a", "firing"), ("b", "firing"), ("c", "firing")]


def test_a_fallback_goes_on_being_reported_until_the_end(house):
    """Also when the first takes everything again meanwhile."""
    one = house({"pager": PAGER, "phone": PHONE}, pager=failing(outage()))
    one.offer(incident())
    one.offer(incident(), after=60.0)
    one.recorders["pager"].always = None
    one.offer(incident(revision=1), after=60.0)
    one.offer(after=60.0)

    assert one.recorders["phone"].sent == [("a", "firing"), ("a", "firing"), ("a", "resolved")]
    assert one.state("pager")[-1] == ("a", "resolved")


def test_a_page_that_is_over_before_the_first_took_it_is_not_lost(house):
    """The fallback hears that it was, and that it is over, once."""
    one = house({"pager": PAGER, "phone": PHONE}, pager=failing(wrong_token()))
    one.offer(incident())
    one.offer(over(incident(), WALL + 5), after=5.0)
    for _ in range(5):
        one.offer(after=30.0)

    assert one.recorders["phone"].sent == [("a", "firing"), ("a", "resolved")]
    assert one.deliveries["pager"].pending == 1


def test_the_next_occurrence_is_handed_over_too(house):
    """The first is still down, and still has not told of the one before."""
    one = house({"pager": PAGER, "phone": PHONE}, pager=failing(wrong_token()))
    for start in (0.0, 200.0):
        firing = incident(starts_at=WALL + start)
        one.offer(firing, after=40.0)
        one.offer(firing, after=60.0)
        one.offer(after=100.0)

    assert one.recorders["phone"].sent == [("a", "firing"), ("a", "resolved")] * 2


def test_a_muted_incident_is_no_fallbacks_business(house):
    one = house({"pager": PAGER, "phone": PHONE}, pager=failing(gone()))
    for _ in range(3):
        one.offer(incident(muted="silenced until noon"), after=60.0)

    assert one.state("phone") == []


def test_a_chain_of_fallbacks_is_gone_down_link_by_link(house):
    routes = {"a": Route(fallback="b"), "b": Route((), fallback="c"), "c": PHONE}
    one = house(routes, a=failing(outage()), b=failing(outage()))
    one.offer(incident())
    one.offer(incident(), after=60.0)
    assert one.state("c") == []
    one.offer(incident(), after=60.0)

    assert one.state("c") == [("a", "firing")]


@pytest.mark.parametrize("loop", [{"a": "a"}, {"a": "b", "b": "a"}, {"a": "b", "b": "c", "c": "b"}])
def test_a_loop_of_fallbacks_ends(house, loop):
    """Everybody is told, nobody twice, and nothing hangs."""
    routes = {name: Route(fallback=fallback) for name, fallback in loop.items()}
    one = house(routes, **{name: failing(wrong_token()) for name in loop})
    for _ in range(4):
        one.offer(incident(), after=60.0)
    for recorder in one.recorders.values():
        recorder.always = None
        recorder.incidents.clear()
    one.offer(incident(), after=60.0)

    assert all(recorder.sent == [("a", "firing")] for recorder in one.recorders.values())


def test_before_the_driver_exits_the_fallback_has_everything_at_once(house):
    """There will be no 60 seconds."""
    one = house({"pager": PAGER, "phone": PHONE}, pager=failing(outage()))
    one.offer(incident())
    one.dispatch.escalate_to_fallback()
    one.settle()

    assert one.state("phone") == [("a", "firing")]


def test_a_fallback_that_is_no_receiver_is_an_error():
    delivery = Delivery(Recorder("pager"), Guard(), route=Route(fallback="phnoe"))

    with pytest.raises(ValueError, match=r"'pager'.*'phnoe' \(receivers: pager\)"):
        Dispatch((delivery,))


def test_closings_go_to_those_that_reconcile(house):
    one = house(
        {"pager": Route(), "chat": Route()},
        pager=Recorder(capabilities=ReceiverCapabilities(reconciles=True)),
    )
    one.offer(stale_resolves=(over(incident(), WALL),))

    assert one.recorders["pager"].wait_for(1) == [("a", "resolved")]
    assert one.state("chat") == []


# -- successors -------------------------------------------------------------------------------


class Shelf:
    """A spool in memory."""

    def __init__(self):
        self.entries = {}

    def offer(self, receiver, entries):
        self.entries[receiver] = entries


def entries_of(house):
    return {name: delivery._outbox.entries for name, delivery in house.deliveries.items()}


def test_a_successor_has_each_receivers_entries_and_says_what_is_open(house):
    """The newest revision of each; what is over is none of them, yet it is resolved."""
    earlier = house({"pager": Route(), "chat": Route()}, chat=failing(outage()))
    earlier.offer(incident("a"), incident("b"))
    earlier.offer(incident("a", revision=1))
    successor = house({"pager": Route(), "chat": Route()})
    restored = successor.dispatch.restore(entries_of(earlier))
    successor.offer(*restored)

    assert [(one.key, one.revision) for one in restored] == [(incident("a").key, 1)]
    assert successor.state("pager") == []
    assert sorted(successor.state("chat")) == [("a", "firing"), ("b", "firing"), ("b", "resolved")]


def test_entries_of_a_receiver_that_is_no_more_are_forgotten(house):
    """Kept, they would be inherited again at every start, and told to all others."""
    earlier = house({"pager": Route(), "chat": Route()})
    earlier.offer(incident())
    shelf = Shelf()
    delivery = Delivery(Recorder("chat"), Guard(), spool=shelf)
    entries = {"pager": entries_of(earlier)["pager"]}

    assert Dispatch((delivery,), spool=shelf).restore(entries) == ()
    assert shelf.entries == {"pager": (), "chat": ()}


def test_a_page_that_a_receiver_that_is_no_more_was_not_reported_is_reported_to_the_others(house):
    earlier = house({"pager": Route()}, pager=failing(outage()))
    earlier.offer(incident())
    successor = house({"chat": Route()})
    successor.offer(*successor.dispatch.restore(entries_of(earlier)))

    assert successor.state("chat") == [("a", "firing")]
