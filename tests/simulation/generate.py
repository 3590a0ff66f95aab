"""Turns a seed into a plan. ``terms`` has the probabilities."""

from __future__ import annotations

from collections import Counter
from random import Random

import msgspec
from msgspec.structs import replace

from .plan import CAUSES, Plan, QuerySpec, Setup, Step

# -- terms ---------------------------------------------------------------------------------------


class Terms(msgspec.Struct, frozen=True):
    """Weights of what may happen to queries and around them."""

    queries: tuple[int, ...] = (1, 2, 2, 3, 3, 4, 6)
    minutes: tuple[float, ...] = (4.0, 5.0, 6.0, 8.0, 12.0)
    steps: tuple[int, ...] = (1, 2, 3, 4, 6, 9)
    mailboxes: tuple[int, ...] = (2000,)
    slow_critical: tuple[float, ...] = (1800.0, 240.0)
    declares: float = 0.3
    """The share of named queries with ``expected_input_seconds``."""
    expected_input: tuple[float, ...] = (70.0, 150.0)
    finite: float = 0.2
    named: float = 0.85
    expected: float = 0.3
    kept: float = 0.8
    """The share of queries that keep their checkpoint when a supervisor restarts them."""
    twins: float = 0.15
    twins_end: bool = True
    """Whether a driver with namesakes may end."""
    logs_rarely: float = 0.15
    """The share of queries with async progress tracking."""
    small_memory: float = 0.3
    """The share of drivers that remember only ``memory`` ended queries."""
    memory: int = 3
    every: tuple[float, ...] = (1.0, 2.0, 5.0, 10.0, 20.0, 60.0, 600.0)
    real_time: float = 0.05
    """The share of queries whose batches last as long as the trigger interval."""
    polled: float = 0.1
    """The share of queries whose broker is polled: their topics may be recreated."""
    polls: tuple[float, ...] = (0.0, 0.0, 0.0, 0.5, 1.5, 3.0)
    """How long polls of the probe take."""
    dated: float = 0.5
    """The share of histories in which start events have a timestamp."""
    apart: float = 0.5
    """The share of pairs of drivers with app names of their own, and the same query names."""
    jumps_back: float = 0.5
    """The share of jumps of the wall clock that set it back."""
    late_kinds: tuple[str, ...] = ("idle", "started", "progress", "failed")
    two_drivers: float = 0.2
    """The share of histories with a second driver."""
    gone: bool = True
    """Whether a receiver may answer that it is gone."""
    takes: tuple[float, ...] = (0.2, 1.0, 2.0, 5.0)
    outages: tuple[str, ...] = ("down", "busy", "slow", "cut", "cut before")
    around_share: float = 0.25
    to_query: tuple[tuple[str, float], ...] = (
        ("die", 5.0), ("die and restart", 5.0), ("fail_first", 1.0), ("restart", 1.0),
        ("stop", 2.0), ("plan_stop", 2.0), ("hang", 3.0), ("crawl", 2.0), ("ask", 1.5),
        ("dry", 1.5), ("crash_loop", 1.5), ("delay", 2.0), ("drop", 1.5), ("repeat", 1.0),
        ("probe_partial", 1.0), ("probe_misses", 1.5), ("late", 1.0), ("new", 1.5),
        ("die unreported", 1.0), ("die unseen", 1.0), ("die in outage", 1.5),
        ("silence", 1.5), ("die in silence", 1.0),
        ("log_stuck", 1.0), ("unreadable", 1.0),
        ("bad_batch", 1.0), ("fan_out", 1.0), ("skew", 2.0), ("starve", 1.0), ("lag", 1.5), ("stall", 1.0), ("rewind", 1.0),
        ("take", 1.5), ("die twice", 1.5), ("hog", 1.5),
    )  # fmt: skip
    around: tuple[tuple[str, float], ...] = (
        ("jvm_pause", 1.0), ("pause", 1.0), ("probe_refused", 1.0), ("receiver", 3.0),
        ("acknowledge", 1.0), ("kill", 1.5), ("close", 0.5), ("jvm_crash", 0.5), ("jump", 1.0),
        ("app_stops", 0.5), ("delay all", 0.7), ("drop all", 0.5), ("context_dies", 0.5),
        ("silence all", 0.5), ("poison", 1.0), ("raise", 0.5), ("terminate", 0.5),
        ("die together", 1.5), ("no_executors", 0.7), ("kill_within", 1.0),
        ("die apart", 1.0), ("exit", 0.7), ("expire", 0.7),
    )  # fmt: skip


