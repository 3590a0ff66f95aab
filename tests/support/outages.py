"""Simulated outages of a query: what arrives, what it reads, and when it has really caught up."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass, field
from random import Random

from querypulse.listener.foresight.catching_up import CaughtUp, meeting_of
from querypulse.listener.foresight.intake import Intake, Pace, between_runs, follow_intake

STEP = 60.0
DAY = 86_400.0
LONGEST = 3 * DAY
SHORTEST = 600.0
SHAPES = ("steady", "rhythm", "bursts", "slow partition")
STARTS = ("new process", "restart", "hang")


@dataclass
class Outage:
    """One outage of a query, by its seed."""

    seed: int
    shape: str = ""
    start: str = ""
    known: float = 0.0
    """Seconds of arrivals that were polled before the outage."""
    begins: float = 0.0
    ends: float = 0.0
    poll: float = 15.0
    interval: float = 0.0
    most: float = math.inf
    """``maxOffsetsPerTrigger``."""
    overhead: float = 1.0
    speed: float = 1.0
    noise: float = 0.1
    close: float = 60.0
    arrived: list[float] = field(default_factory=list)
    shares: tuple[float, ...] = (1.0,)
    slowness: tuple[float, ...] = (1.0,)
    commits: list[tuple[float, float, float]] = field(default_factory=list)
    caught_up_at: float | None = None

    def arrived_by(self, at: float) -> float:
        """How many records had arrived by then."""
        place = min(max(at / STEP, 0.0), len(self.arrived) - 1.001)
        before, after = self.arrived[int(place)], self.arrived[int(place) + 1]
        return float(round(before + (after - before) * (place - int(place))))

    @property
    def asked_at(self) -> float:
        """Half-way; where it never catches up, some hours later."""
        if self.caught_up_at is not None:
            return (self.ends + self.caught_up_at) / 2
        return self.ends + (1 + self.seed % 8) * 3600.0

    def read_by(self, at: float) -> tuple[float, float, float]:
        """The newest commit by then, what it had read, and how long it took."""
        place = bisect_left(self.commits, (at, math.inf)) - 1
        return self.commits[place]

    def answer(self) -> CaughtUp | None:
        """What is answered half-way."""
        intake = self._before()
        now = self.ends + 0.3 * self.poll
        while now <= self.asked_at:
            intake = self._polled(intake, now)
            now += self.poll
        assert intake is not None
        return meeting_of(intake, self.asked_at, self.close)

    def _before(self) -> Intake | None:
        if self.start == "new process":
            return None
        intake: Intake | None = None
        now = self.begins - self.known
        while now < self.begins:
            intake = self._polled(intake, now, self.arrived_by(now) - self.arrived_by(now - 5))
            now += 240.0
        if self.start == "restart":
            return None if intake is None else between_runs({0: intake})[0]
        while now < self.ends:
            lag = self.arrived_by(now) - self.arrived_by(self.begins)
            intake = self._polled(intake, now, lag)
            now += max(60.0, self.poll)
        return intake

    def _polled(self, intake: Intake | None, now: float, lag: float | None = None) -> Intake:
        end, committed_at, seconds = self.arrived_by(now), now, 1.0
        if lag is None:
            committed_at, read, seconds = self.read_by(now)
            if self.interval:
                seconds = self.interval * max(1, math.ceil(seconds / self.interval))
            lag = end - read
        arrived = 0.0 if intake is None else end - self.arrived_by(intake.at)
        pace = Pace(committed_at, seconds, self.close)
        return follow_intake(intake, "offset", now, arrived=arrived, lag=lag, pace=pace)


def outage(seed: int) -> Outage:
    """The outage of this seed, run until the query has caught up, or for three days.

    Nobody asks when a query has caught up that needs less than ten minutes.
    """
    random = Random(seed)
    while True:
        simulated = _simulated(seed, random)
        caught_up_at = simulated.caught_up_at
        if caught_up_at is None or caught_up_at - simulated.ends >= SHORTEST:
            return simulated


def _simulated(seed: int, random: Random) -> Outage:
    it = Outage(seed, random.choice(SHAPES), random.choices(STARTS, (30, 45, 25))[0])
    it.known = random.choice((0.0, 3600.0, 6 * 3600.0, 27 * 3600.0, 30 * 3600.0, 40 * 3600.0))
    it.begins = it.known + random.uniform(0, DAY)
    it.ends = it.begins + min(10 * 3600.0, 1200.0 + 1200 * random.lognormvariate(0.5, 1.0))
    it.poll = random.choice((5.0, 15.0, 15.0, 15.0, 30.0, 60.0))
    usual = 10 ** random.uniform(0, 4)
    _arrive(it, random, usual, it.ends + LONGEST)
    _plan(it, random, usual)
    _run(it, random)
    return it


def _arrive(it: Outage, random: Random, usual: float, until: float) -> None:
    amplitude = random.uniform(0.2, 0.7) if it.shape == "rhythm" else 0.0
    phase, drift = random.uniform(0, DAY), random.uniform(0.9, 1.1)
    pause, length = random.uniform(900, 5400), random.uniform(120, 900)
    height = random.uniform(2, 6) if it.shape == "bursts" else 1.0
    spread, total, at, burst_until = random.uniform(0.02, 0.3), 0.0, 0.0, 0.0
    burst_at = random.expovariate(1 / pause)
    it.arrived = [0.0]
    while at < until:
        rate = usual * (1 + amplitude * math.sin(2 * math.pi * (at + phase) / DAY))
        rate *= drift ** (at / DAY) * random.lognormvariate(0, spread)
        if at >= burst_at:
            burst_until = at + length * random.uniform(0.5, 1.5)
            burst_at = burst_until + random.expovariate(1 / pause)
        if at < burst_until:
            rate *= height
        at += STEP
        total += rate * STEP
        it.arrived.append(total)


def _plan(it: Outage, random: Random, usual: float) -> None:
    """How the query reads: a part of its capacity is what usually arrives."""
    usual = it.arrived[-1] / (len(it.arrived) * STEP)
    load = random.uniform(0.1, 0.75) if random.random() < 0.87 else random.uniform(1.1, 1.8)
    capacity = usual / load
    it.noise = random.uniform(0.03, 0.15)
    outage = it.ends - it.begins
    it.interval = min(outage / 20, random.choice((0.0, 0.0, 10.0, 60.0, 300.0)))
    if it.shape == "slow partition":
        it.shares = (0.4, 0.2, 0.2, 0.1, 0.1)
        it.slowness = (random.uniform(1, 2), 1.0, 1.0, random.uniform(1, 3), 1.0)
    it.overhead = random.uniform(0.5, 10)
    slowest = max(share * slow for share, slow in zip(it.shares, it.slowness, strict=True))
    if random.random() < 0.9 or load > 1:
        length = max(it.interval, min(outage / 20, random.choice((10.0, 30.0, 60.0, 180.0, 600.0))))
        it.most = capacity * length
        busy = random.uniform(0.4, 0.9) if it.interval == length else 1.0
        it.overhead = min(it.overhead, length * busy / 3)
        it.speed = it.most * slowest / (length * busy - it.overhead)
    else:
        it.speed = capacity * slowest
    steady = it.overhead + usual * max(it.interval, it.overhead) * slowest / it.speed
    it.close = max(60.0, it.interval, 1.5 * steady)


def _run(it: Outage, random: Random) -> None:
    read = [it.arrived_by(it.begins) * share for share in it.shares]
    at = it.ends
    it.commits = [(it.begins, float(round(sum(read))), 1.0)]
    at += random.uniform(2, 30)
    while at < it.ends + LONGEST - 3600:
        unread = [
            it.arrived_by(at) * share - done for share, done in zip(it.shares, read, strict=True)
        ]
        part = min(1.0, it.most / max(1e-9, sum(unread)))
        rows = [lag * part for lag in unread]
        slowest = max(count * slow for count, slow in zip(rows, it.slowness, strict=True))
        seconds = it.overhead + slowest / it.speed
        seconds *= random.lognormvariate(0, it.noise / max(1.0, seconds / 120) ** 0.5)
        read = [done + count for done, count in zip(read, rows, strict=True)]
        committed = at + seconds
        it.commits.append((committed, float(round(sum(read))), seconds))
        if sum(read) >= it.arrived_by(committed - it.close):
            it.caught_up_at = committed
            return
        at = committed
        if it.interval:
            at = math.ceil(committed / it.interval) * it.interval
