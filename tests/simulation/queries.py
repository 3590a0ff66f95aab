"""A query as its owner sees it: the plan's wishes, its checkpoint, and the truth about it."""

from __future__ import annotations

from random import Random

import msgspec

from .clock import Time
from .plan import QuerySpec
from .sources import SimSource
from .truth import Truth

POLL_SECONDS = 2.0
"""How often the simulated probe polls."""


class Checkpoint:
    """Where a query stands on disk: it outlives runs and drivers."""

    def __init__(self, rng: Random) -> None:
        self.query_id = identity(rng)
        self.batch = 0
        self.logged = -1
        """The newest batch in its commit log."""
        self.logged_at = float("-inf")
        self.planned = -1
        """The newest batch in its log of offsets, whichever process has planned it."""
        self.planned_at = float("-inf")


class Failed(msgspec.Struct, frozen=True):
    """A run failed, in which batch (None: before any), and whether an event showed it at once."""

    at: float
    batch: int | None
    known: bool


class SimQuery:
    """Everything about one query that no run takes with it when it ends.

    Times ``..._until`` are monotonic seconds until which something is so.
    """

    def __init__(self, spec: QuerySpec, rng: Random, time: Time) -> None:
        self.spec = spec
        self.truth = Truth(spec.key)
        self.checkpoint = Checkpoint(rng)
        self.source = SimSource(time)
        self.wanted = False
        """Whether its application runs it: a driver that is started again starts it."""
        self.hang_until = 0.0
        self.crawl_until = 0.0
        self.fan_until = 0.0
        self.skew_until = 0.0
        self.starve_until = 0.0
        self.ask_until = 0.0
        self.dry_until = 0.0
        self.log_until = 0.0
        self.crash_until = 0.0
        self.bad_until = 0.0
        self.bad_runs_until = 0.0
        self.bad_runs_last = 0.0
        """How many seconds each of its runs lasts until then."""
        self.failures: list[Failed] = []
        """Of its runs, in whichever process."""
        self.crash_pause = 1.0
        self.fails_at_once = False
        self.query_ids = {self.checkpoint.query_id}
        self.started_at = float("-inf")
        self.fed_at = float("-inf")
        """When a batch last had rows."""
        self.known_fed_at = float("-inf")
        """The same, without what the poll shows that first shows a commit of its run: only the
        events tell of that."""
        self._first_fed_at = float("-inf")
        self.kept: list[tuple[float, str, str]] = []
        """When all runs were started, with query and run ids: for events that come far too late."""
        self._rng = rng

    def is_fed(self, at: float, *, first_of_run: bool) -> None:
        """A batch with rows was committed."""
        if first_of_run:
            self._first_fed_at, self.known_fed_at = at, self.fed_at
        elif at - self._first_fed_at > POLL_SECONDS:
            self.known_fed_at = at
        self.fed_at = at

    @property
    def key(self) -> str:
        """What the plan calls it."""
        return self.spec.key

    @property
    def is_lost(self) -> bool:
        """Whether nobody can know that it is back: it has no name, and another id each time."""
        return self.spec.name is None and len(self.query_ids) > 1

    def new_checkpoint(self) -> None:
        """Its checkpoint was deleted, or never kept."""
        self.checkpoint = Checkpoint(self._rng)
        self.source.restart()
        self.query_ids.add(self.checkpoint.query_id)


def identity(rng: Random) -> str:
    """A UUID as Spark writes one."""
    text = f"{rng.getrandbits(128):032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