TAKING = replace(
    Terms(),
    polled=0.0,
    to_query=Terms().to_query[:-2],
    around=Terms().around[:-2],
)
"""Without later failures, holders of slots, recreated topics, ends of programs and of sessions."""
OWNED = replace(TAKING, to_query=TAKING.to_query[:-1])
"""No query takes the checkpoint of another one."""
PLAIN = replace(
    OWNED,
    every=(1.0, 2.0, 5.0, 10.0, 20.0),
    real_time=0.0,
    polls=(0.0,),
    dated=0.0,
    apart=0.0,
    jumps_back=0.0,
    late_kinds=("idle",),
    twins_end=False,
    around=OWNED.around[:-1],
)
"""Without what was added later: it would change the plans of older seeds."""


# -- generate ------------------------------------------------------------------------------------


NAMES = ("bronze", "silver", "gold", "orders", "audit", "events")


def generate(seed: int, terms: Terms | None = None) -> Plan:
    return _Maker(Random(seed), terms if terms is not None else Terms()).make(seed)


class _Maker:
    def __init__(self, rng: Random, terms: Terms) -> None:
        self._rng = rng
        self._terms = terms
        self._horizon = rng.choice(terms.minutes) * 60.0

    def make(self, seed: int) -> Plan:
        setup = self._setup()
        queries = tuple(self._query(index, setup) for index in range(self._chosen("queries")))
        queries = _with_common_names(queries) if setup.apart else queries
        steps = [
            Step(round(self._rng.uniform(0.0, 20.0), 1), "start", query.key) for query in queries
        ]
        has_twin = self._rng.random() < self._terms.twins and not setup.attach_at
        first = queries[0]
        if (
            has_twin
            and first.name is not None
            and not first.is_finite
            and first.checkpoint == "kept"
        ):
            queries = (*queries, replace(first, key="twin", session="s2"))
            # Both run before anything happens to one: otherwise the other would succeed it.
            steps[0] = replace(steps[0], at=1.0)
            steps.append(replace(steps[0], who="twin"))
        for _ in range(self._chosen("steps")):
            if self._rng.random() < self._terms.around_share:
                steps += self._around(setup, queries)
            else:
                steps += self._to_query(self._rng.choice(queries), queries)
        if any(query.key == "twin" for query in queries):
            steps = self._of_namesakes(steps)
        steps.sort(key=lambda step: step.at)
        return Plan(seed, self._horizon, queries, tuple(steps), setup)

    def _of_namesakes(self, steps: list[Step]) -> list[Step]:
        """The steps that two queries of one name allow.

        A new process gives the name to the first query that it sees: both must run in each one.
        """
        steps = [step for step in steps if step.do != "take"]
        ends = [step for step in steps if step.do in (*_ENDS, "boot")]
        if not self._terms.twins_end:
            return [step for step in steps if step not in ends]
        return [step for step in steps if not ends or step.do not in ("stop", "plan_stop")]

    def _chosen(self, what: str) -> int:
        return int(self._rng.choice(getattr(self._terms, what)))

    def _setup(self) -> Setup:
        rng, terms = self._rng, self._terms
        kinds = [("pagerduty",), ("webhook",), ("alertmanager",), ("pagerduty", "webhook")]
        receivers = rng.choice(kinds)
        # PagerDuty cannot say whose an incident is: there, only a generic name keeps drivers apart.
        apps = ["pyspark-shell"] if "pagerduty" in receivers else ["pyspark-shell", Setup().app]
        watched = rng.random() < 0.4
        drivers = ("d1", "d2") if self._happens(terms.two_drivers) else ("d1",)
        apart = len(drivers) > 1 and self._happens(terms.apart)
        return Setup(
            apart=apart,
            polls=self._one_of(terms.polls),
            dated=self._happens(terms.dated),
            receivers=receivers,
            drivers=drivers,
            app=rng.choice(apps) if len(drivers) > 1 else Setup().app,
            spool=rng.random() < 0.6,
            watched=watched,
            attach_at=rng.choice([0.0, 0.0, 0.0, 15.0]),
            mailbox=rng.choice(terms.mailboxes),
            memory=terms.memory if rng.random() < terms.small_memory else 1000,
            slow_critical=rng.choice(terms.slow_critical),
        )

    def _happens(self, share: float) -> bool:
        """Chance, which is not drawn without a share: older terms must give the same plans."""
        return bool(share) and self._rng.random() < share

    def _one_of(self, choices: tuple[float, ...]) -> float:
        return self._rng.choice(choices) if len(choices) > 1 else choices[0]

    def _query(self, index: int, setup: Setup) -> QuerySpec:
        rng, terms = self._rng, self._terms
        kinds = ["ProcessingTime"] * 7 + ["Continuous"]
        finite = rng.random() < terms.finite
        name = NAMES[index] if rng.random() < terms.named else None
        kept = rng.random() < terms.kept
        query = QuerySpec(
            key=f"q{index}",
            name=name,
            trigger=rng.choice(["AvailableNow", "Once"]) if finite else rng.choice(kinds),
            every=rng.choice(terms.every),
            takes=rng.choice(terms.takes),
            # Unnamed queries share a label, which two drivers of one app must not.
            driver=rng.choice(
                setup.drivers if name is not None or setup.apart else setup.drivers[:1]
            ),
            recovers=rng.choice([0.0, 0.0, 0.0, 2.0, 10.0, 40.0]),
            loop=rng.choice([0.0, 5.0, 30.0]) if finite else 0.0,
            checkpoint="kept" if kept else "new",
            expected=name is not None and rng.random() < terms.expected,
            log_every=self._log_every(finite),
            expected_input=self._expected_input(name),
        )
        if (
            query.trigger == "ProcessingTime"
            and not query.log_every
            and self._happens(terms.real_time)
        ):
            lasts = rng.choice([20.0, 60.0])
            query = replace(query, trigger="RealTime", every=lasts, takes=lasts)
        elif query.trigger == "ProcessingTime" and not query.log_every:
            query = replace(query, polled=self._happens(terms.polled))
        return query

    def _log_every(self, finite: bool) -> float:
        share = self._terms.logs_rarely
        if not share or self._rng.random() >= share or finite:
            return 0.0
        return self._rng.choice([2.0, 10.0, 30.0])

    def _expected_input(self, name: str | None) -> float:
        share = self._terms.declares
        if not share or name is None or self._rng.random() >= share:
            return 0.0
        return self._rng.choice(self._terms.expected_input)

    def _to_query(self, query: QuerySpec, queries: tuple[QuerySpec, ...]) -> list[Step]:
        """One step for a query, or two steps that belong together."""
        kind = self._weighted(self._terms.to_query)
        at = round(self._rng.uniform(5.0, self._horizon * 0.8), 1)
        if kind == "new":
            return self._new(query, at)
        if kind == "take":
            return self._take(query, queries, at)
        if kind == "bad_batch":
            return self._bad_batch(query, at)
        if kind.startswith("die "):
            return self._die(kind, query, at)
        if kind in ("stop", "die") and self._rng.random() < 0.5:
            later = at + self._rng.choice([10.0, 50.0, 90.0, 150.0])
            return [Step(at, kind, query.key), Step(round(later, 1), "restart", query.key)]
        return [self._single(kind, query, at)]

    def _single(self, kind: str, query: QuerySpec, at: float) -> Step:
        if kind == "silence":
            return self._silence(query.key, at)
        if kind in _OF_OFFSETS and (query.is_finite or query.is_continuous):
            kind = "dry"
        if kind in _OF_OFFSETS and query.polled:
            return Step(at, "recreate", query.key)
        arg = str(self._rng.choice(_ARGS[kind])) if kind in _ARGS else ""
        if kind == "crash_loop":
            return Step(at, kind, query.key, self._lasts(10.0, 120.0), arg)
        seconds = self._rng.choice(_SECONDS[kind]) if kind in _SECONDS else 0.0
        if kind == "late" and len(self._terms.late_kinds) > 1:
            arg += f" {self._rng.choice(self._terms.late_kinds)}"
        if kind == "probe_misses":
            seconds = 2.0
        elif kind == "delay":
            arg = "60"
        return Step(at, kind, query.key, seconds, arg)

    def _die(self, kind: str, query: QuerySpec, at: float) -> list[Step]:
        """A failure, and something that makes it hard to detect."""
        key, later = query.key, round(at + 1.0, 1)
        if kind == "die unreported":
            return [Step(at, "drop", key, 3.0), Step(later, "die", key)]
        if kind == "die unseen":
            # Only the start event arrives; the poll that it causes lacks the run.
            return [
                Step(at, "probe_misses", key, 1.0),
                Step(at, "restart", key),
                Step(round(at + 0.05, 2), "drop", key, 3.0),
                Step(round(at + 0.4, 1), "die", key),
            ]
        if kind == "die in outage":
            mode = self._rng.choice(self._terms.outages)
            return [Step(at, "receiver", "", self._lasts(2.0, 60.0), mode), Step(later, "die", key)]
        if kind == "die in silence":
            return [self._silence(key, at), Step(round(at + 20.0, 1), "die", key)]
        back = at + self._rng.choice([0.5, 3.0, 20.0, 70.0, 120.0])
        steps = [Step(at, "die", key), Step(round(back, 1), "restart", key)]
        if kind == "die twice":
            # In a later batch, most times: it commits in between.
            again = back + self._rng.choice([15.0, 40.0, 100.0, 320.0])
            steps.append(Step(round(again, 1), "die", key))
        return steps

    def _bad_batch(self, query: QuerySpec, at: float) -> list[Step]:
        """A batch that fails repeatedly: in one process, or in each following process."""
        every = self._rng.choice([20.0, 60.0, 130.0])
        steps, again = [Step(at, "bad_batch", query.key, self._rng.choice(_BAD))], at + every
        processes = self._rng.random() < 0.5
        while again < min(at + steps[0].seconds + every, self._horizon):
            here = round(again, 1)
            if processes:
                # The job fails fast, and its scheduler restarts it.
                steps += [Step(here, "raise", query.driver), Step(here + 5.0, "boot", query.driver)]
            else:
                steps.append(Step(here, "restart", query.key))
            again += every
        return steps

    def _silence(self, who: str, at: float) -> Step:
        names = ["", "StreamingQueryFailed", "StreamingQueryStalled"]
        return Step(at, "silence", who, self._lasts(5.0, 200.0), self._rng.choice(names))

    def _new(self, query: QuerySpec, at: float) -> list[Step]:
        first = self._rng.choice(["die", "plan_stop"])
        later = round(at + self._rng.choice([1.0, 30.0]), 1)
        return [Step(at, first, query.key), Step(later, "restart", query.key, 0.0, "new")]

    def _take(self, query: QuerySpec, queries: tuple[QuerySpec, ...], at: float) -> list[Step]:
        """A query takes the checkpoint of another one, which may take it back."""
        other = self._rng.choice(queries).key
        steps = [Step(at, "take", query.key, 0.0, other)]
        if self._rng.random() < 0.5:
            back = round(at + self._rng.choice([3.0, 30.0, 90.0]), 1)
            steps.append(Step(back, "restart", other))
        return steps

    def _around(self, setup: Setup, queries: tuple[QuerySpec, ...]) -> list[Step]:
        """Steps for all queries, a driver, a signal or a receiver."""
        kind = self._weighted(self._terms.around)
        at = round(self._rng.uniform(5.0, self._horizon * 0.8), 1)
        if kind == "die together":
            return self._die_together(queries, at)
        if kind == "die apart":
            return self._die_apart(queries, at)
        if kind in _ENDS:
            return self._end(kind, setup, at)
        if kind == "silence all":
            return [self._silence("*", at)]
        return [self._to_signals(kind, setup, at)]

    def _to_signals(self, kind: str, setup: Setup, at: float) -> Step:
        """A step for a receiver, the signals, a clock or the executors."""
        if kind == "poison":
            return Step(at, kind)
        if kind == "receiver":
            modes = ["down", "busy", "slow", "cut", "cut before", "wrong token"]
            modes += ["gone"] if self._terms.gone else []
            return Step(at, kind, "", self._lasts(2.0, 150.0), self._rng.choice(modes))
        if kind in ("delay all", "drop all"):
            size = self._rng.choice([3.0, 30.0])
            do = kind.removesuffix(" all")
            return Step(at, do, "*", size, "40" if do == "delay" else "")
        if kind == "no_executors":
            return Step(at, kind, self._rng.choice(setup.drivers), self._rng.choice(_LONG))
        longest = {"jvm_pause": 90.0, "probe_refused": 120.0, "pause": 120.0, "jump": 3600.0}
        back = kind == "jump" and self._happens(self._terms.jumps_back)
        seconds = self._lasts(1.0, longest.get(kind, 1.0))
        return Step(at, kind, "", -seconds if back else seconds)

    def _die_together(self, queries: tuple[QuerySpec, ...], at: float) -> list[Step]:
        """All queries of one driver fail for one cause; some restart sooner, and may fail again."""
        # A group has the key of its app, which two drivers with one app name share.
        keys = [query.key for query in queries if query.driver == queries[0].driver]
        steps = [Step(round(at + self._rng.choice([0.0, 0.0, 4.0]), 1), "die", key) for key in keys]
        for key in keys:
            back = round(at + self._rng.choice([2.0, 20.0, 70.0]), 1)
            if self._rng.random() < 0.7:
                steps.append(Step(back, "restart", key))
            if self._rng.random() < 0.4:
                again = round(back + self._rng.choice([20.0, 80.0, 120.0]), 1)
                steps.append(Step(again, "die", key))
        return steps

    def _die_apart(self, queries: tuple[QuerySpec, ...], at: float) -> list[Step]:
        """All queries of one driver fail within seconds, for two or three causes."""
        steps = []
        for number, query in enumerate(queries):
            if query.driver == queries[0].driver:
                later = round(at + self._rng.choice([0.0, 0.0, 4.0, 8.0]), 1)
                cause = CAUSES[number % self._rng.choice([2, 3])]
                steps.append(Step(later, "die", query.key, 0.0, cause))
        return steps

    def _end(self, kind: str, setup: Setup, at: float) -> list[Step]:
        driver = self._rng.choice(setup.drivers)
        longest = {"app_stops": 30.0, "terminate": 3.0}
        seconds = self._lasts(1.0, longest[kind]) if kind in longest else 0.0
        arg = str(self._rng.randint(1, 30)) if kind == "kill_within" else ""
        if kind == "exit":
            arg = self._rng.choice(["", "failed"])
        steps = [Step(at, kind, driver, seconds, arg)]
        gone = at + seconds + 2.0
        if kind in ("jvm_crash", "context_dies", "expire"):
            gone += self._rng.choice([1.0, 20.0, 70.0])
            how = self._rng.choice(["kill", "kill", "close", "raise"])
            steps.append(Step(round(gone, 1), how, driver))
        if self._rng.random() < 0.85:
            back = gone + self._rng.choice([1.0, 5.0, 30.0, 90.0])
            steps.append(Step(round(back, 1), "boot", driver))
        return steps

    def _lasts(self, least: float, most: float) -> float:
        return round(self._rng.uniform(least, max(least, most)), 1)

    def _weighted(self, choices: tuple[tuple[str, float], ...]) -> str:
        names, weights = zip(*choices, strict=True)
        return str(self._rng.choices(names, weights)[0])


