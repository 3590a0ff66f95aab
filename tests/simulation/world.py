"""Runs a plan: the simulated parts, wired together, and the properties that check them."""

from __future__ import annotations

from functools import wraps
from importlib import import_module
from random import Random
from typing import Any
from unittest.mock import Mock, patch

import msgspec

from querypulse.alerting.incidents.lifecycle import Evaluated
from querypulse.listener.state import state

from .bookkeeping import Bookkeeping
from .clock import BEGIN, Time
from .driver import Disk, SimDriver, SimGuard
from .feeding import Feeding, Losing
from .looping import Failing, Grouping, Looping
from .outside import SimWatch
from .plan import Plan
from .queries import SimQuery
from .quiet import Quiet
from .reaching import Reaching, Seeing
from .receivers import SimReceiver
from .recordings import RecordingFolder
from .resolving import Resolving
from .signals import Faults
from .stage import TICK_SECONDS, Property, Silences, Violation
from .steps import take

EVALUATION = import_module("querypulse.alerting.evaluate")


class PlanOutcome(msgspec.Struct, frozen=True):
    """The outcome of a plan. ``at`` is when a property broke, in seconds since the beginning."""

    plan: Plan
    violation: str = ""
    text: str = ""
    at: float = 0.0
    notified: int = 0


class World:
    """One history. ``drivers`` has the newest process of each name."""

    def __init__(self, plan: Plan, *, checked: bool = True) -> None:
        self.plan = plan
        self.time = Time()
        self.faults = Faults(self.time)
        self.silences = Silences(self.time)
        self.guard = SimGuard()
        self.boots: list[tuple[float, str]] = []
        self.rng = Random(plan.seed)
        self.queries = {
            spec.key: SimQuery(spec, self._rng(spec.key), self.time) for spec in plan.queries
        }
        kinds = enumerate(plan.setup.receivers)
        self.receivers = [
            SimReceiver(f"{kind}{index or ''}", kind, self.time, self._rng(kind))
            for index, kind in kinds
        ]
        self.longest_delay = max((s.seconds for s in plan.steps if s.do == "delay"), default=0.0)
        self.drivers: dict[str, SimDriver] = {}
        names = plan.setup.drivers if plan.setup.spool else ()
        self._disks = {name: Disk() for name in names}
        self.recordings = {name: RecordingFolder() for name in plan.setup.drivers}
        properties = (
            Reaching,
            Resolving,
            Quiet,
            Bookkeeping,
            Seeing,
            Feeding,
            Losing,
            Looping,
            Grouping,
            Failing,
        )
        self._properties: list[Property] = [of(self) for of in properties] if checked else []
        self._watch = SimWatch(self)

    def run(self) -> PlanOutcome:
        for name in self.plan.setup.drivers:
            self.boot(name)
        if self.plan.setup.watched:
            self._watch.begin()
        for step in sorted(self.plan.steps, key=lambda step: step.at):
            self.time.at(BEGIN + step.at, lambda step=step: take(self, step))  # type: ignore[misc]
        self.time.after(TICK_SECONDS + 0.5, self._tick)
        try:
            with (
                patch.object(state, "MAX_GONE_QUERIES", self.plan.setup.memory),
                patch.object(EVALUATION, "ORDER", tuple(map(self._rule, EVALUATION.ORDER))),
            ):
                self.time.run(BEGIN + self.plan.horizon)
        except Violation as broken:
            return self._outcome(broken.name, broken.text)
        finally:
            self._end()
        return self._outcome()

    def _rule(self, rule: Any) -> Any:
        is_broken = rule.__name__ == self.plan.setup.broken_rule
        return wraps(rule)(Mock(side_effect=ZeroDivisionError)) if is_broken else rule

    def _end(self) -> None:
        for driver in self.drivers.values():
            driver.release()
        for disk in self._disks.values():
            disk.remove()

    def boot(self, name: str) -> None:
        mine = [query for query in self.queries.values() if query.spec.driver == name]
        self.boots.append((self.time.now, name))
        rng = self._rng(f"{name}{len(self.boots)}")
        disk, recordings = self._disks.get(name), self.recordings[name]
        driver = SimDriver(self, name, rng, mine, disk=disk, recordings=recordings)
        self.drivers[name] = driver
        for query in mine:
            if query.wanted:
                self.time.after(0.5, lambda query=query: driver.spark.start(query))  # type: ignore[misc]

    def _tick(self) -> None:
        self.silences.tick()
        for receiver in self.receivers:
            receiver.lapse()
        for check in self._properties:
            check.tick()
        self.time.after(TICK_SECONDS, self._tick)

    def evaluated(self, driver: SimDriver, evaluated: Evaluated) -> None:
        for check in self._properties:
            check.evaluated(driver, evaluated)

    def _rng(self, what: str) -> Random:
        """A random generator per part: a part that the shrinker drops changes no other part."""
        return Random(f"{self.plan.seed} {what}")

    def _outcome(self, violation: str = "", text: str = "") -> PlanOutcome:
        notified = sum(len(receiver.notifications) for receiver in self.receivers)
        return PlanOutcome(self.plan, violation, text, self.time.passed, notified)


def run(plan: Plan) -> PlanOutcome:
    return World(plan).run()
