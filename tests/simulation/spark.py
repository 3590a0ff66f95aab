"""The simulated Spark of one driver process: it starts runs, posts events, and knows the truth."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timezone
from functools import partial
from math import inf
from random import Random

import msgspec

from querypulse.listener.events import EventKind
from querypulse.listener.probe_report import Context

from .clock import WALL, Time
from .queries import SimQuery
from .run import NOTABLE_SECONDS, Run
from .signals import SimBus
from .truth import LIVES, Health

HOOKS_SECONDS = 0.5
"""How long the JVM lives after a signal, while its shutdown hooks run."""
ROUNDING_SECONDS = 1e-6
_encode = msgspec.json.encode


class SimSpark:
    """All runs of one SparkContext, of all sessions."""

    def __init__(
        self,
        time: Time,
        rng: Random,
        bus: SimBus,
        restart: Callable[[SimQuery, float], None],
        *,
        dated: bool = False,
    ) -> None:
        self.dated = dated
        """Whether start events have a timestamp."""
        self.time = time
        self.rng = rng
        self.context = Context.RUNNING
        self.alive = True
        self.exits_at = inf
        """When its JVM has ended because of a signal."""
        self.paused_from = self.paused_until = 0.0
        self.pool_tasks = 0
        """The number of finished tasks of jobs that name no query."""
        self.living: dict[str, Run] = {}
        """By the name of the query in the plan."""
        self.newest: dict[str, Run] = {}
        """The newest run of each query id."""
        self.keys: dict[str, str] = {}
        """By run id: the name of the query in the plan."""
        self.bare_until = 0.0
        """Until when there is no executor."""
        self.ended_runs: list[Run] = []
        """Runs that ended since the last poll of the probe."""
        self._program_has_ended = False
        self._bus = bus
        self._restart = restart

    def later(self, run: Run, seconds: float, action: Callable[[], None]) -> None:
        """Run an action in ``seconds`` if the run still exists; a paused JVM delays it."""

        def due() -> None:
            is_over = self._program_has_ended or self.context is not Context.RUNNING
            if run.ended or not self.alive or is_over:
                return
            if self._is_paused:
                # The rest of the delay at the begin of the pause remains at its end.
                resume(self.time.now - self.paused_from)
            else:
                action()

        def resume(rest: float) -> None:
            if self._is_paused:
                # Another pause began within this one: both end at the later end.
                self.time.at(self.paused_until, lambda: resume(rest))
            else:
                self.time.after(rest, due)

        self.time.after(seconds, due)

    @property
    def _is_paused(self) -> bool:
        return self.paused_until - self.time.now > ROUNDING_SECONDS

    def start(self, query: SimQuery) -> None:
        """Start a run; like Spark, stop the running one of the same checkpoint."""
        if not self.alive or self.context is not Context.RUNNING:
            return
        active = {run.query_id: run for run in self.living.values()}
        replaced = active.get(query.checkpoint.query_id)
        if replaced is not None and replaced.query is not query:
            # Only the start event shows it.
            keys = query.key, replaced.spec.key
            if not all(map(self._bus.is_timely, keys)):
                return
        old = self.living.get(query.key)
        if old is not None:
            old.stop(Health.HEALTHY)
        if replaced is not None and not replaced.ended:
            replaced.is_taken()
        query.started_at = self.time.now
        if query.truth.health is not Health.DEAD:
            # It has restarted; a failure lasts until the query shows life.
            query.truth.becomes(Health.STARTING, self.time.now)
        run = self.living[query.key] = Run(query, self)
        self.newest[run.query_id] = run
        self.keys[run.run_id] = query.key
        run.replaced = replaced.run_id if replaced is not None else ""
        run.begin()

    def ended(self, run: Run, health: Health) -> None:
        """Handle the end of a run: post the event and update the truth."""
        del self.living[run.spec.key]
        self.ended_runs.append(run)
        run.is_end_lost = run.has_lost_session or self._bus.drops_now(run.spec.key)
        text = {"id": run.query_id, "runId": run.run_id, "exception": run.exception}
        if not run.has_lost_session:
            self._bus.post(run.spec.key, EventKind.TERMINATED, _encode(text).decode())
        dead = run.query.truth.health in (Health.DEAD, Health.GONE)
        if health.is_bad or run.spec.is_finite or not dead:
            # A stop before the first sign of life does not resolve an earlier failure.
            run.query.truth.becomes(health, self.time.now)
        self._restart_if_wanted(run.query, health)

    def pause(self, seconds: float, *, watched: bool) -> None:
        """Pause the JVM; time in which the monitor is paused too does not count."""
        if not self._is_paused:
            self.paused_from = self.time.now
        self.paused_until = max(self.paused_until, self.time.now + seconds)
        if watched and seconds >= NOTABLE_SECONDS:
            for run in self.living.values():
                if run.query.truth.health in LIVES:
                    run.query.truth.becomes(Health.STUCK, self.time.now)
                    self.time.at(self.paused_until, partial(self._resume, run))

    def _resume(self, run: Run) -> None:
        """Once the JVM runs again, who waits for the next trigger, or for executors, is not stuck."""
        if self._is_paused:
            self.time.at(self.paused_until, partial(self._resume, run))
            return
        # A continuous query is always busy.
        waits = not run.busy or run.spec.is_continuous or self.time.now < self.bare_until
        if waits and not run.ended and run.query.truth.health is Health.STUCK:
            run.query.truth.becomes(Health.MOVING, self.time.now)

    def die(self, health: Health) -> None:
        self.alive = False
        self._all_become(health)

    def terminate(self) -> None:
        """Stop the SparkContext by the shutdown hooks of a JVM that got a signal; then it ends."""
        self.context_ends(Context.TERMINATED, Health.DOWN)
        self.exits_at = self.time.now + HOOKS_SECONDS

    def context_ends(self, context: Context, health: Health) -> None:
        """Stop the SparkContext: busy runs fail, idle runs do not notice."""
        self.context = context
        for run in list(self.living.values()):
            if run.busy:
                run.die_of_context(health)
        self._all_become(health)

    def session_ends(self) -> None:
        """Let the server end the session without the client's wish: no event reports its queries."""
        self.context = Context.SESSION_ENDED
        for run in list(self.living.values()):
            self._bus.lose(run.spec.key)
            run.fail_with_session()

    def program_ends(self) -> None:
        """Note that the queries that never end by themselves are about to end with the program."""
        if self.context is not Context.RUNNING:
            return
        self._program_has_ended = True
        for run in self.living.values():
            health = run.query.truth.health
            if not run.spec.is_finite and not run.announced and health is not Health.DEAD:
                run.query.truth.becomes(Health.GONE, self.time.now)

    def reports(self, who: str) -> bool:
        """Whether the event that was just posted arrives at once."""
        now = self.time.now
        return self._bus.listens_since <= now and self._bus.lost_until.get(who, 0.0) < now

    def post_started(self, run: Run) -> None:
        text = _encode(self._started(run)).decode()
        self._bus.post(run.spec.key, EventKind.STARTED, text, *_described(run))

    def _started(self, run: Run) -> dict[str, object]:
        text = {"id": run.query_id, "runId": run.run_id, "name": run.spec.name}
        stamp = datetime.fromtimestamp(WALL + run.started_at, timezone.utc)
        return text | ({"timestamp": stamp.isoformat()} if self.dated else {})

    def post_progress(self, run: Run, seconds: float) -> None:
        run.query.is_fed(self.time.now, first_of_run=run.batches == 1)
        self._bus.post(run.spec.key, EventKind.PROGRESS, _progress(run, seconds))

    def post_idle(self, run: Run) -> None:
        stamp = f"{self.time.now:.3f}"
        text = {"id": run.query_id, "runId": run.run_id, "timestamp": stamp}
        self._bus.post(run.spec.key, EventKind.IDLE, _encode(text).decode())

    def post_late(self, query: SimQuery, runs_ago: int, kind: str = "idle") -> None:
        """Post an event of an earlier run now, which has not arrived before."""
        runs = [run for run in query.runs if run.started_at >= self._bus.listens_since]
        if len(runs) <= runs_ago:
            return
        run, stamp = runs[-1 - runs_ago], f"late {self.time.now:.3f}"
        text: dict[str, object] = {"id": run.query_id, "runId": run.run_id}
        if kind == "started":
            self._bus.post(
                query.key,
                EventKind.STARTED,
                _encode(self._started(run) | {"late": stamp}).decode(),
                *_described(run),
            )
        elif kind == "progress" and run.ended and run.committed >= 0:
            late = _encode({"late": stamp}).decode()[1:]
            self._bus.post(query.key, EventKind.PROGRESS, f"{_progress(run, 1.0)[:-1]},{late}")
        elif kind == "failed" and run.is_end_lost and run.exception is not None:
            text |= {"exception": run.exception, "late": stamp}
            self._bus.post(query.key, EventKind.TERMINATED, _encode(text).decode())
        elif kind == "idle":
            text["timestamp"] = stamp
            self._bus.post(query.key, EventKind.IDLE, _encode(text).decode())

    def _all_become(self, health: Health) -> None:
        for run in self.living.values():
            truth = run.query.truth
            if truth.health not in (Health.DEAD, Health.GONE, Health.STOPPED):
                truth.becomes(health, self.time.now)

    def _restart_if_wanted(self, query: SimQuery, health: Health) -> None:
        spec, now = query.spec, self.time.now
        if not query.wanted or self.context is not Context.RUNNING:
            return
        if health is Health.STOPPED and spec.loop:
            self._restart(query, spec.loop)
        elif health is Health.DEAD and now < query.crash_until:
            self._restart(query, query.crash_pause)
        elif health is Health.DEAD and (spec.recovers or spec.loop):
            self._restart(query, spec.recovers or spec.loop)


def trigger_text(run: Run) -> str:
    spec = run.spec
    if spec.is_finite:
        return "AvailableNowTrigger" if spec.trigger == "AvailableNow" else "OneTimeTrigger"
    return f"{spec.trigger}Trigger({spec.every * 1000:.0f})"


def folder_of(run: Run) -> str:
    return f"/checkpoints/{run.query_id[:8]}"


def _described(run: Run) -> tuple[str, ...]:
    """What the JVM adds to a start event."""
    return run.spec.session, trigger_text(run), folder_of(run), run.replaced


def _progress(run: Run, seconds: float) -> str:
    millis = int(seconds * 1000)
    progress = {
        "id": run.query_id,
        "runId": run.run_id,
        "name": run.spec.name,
        "batchId": run.committed,
        "batchDuration": millis,
        "numInputRows": 10,
        "sources": [run.query.source.progress],
        "durationMs": {"addBatch": millis, "triggerExecution": millis},
    }
    return _encode({"progress": progress}).decode()


def names_of(queries: Iterable[SimQuery]) -> dict[str, str]:
    """Query id -> name of the query in the plan, for all ids ever used."""
    return {query_id: query.key for query in queries for query_id in query.query_ids}
