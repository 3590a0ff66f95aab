"""Two watchers in a simulated world, in which either one is killed, frozen or cut off at random.

The world knows when its drivers are down, and the receiver keeps all that it was sent.
"""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from support.patience import WALL
from support.watch_harness import A, B

from querypulse.alerting.delivery.outbox import Outbox
from querypulse.alerting.receivers.receiver import ReceiverCapabilities
from querypulse.alerting.words.messages import Guidance
from querypulse.watch.alerts import DriverAlerts
from querypulse.watch.client import Poll, Said
from querypulse.watch.peers import KEEP_ENDED_SECONDS, Leadership
from querypulse.watch.tracker import TargetTracker

GONE_AFTER, RESOLVE_AFTER, REPEAT_SECONDS = 15.0, 10.0, 1e6
LONG_SECONDS = 90
"""So long a driver is down or up at least: both watchers see it, one of them sends it."""
KNOWS_AFTER = 30
"""A watcher that has run for so long knows what the other one has sent."""
DRIVERS = {"etl-a": A, "etl-b": B}


class SimulatedWatcher:
    """One process: the real tracker, alerts, outbox and leadership, without threads."""

    def __init__(self, world, name) -> None:
        self.name, self.born = name, world.now
        self.tracker = TargetTracker(GONE_AFTER, 1.0)
        self.tracker.listed(DRIVERS.values())
        self.alerts = DriverAlerts(
            self.tracker,
            resolve_after_seconds=RESOLVE_AFTER,
            repeat_interval_seconds=REPEAT_SECONDS,
            guidance=Guidance("https://runbooks.example/{alertname}.md"),
        )
        self.outbox = Outbox(ReceiverCapabilities(), keep_ended_seconds=KEEP_ENDED_SECONDS)
        self.leadership = Leadership((WALL + world.now, name), ("peer",), GONE_AFTER)
        self.frozen_until = 0.0

    def step(self, world, peer) -> None:
        """One second: polls, evaluation, and what is due."""
        now = world.now
        for app, endpoint in DRIVERS.items():
            seen = Poll(began_at=now, at=now, said=Said.HEALTHY, app=app, holds_key=False)
            if app in world.down:
                seen = Poll(began_at=now, at=now, said=Said.REFUSED)
            self.tracker.polled(endpoint, seen)
        rank = peer.leadership.rank if peer is not None else None
        self.leadership.polled("peer", now, now, rank)
        if peer is not None:
            rows = [row for row in peer.outbox.rows if not row.incident.is_orphan]
            is_leader = self.leadership.is_led_by("peer")
            unknown = self.outbox.mirror(rows, world.wall, is_leader=is_leader)
            self.alerts.restore(unknown, now)
        self.outbox.offer(self.alerts.update(now, world.wall), world.wall)
        if self.leadership.leads(now):
            while (incident := self.outbox.begin(now, world.wall)) is not None:
                world.sent.append((now, incident.labels["app"], incident.is_over))
                self.outbox.delivered(world.wall)


