"""One run of a query in the simulated Spark: triggers, batches, and how it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from querypulse.alerting.rules.stuck_batch import AUTOSCALE_SECONDS
from querypulse.listener.commit_log import COMMITS, OFFSETS
from querypulse.listener.failure import SESSION_ENDED

from .plan import CAUSES, QuerySpec
from .queries import Failed, SimQuery, identity
from .truth import LIVES, Health

if TYPE_CHECKING:
    from .spark import SimSpark

IDLE_SECONDS = 10.0
"""Spark's ``noDataProgressEventInterval``."""
NOTABLE_SECONDS = 30.0
"""A shorter problem need not be reported."""
BATCHES_AVAILABLE = 3
POLL_SECONDS = 1.0
"""How often a query without an interval polls its source (Spark: 10 ms, too slow to simulate)."""


class Run:
    """A stream execution; the probe may read its public attributes."""

    def __init__(self, query: SimQuery, spark: SimSpark) -> None:
        self.query = query
        self.run_id = identity(spark.rng)
        self.query_id = query.checkpoint.query_id
        self.started_at = spark.time.now
        self.ended = False
        self.ended_at = float("inf")
        self.exception: str | None = None
        self.is_end_lost = False
        """Whether the event of its end was lost."""
        self.replaced = ""
        """The run of its checkpoint that Spark stopped to start it."""
        self.announced = False
        """Whether ``expect_stop`` was called for it."""
        self.message = "Initializing sources"
        self.busy = False
        self.data = False
        self.committed = -1
        self.batches = 0
        self.jobs = 0
        self.tasks = 0
        self.cpu_seconds = 0.0
        self.busy_since = spark.time.now
        self.has_lost_session = False
        """Whether its Spark Connect session ended with it."""
        self.is_cut_off = False
        """Whether its SparkContext stopped during a batch of it."""
        self._spark = spark
        self._idle_at: float | None = None
        query.runs.append(self)

    @property
    def spec(self) -> QuerySpec:
        return self.query.spec

    @property
    def batch_id(self) -> int:
        """The batch in flight, or the next one."""
        return self.query.checkpoint.batch

    @property
    def planned(self) -> int:
        """The newest batch in its log of offsets."""
        if self.spec.log_every:
            return self.logged
        return self.batch_id - (not self._processes)

    @property
    def logged(self) -> int:
        return self.query.checkpoint.logged

    def begin(self) -> None:
        """Post the start event; the first trigger follows."""
        # Batches that were not logged run again.
        self.query.checkpoint.batch = self.logged + 1
        self.query.source.begin()
        self._spark.post_started(self)
        if self.query.fails_at_once:
            self.query.fails_at_once = False
            self._spark.later(self, 0.005, self._fail_before_any_batch)
        else:
            self._spark.later(self, 0.2, self.trigger)

    def trigger(self) -> None:
        """Poll the source; plan a batch if there is something to read."""
        query, now = self.query, self._spark.time.now
        self._set(busy=True)
        if now < query.crash_until:
            self.fail("Files were added by a concurrent update")
        elif now < query.ask_until:
            self.message = "Getting offsets from KafkaV2[Subscribe[t]]"
            self._suffer(query.ask_until - now, Health.STUCK)
            self._spark.later(self, query.ask_until - now, self.trigger)
        elif now < query.dry_until and not query.source.has_more and not self._is_unfinished:
            if self.spec.is_finite:
                # Nothing to read: a finite run ends without any progress.
                self.stop(Health.STOPPED)
            else:
                self._rest()
        elif self.spec.is_continuous:
            self._epoch()
        else:
            self._plan()

    def trouble(self) -> None:
        if not self.ended and self.busy and self._processes:
            now, query = self._spark.time.now, self.query
            self._suffer(query.hang_until - now, Health.STUCK)
            self._suffer(max(query.skew_until - now, self._starves()), Health.DELAYED)
            self._suffer(
                max(query.crawl_until, query.fan_until, query.compute_until) - now, Health.SLOW
            )
            if now < query.hang_until < max(query.skew_until, query.starve_until):
                self._spark.later(self, query.hang_until - now + 0.1, self._goes_on)

    def _starves(self) -> float:
        """How long it waits for slots, or for executors beyond the time of an autoscaler."""
        starves_until, bare_until = self.query.starve_until, self._spark.bare_until
        allowed = AUTOSCALE_SECONDS if bare_until >= starves_until else 0.0
        return starves_until - self._spark.time.now - allowed

    def _goes_on(self) -> None:
        """A batch that hung is only delayed from now on."""
        now, query = self._spark.time.now, self.query
        delayed = query.hang_until <= now < max(query.skew_until, query.starve_until)
        if delayed and query.truth.health is Health.STUCK:
            query.truth.becomes(Health.DELAYED, now)

    def _fail_before_any_batch(self) -> None:
        self.fail("Cannot find the checkpoint", in_batch=False)

    def fail(self, text: str, cause: str = CAUSES[0], *, in_batch: bool = True) -> None:
        """End the run with an exception of the class ``cause``, in its batch or before any."""
        batch = self.batch_id if in_batch else None
        self._end(f"{cause}: {text}\n\tat org.apache.spark.X.y(X.scala:1)", Health.DEAD)
        reported = self._spark.reports(self.spec.key)
        self.query.failures.append(Failed(self._spark.time.now, batch, reported, cause))

    def fail_with_session(self) -> None:
        """End the run with its Spark Connect session, without an event."""
        self.has_lost_session = True
        batch = self.batch_id
        self._end("the Spark Connect server has ended the session (it expired)", Health.DEAD)
        failed = Failed(self._spark.time.now, batch, known=False, cause=SESSION_ENDED)
        self.query.failures.append(failed)

    def die_of_context(self, health: Health) -> None:
        """End the run like a busy one whose SparkContext stops."""
        self.is_cut_off = True
        self._end(
            "org.apache.spark.SparkException: Job 1 cancelled because SparkContext was shut down",
            health,
        )

    def stop(self, health: Health) -> None:
        self._end(None, health)

    def is_taken(self) -> None:
        """End the run: another query is started on its checkpoint."""
        self.query.wanted = False
        self.query.taken_at = self._spark.time.now
        self.stop(Health.STOPPED if self.spec.is_finite or self.announced else Health.GONE)

    def _plan(self) -> None:
        truth = self.query.truth
        if truth.health in (Health.STUCK, Health.SLOW) and not self._log_stuck():
            # The source has answered, which is progress; a later problem is another one.
            truth.becomes(Health.MOVING, self._spark.time.now)
        self.message, self.data = "Processing new data", True
        checkpoint = self.query.checkpoint
        if checkpoint.planned < checkpoint.batch:
            checkpoint.write(OFFSETS, checkpoint.batch, self._spark.time.now)
        self.jobs += 1
        self.trouble()
        takes = self.query.takes(self._spark.time.now)
        self._spark.later(self, takes, self._finish)

    def _finish(self) -> None:
        """Commit the batch, unless a problem delays it."""
        query, now = self.query, self._spark.time.now
        if now < query.hang_until:
            self._spark.later(self, query.hang_until - now + 0.5, self._finish)
        elif now < max(query.skew_until, query.starve_until):
            rest = max(query.skew_until, query.starve_until) - now
            self._spark.later(self, rest + 0.5, self._finish)
        elif now < max(query.crawl_until, query.fan_until, query.compute_until):
            self._moves()
            if query.truth.health in (Health.STUCK, Health.DELAYED):
                # It progresses again: from now on it is only slow.
                query.truth.becomes(Health.SLOW, now, first_batch=self.batches == 0)
            rest = max(query.crawl_until, query.fan_until, query.compute_until) - now + 0.5
            self._spark.later(self, min(5.0, rest), self._finish)
        elif now < query.bad_until:
            self.fail("negative amount")
        elif now < query.bad_runs_until and now - self.started_at >= query.bad_runs_last:
            self.fail("out of memory")
        else:
            self._commit()

    @property
    def _processes(self) -> bool:
        """Whether a batch runs jobs: planning one does not."""
        return self.message == "Processing new data"

    @property
    def fans_out(self) -> bool:
        """Whether the jobs of its batch name no query."""
        return self._held_up_until <= self._spark.time.now < self.query.fan_until

    @property
    def computes(self) -> bool:
        """Whether the thread of its batch works, and no job of it is active."""
        return self._held_up_until <= self._spark.time.now < self.query.compute_until

    @property
    def _held_up_until(self) -> float:
        """Until when no job of it can be active; for ever while it runs none."""
        query = self.query
        until = max(query.hang_until, query.skew_until, query.starve_until)
        return until if self._processes else float("inf")

    @property
    def waits_for_slots(self) -> bool:
        now = self._spark.time.now
        return self._processes and self.query.hang_until <= now < self.query.starve_until

    @property
    def tasks_active(self) -> int:
        query, now = self.query, self._spark.time.now
        held_up = now < max(query.hang_until, query.starve_until)
        if held_up or self.fans_out or self.computes or not self._processes:
            return 0
        return int(now < max(query.skew_until, query.crawl_until))

    def _moves(self) -> None:
        if self.computes:
            self.cpu_seconds += 0.5
        elif self.fans_out:
            self._spark.pool_tasks += 1
        else:
            self.tasks += 1

    def _commit(self) -> None:
        self.committed, self.batches = self.query.checkpoint.batch, self.batches + 1
        self.query.checkpoint.batch += 1
        self.tasks += 4
        self.query.source.read()
        self._spark.post_progress(self, self._spark.time.now - self.busy_since)
        self._set(busy=False)
        self.message = "Waiting for next trigger"
        self._write_log()
        if self.spec.is_finite and self._is_done():
            self._spark.later(self, 0.02, lambda: self.stop(Health.STOPPED))
        else:
            # Batches of a finite trigger follow each other at once.
            every = 0.0 if self.spec.is_finite else self.spec.every
            rest = self.busy_since + every - self._spark.time.now
            self._spark.later(self, max(0.05, rest), self.trigger)

    def _write_log(self) -> None:
        """Write the log, with async progress tracking at intervals; a stuck log shows no life."""
        now, checkpoint = self._spark.time.now, self.query.checkpoint
        stuck = self._log_stuck()
        if not stuck and now - checkpoint.logged_at >= self.spec.log_every:
            checkpoint.write(COMMITS, self.committed, now)
            self.query.source.written()
        if not stuck or self.query.truth.health is not Health.STUCK:
            # The batch is done, even if its log is stuck.
            self._shows_life()
        if stuck:
            self._suffer(self.query.log_until - now, Health.STUCK)

    def _log_stuck(self) -> bool:
        return bool(self.spec.log_every) and self._spark.time.now < self.query.log_until

    def _is_done(self) -> bool:
        return self.batches >= (1 if self.spec.trigger == "Once" else BATCHES_AVAILABLE)

    def _epoch(self) -> None:
        """Run a Continuous epoch: no batch and no event; only the commit log advances."""
        now, query = self._spark.time.now, self.query
        self.message = "Running"
        self._suffer(query.hang_until - now, Health.STUCK)
        if now >= query.hang_until:
            self.committed = query.checkpoint.batch
            query.checkpoint.write(COMMITS, self.committed, now)
            query.checkpoint.batch += 1
            self._shows_life()
        self._spark.later(self, max(1.0, self.spec.every), self.trigger)

    @property
    def _is_unfinished(self) -> bool:
        """Whether its batch was planned before: Spark runs it again in any case."""
        checkpoint = self.query.checkpoint
        return not self.spec.needs_log and checkpoint.planned >= checkpoint.batch

    def _rest(self) -> None:
        """Idle; post an idle event at most every ten seconds, and none for the first time."""
        now = self._spark.time.now
        self._set(busy=False)
        self.message, self.data = "Waiting for data to arrive", False
        self._shows_life()
        if self._idle_at is None or now - self._idle_at >= IDLE_SECONDS:
            if self._idle_at is not None or self.batches:
                self._spark.post_idle(self)
            self._idle_at = now
        self._spark.later(self, max(POLL_SECONDS, self.spec.every), self.trigger)

    def _set(self, *, busy: bool) -> None:
        if busy and not self.busy:
            self.busy_since = self._spark.time.now
        self.busy = busy

    def _suffer(self, seconds: float, health: Health) -> None:
        truth = self.query.truth
        lesser = {Health.STUCK: LIVES | {Health.DELAYED}, Health.SLOW: LIVES - {Health.SLOW}}
        if seconds >= NOTABLE_SECONDS and truth.health in lesser.get(health, LIVES):
            first = self.batches == 0
            truth.becomes(health, self._spark.time.now, first_batch=first)

    def _shows_life(self) -> None:
        self.query.truth.becomes(self.query.source.health, self._spark.time.now)

    def _end(self, exception: str | None, health: Health) -> None:
        if self.ended:
            return
        self.ended, self.exception = True, exception
        self.ended_at = self._spark.time.now
        self.busy = False
        self._spark.ended(self, health)