_ENDS = frozenset(
    {
        "kill",
        "kill_within",
        "close",
        "raise",
        "exit",
        "terminate",
        "jvm_crash",
        "context_dies",
        "expire",
        "app_stops",
    }
)
_OF_OFFSETS = ("lag", "stall", "rewind")
_BAD = (50.0, 160.0, 420.0)
_LONG = (8.0, 20.0, 50.0, 90.0, 160.0, 250.0)
_SECONDS = {
    **dict.fromkeys(("hang", "ask", "dry", "log_stuck", "unreadable"), _LONG),
    **dict.fromkeys(("crawl", "fan_out", "skew", "starve", "hog"), (*_LONG, 420.0)),
    **dict.fromkeys(_OF_OFFSETS, _BAD),
    **dict.fromkeys(("drop", "repeat", "probe_partial"), (5.0, 20.0, 45.0)),
    "delay": (2.0, 10.0, 40.0, 70.0),
}
_ARGS: dict[str, tuple[object, ...]] = {
    "late": (1, 2, 5, 17, 25),
    "crash_loop": ("0.3", "2", "10", "40"),
}


def _with_common_names(queries: tuple[QuerySpec, ...]) -> tuple[QuerySpec, ...]:
    """Name the queries of each driver from the beginning of the list."""
    counts: Counter[str] = Counter()
    named = []
    for query in queries:
        name = NAMES[counts[query.driver]] if query.name is not None else None
        counts[query.driver] += 1
        named.append(replace(query, name=name))
    return tuple(named)