class World:
    def __init__(self, seed) -> None:
        self.random = random.Random(seed)
        self.now = 1000.0
        self.down: set[str] = set()
        self.sent: list[tuple[float, str, bool]] = []
        self.changes = {app: [] for app in DRIVERS}
        """When each driver went down, came back, and so on."""
        self.next_change = {app: self._later() for app in DRIVERS}
        self.watchers: dict[str, SimulatedWatcher | None] = {"one": None, "two": None}
        self.back_at = {"one": 1000.0, "two": 1000.0}
        self.cut_until = 0.0

    @property
    def wall(self) -> float:
        return WALL + self.now

    def _later(self) -> float:
        return self.now + LONG_SECONDS + self.random.expovariate(1 / 120)

    def step(self) -> None:
        self.now += 1.0
        for app in DRIVERS:
            if self.now >= self.next_change[app]:
                self.down ^= {app}
                self.changes[app].append(self.now)
                self.next_change[app] = self._later()
        for name, at in self.back_at.items():
            if self.watchers[name] is None and self.now >= at:
                self.watchers[name] = SimulatedWatcher(self, name)
        names = list(self.watchers)
        self.random.shuffle(names)
        for name in names:
            watcher = self.watchers[name]
            if watcher is not None and self.now >= watcher.frozen_until:
                watcher.step(self, self.seen_by(name))

    def seen_by(self, name):
        """The other watcher, if it answers."""
        (peer,) = (watcher for other, watcher in self.watchers.items() if other != name)
        if peer is None or self.now < peer.frozen_until or self.now < self.cut_until:
            return None
        return peer

    def is_safe(self, name) -> bool:
        """Whether the other watcher runs, and knows all that ``name`` has sent."""
        peer = self.seen_by(name)
        just_sent = self.sent and self.now - self.sent[-1][0] < 3
        return peer is not None and self.now - peer.born > KNOWS_AFTER and not just_sent

    def kill(self, name) -> None:
        self.watchers[name] = None
        self.back_at[name] = self.now + self.random.choice([1.0, 8.0, 40.0, 200.0])

    def settle(self) -> None:
        """All is well, for long enough."""
        self.next_change = dict.fromkeys(DRIVERS, float("inf"))
        self.cut_until = 0.0
        for name, watcher in self.watchers.items():
            self.back_at[name] = self.now
            if watcher is not None:
                watcher.frozen_until = 0.0
        for _ in range(2 * LONG_SECONDS):
            self.step()

    def of(self, app):
        return [(at, is_over) for at, sent, is_over in self.sent if sent == app]


def play(seed, seconds, *, rude):
    """Random kills of either watcher; ``rude``: also while it sends, freezes, and partitions."""
    world = World(seed)
    disturbances = 0
    for _ in range(seconds):
        world.step()
        if world.random.random() > 1 / 60:
            continue
        name = world.random.choice(list(world.watchers))
        what = world.random.choice(["kill", "freeze", "cut"]) if rude else "kill"
        watcher, peer = world.watchers[name], world.seen_by(name)
        if watcher is None or peer is None or world.now - peer.born <= KNOWS_AFTER:
            continue
        if what == "kill" and (rude or world.is_safe(name)):
            world.kill(name)
        elif what == "freeze":
            watcher.frozen_until = world.now + world.random.choice([2.0, 10.0, 60.0])
        elif what == "cut":
            world.cut_until = world.now + world.random.choice([2.0, 10.0, 60.0])
        else:
            continue
        disturbances += 1
    world.settle()
    return world, disturbances


def check_nothing_is_lost(world):
    """Each change of a driver was sent, and what the receiver knows in the end is true."""
    for app, changes in world.changes.items():
        sent = world.of(app)
        is_open = bool(sent) and not sent[-1][1]
        assert is_open == (app in world.down), (app, changes, sent)
        for index, (at, until) in enumerate(pairwise([*changes, world.now])):
            during = [is_over for when, is_over in sent if at < when <= until]
            assert bool(index % 2) in during, (app, at, sent)


def repeated(world):
    """What was sent twice in a row."""
    return [
        (app, first, second)
        for app in DRIVERS
        for first, second in pairwise(world.of(app))
        if first[1] == second[1]
    ]


def check_quiet(seed, seconds):
    world, disturbances = play(seed, seconds, rude=False)
    assert disturbances
    assert world.sent
    check_nothing_is_lost(world)
    assert repeated(world) == []


def check_rude(seed, seconds):
    world, disturbances = play(seed, seconds, rude=True)
    assert disturbances
    assert world.sent
    check_nothing_is_lost(world)
    assert len(repeated(world)) <= disturbances


@pytest.mark.parametrize("seed", range(3))
def test_of_two_watchers_either_is_killed_and_nothing_is_lost_or_sent_twice(seed):
    check_quiet(seed, 1500)


@pytest.mark.parametrize("seed", range(3))
def test_two_watchers_that_are_killed_frozen_and_cut_off_lose_nothing(seed):
    check_rude(seed, 1500)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(100, 140))
def test_many_histories_of_two_watchers_lose_nothing(seed):
    check_quiet(seed, 6000)
    check_rude(seed, 6000)


def test_two_undisturbed_watchers_send_each_change_once():
    world = World(0)
    for _ in range(1500):
        world.step()
    world.settle()
    check_nothing_is_lost(world)
    assert len(world.sent) == sum(map(len, world.changes.values()))
