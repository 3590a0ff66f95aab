"""A driver process, its spool and its deliveries: the real worker, rules, lifecycle and outboxes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from threading import Event
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Protocol, cast

from querypulse.alerting.alert import Alert, Incident
from querypulse.alerting.delivery.deliveries import Attempt, Delivery, Notifier
from querypulse.alerting.delivery.outbox import OutboxRow
from querypulse.alerting.delivery.spool import Kept, Spool
from querypulse.alerting.facts import Facts, Unnamed
from querypulse.alerting.incidents.lifecycle import Evaluated, Lifecycle, LifecycleSettings, Opened
from querypulse.alerting.kinds import DRIVER_DOWN
from querypulse.alerting.receivers.receiver import DeliveryError
from querypulse.alerting.words.messages import Guidance
from querypulse.core.guard import Guard
from querypulse.core.states import DeliveryOutcome
from querypulse.core.threads import Deadline
from querypulse.exporter.pages import Notice
from querypulse.listener.event_reader import EventReader
from querypulse.listener.mailbox import Ending, Item, Mailbox, Marker, ProgramEnd
from querypulse.listener.past_failures import FailedQuery
from querypulse.listener.probe_report import Context
from querypulse.listener.state.identity import UNNAMED
from querypulse.settings.settings import QuerySettings, Settings
from querypulse.sidecar.assemble import make_policy
from querypulse.sidecar.runtime import Runtime, end_of, end_of_program
from querypulse.sidecar.worker import Inputs, Worker

from .clock import Time
from .plan import QuerySpec, Setup
from .probe import SimProbe
from .queries import POLL_SECONDS, SimQuery
from .receivers import Named, SimReceiver
from .recordings import RecordingFolder
from .signals import SimBus
from .spark import SimSpark, names_of
from .truth import Health

if TYPE_CHECKING:
    from .world import World

# -- courier -------------------------------------------------------------------------------------


class Killed(BaseException):
    """The process is killed at this moment; nothing in it handles that."""


class Sender(Protocol):
    """The process of a courier."""

    name: str
    time: Time
    alive: bool

    def about(self, alert: Alert) -> Named: ...
    def between(self) -> None: ...
    def kill(self) -> None: ...


class Courier(Delivery):
    """The product's delivery, with its step split in two: the request and the answer."""

    def __init__(
        self,
        receiver: SimReceiver,
        sender: Sender,
        guard: Guard,
        spool: SimSpool | None = None,
        on_attempt: Callable[[Attempt], object] = lambda _: None,
    ) -> None:
        # It asks the receiver for its name and capabilities only: it sends by itself.
        super().__init__(
            cast("Any", receiver),
            guard,
            spool=spool,
            on_attempt=on_attempt,
            clock=sender.time,
            wall=sender.time.wall,
        )
        self.receiver = receiver
        self._sender = sender
        self._time = sender.time

    @property
    def rows(self) -> tuple[OutboxRow, ...]:
        return self._outbox.rows

    def pump(self) -> None:
        """Send what is due; the next request follows the answer to this one."""
        now, wall = self._time.now, self._time.wall()
        if self._outbox.is_sending or not self._sender.alive:
            return
        next_at = self._outbox.next_at(now, wall)
        if next_at is None or next_at > now:
            return
        incident = self._outbox.begin(now, wall)
        if incident is None:
            return
        with self._changed:
            self._save()
        if self._spool is not None and not incident.is_over:
            self._spool.write_ahead()
        self._sender.between()
        rejected = self.receiver.reject(incident, self._sender.about)
        refusal, takes = rejected or self.receiver.refusal(), self.receiver.takes and not rejected
        latency = self.receiver.latency
        if takes:
            doubted = refusal is not None
            self._time.after(latency / 2, lambda: self._arrive(incident, doubted=doubted))
        self._time.after(latency, lambda: self._answered(incident, refusal))
        self._sender.between()

    def _arrive(self, incident: Incident, *, doubted: bool) -> None:
        # A request on its way arrives even if its sender is killed meanwhile.
        sender, doubted = self._sender, doubted or not self._sender.alive
        self.receiver.accept(incident, sender.name, sender.about, doubted=doubted)

    def _answered(self, incident: Incident, refusal: DeliveryError | None) -> None:
        if not self._sender.alive:
            return
        try:
            self._sender.between()
            answer = DeliveryOutcome.DELIVERED if refusal is None else refusal.answer
            self.outcomes[answer.value] += 1
            error = "" if refusal is None else str(refusal)
            attempt = Attempt(self._time.wall(), self.name, incident, answer.value, error)
            self._on_attempt(attempt)
            self._record(incident, refusal)
            self._sender.between()
            self.pump()
        except Killed:
            self._sender.kill()


# -- spool ---------------------------------------------------------------------------------------


WRITE_SECONDS = 0.05
"""The delay of a write to disk: what was offered since then is lost with the process."""
IN_MEMORY = Path("/dev/shm")


class Disk:
    """The disk of one driver, which outlives its processes."""

    def __init__(self) -> None:
        memory = str(IN_MEMORY) if IN_MEMORY.is_dir() else None
        self._folder = TemporaryDirectory(prefix="querypulse-", dir=memory)

    def spool(self, app: str, guard: Guard, time: Time) -> SimSpool:
        return SimSpool(Path(self._folder.name), app, guard, time)

    def remove(self) -> None:
        self._folder.cleanup()


class SimSpool(Spool):
    """The spool of one process. It writes ``WRITE_SECONDS`` after an offer, and at a flush."""

    def __init__(self, folder: Path, app: str, guard: Guard, time: Time) -> None:
        super().__init__(folder, app, guard, wall=time.wall)
        nothing = SimpleNamespace(is_forked=False, stopping=Event(), start=lambda: None)
        self._loop = cast("Any", nothing)
        self._time = time
        self._is_planned = False
        self._is_dead = False

    def load(self, timeout: float = 0.0) -> Kept | None:
        """What an earlier process left; None where there was no spool."""
        if not self._is_open:
            self._step()
        return super().load(timeout)

    def offer_rows(self, receiver: str, rows: tuple[OutboxRow, ...]) -> None:
        super().offer_rows(receiver, rows)
        self._plan()

    def offer_history(self, failures: tuple[FailedQuery, ...], opened: tuple[Opened, ...]) -> None:
        super().offer_history(failures, opened)
        self._plan()

    def flush(self, _: float = 0.0) -> bool:
        self._write()
        return True

    def kill(self) -> None:
        """End the process: nothing more is written."""
        self._is_dead = True
        self._file.close()

    def _plan(self) -> None:
        if self._written != self._offered and not self._is_planned:
            self._is_planned = True
            self._time.after(WRITE_SECONDS, self._write)

    def _write(self) -> None:
        self._is_planned = False
        if self._written != self._offered and not self._is_dead:
            self._step()


# -- driver --------------------------------------------------------------------------------------


WHOLE_DRIVER = "*"


class SimGuard(Guard):
    """Records the errors that processes contain, so that it hides no error of the product."""

    def __init__(self) -> None:
        super().__init__()
        self.contained: list[tuple[str, Exception]] = []

    def report(self, where: str, error: Exception) -> None:
        self.contained.append((where, error))


class Handing(Notifier):
    """The hand-over of incidents: the process may be killed before it, and after it.

    ``newest`` are the incidents of the last one, and ``open`` those of them that had not ended.
    """

    newest: tuple[Incident, ...] = ()
    open: tuple[Incident, ...] = ()
    between: Callable[[], None]

    def offer(self, incidents: tuple[Incident, ...]) -> None:
        self.between()
        self.newest = incidents
        self.open = tuple(incident for incident in incidents if not incident.is_over)
        super().offer(incidents)
        self.between()


def _who_waits(found: Facts) -> tuple[str, ...]:
    """The labels of those that wait for slots; a finding of unnamed queries has several."""
    members = found.others if isinstance(found, Unnamed) else ()
    return sum((member.facts.waiting for member in members), found.waiting)


def _settings(setup: Setup, named: Sequence[QuerySpec]) -> Settings:
    """The settings of a driver with these named queries."""
    expects = {str(spec.name): spec.expected_input for spec in named if spec.expected_input}
    return Settings(
        expected_queries=tuple(str(spec.name) for spec in named if spec.expected),
        queries={
            name: QuerySettings(expected_input_seconds=seconds) for name, seconds in expects.items()
        },
        slow_critical_seconds=setup.slow_critical,
        failed_grace_seconds=setup.failed_grace,
        probe_interval_seconds=POLL_SECONDS,
    )


class SimDriver:
    """A process from its start to its end; objects that outlive it are passed to it."""

    def __init__(
        self,
        world: World,
        name: str,
        rng: Random,
        queries: list[SimQuery],
        *,
        disk: Disk | None,
        recordings: RecordingFolder,
    ) -> None:
        time, setup, before = world.time, world.plan.setup, world.drivers.get(name)
        self.name = name
        self.app = f"{setup.app}-{name}" if setup.apart else setup.app
        self.dies_after = 0
        """At which of the next moments between two of its steps it is killed; 0 for none."""
        self.queries = queries
        self.born_at = time.now
        self.inherits = disk is not None
        self.alive = True
        self.attached = False
        self.attached_at = float("inf")
        self.announced: Notice | None = None
        self.end: Notice | None = None
        self.closed_at: float | None = None
        self.program: ProgramEnd | None = None
        """How its main program has ended, if nobody had announced that."""
        self._closes = False
        self.asleep_since = float("inf")
        """When its last pause began."""
        self.awake_since = time.now
        self.asleep_until = 0.0
        self._waiting: dict[tuple[str, str], tuple[str, ...]] = {}
        """By name and label of an alert: the queries that wait for slots, which it lists."""
        self.owners: dict[str, str] = {}
        """Label -> the query that was first shown under it."""
        self.guard = world.guard
        self._spool = spool = disk.spool(self.app, self.guard, time) if disk is not None else None
        self.time = time
        self.bus = SimBus(time, world.faults, self.step)
        self.spark = SimSpark(time, rng, self.bus, self._start_later, dated=setup.dated)
        self.probe = SimProbe(self, world.faults, setup.polls)
        self.inbox: Mailbox[Item] = Mailbox(setup.mailbox)
        self._world = world
        self.lifecycle = Lifecycle(
            self.app, Guidance("https://runbooks.example/{alertname}.md"), LifecycleSettings()
        )
        named = [query for query in queries if query.spec.name]
        settings = _settings(setup, [query.spec for query in named])
        self.black_box = black_box = recordings.open(settings, self.app, self.guard, time)
        self.couriers = [
            Courier(receiver, self, self.guard, spool, black_box.attempted)
            for receiver in world.receivers
        ]
        self.handing = Handing(self.couriers, spool, wall=time.wall, restore=self._restore)
        self.handing.between = self.between
        failure_history = self.handing.failure_history
        self.restored = failure_history.left is not None
        self.reader = EventReader(
            self.bus, self.inbox, self.guard,
            context=lambda: self.spark.context if self.spark.alive else Context.JVM_GONE,
            poke=self.probe.poll, on_event=black_box.ring.add, pause=lambda _: None,
        )  # fmt: skip
        self._called = {str(query.spec.name): query.key for query in reversed(named)}
        if before is not None:
            # Until it has seen its queries, it repeats what the process before has reported.
            self._called |= before._called | before.owners
        self.worker = Worker(
            Inputs(
                inbox=self.inbox,
                report=lambda: self.probe.latest,
                log=lambda: self.probe.log,
                sources=lambda: self.probe.sources,
                silences=lambda: world.silences.given,
            ),
            make_policy(settings, probe_expected=True),
            self.lifecycle,
            self.handing,
            failure_history=failure_history,
            redact=lambda evaluation: evaluation,
            on_error=self.guard.report,
            on_evaluated=self._evaluated,
            clock=time,
            wall=time.wall,
        )
        time.after(setup.attach_at if before is None else 0.0, self._attach)

    def _restore(self, incidents: tuple[Incident, ...]) -> None:
        self.lifecycle.restore(incidents, self.time.now)
        self.black_box.inherit(incidents)

    @property
    def awake(self) -> bool:
        return self.alive and self.time.now >= self.asleep_until

    def step(self) -> None:
        """Run the threads of the product, one after the other."""
        if not self.attached or not self.awake:
            return
        try:
            self._step()
        except Killed:
            self.kill()

    def _step(self) -> None:
        if self.spark.alive:
            self.guard.attempt("reader", self.reader.step)
        self.inbox.wake()
        self.between()
        self.guard.attempt("worker", self.worker.step)
        for courier in self.couriers:
            courier.pump()

    def between(self) -> None:
        """A moment between two steps: perhaps the one at which the process is killed."""
        if self.dies_after:
            self.dies_after -= 1
            if not self.dies_after:
                self.black_box.kill()
                raise Killed

    def about(self, alert: Alert) -> Named:
        """The queries of an alert; for an alert of the whole driver, the queries that it names."""
        label, name = alert.labels["query"], alert.name
        if label == UNNAMED:
            # The unnamed queries that it lists, or the only one.
            listed = alert.annotations.get("queries", alert.annotations["reason"]).splitlines()
            keys = {self._owner_of_unnamed(line.partition(": ")[0]) for line in listed}
            waiting = {self._key_of(waits) for waits in self._waiting.get((name, label), ())}
            return frozenset((key, name) for key in keys | waiting if key)
        if label != WHOLE_DRIVER:
            labels = (label, *self._waiting.get((name, label), ()))
            return frozenset((self._key_of(label), name) for label in labels)
        if name == DRIVER_DOWN:
            named = [query.key for query in self.queries]
        else:
            lines = alert.annotations.get("queries", "").splitlines()
            named = [self.owners.get(line.partition(": ")[0], "") for line in lines]
        return frozenset({(WHOLE_DRIVER, name), *((key, name) for key in named if key)})

    def _key_of(self, label: str) -> str:
        return self.owners.get(label) or self._called.get(label, label)

    def _owner_of_unnamed(self, label: str) -> str:
        """The query with this label, which begins its id, even before this process has seen it."""
        names = names_of(self.queries)
        of_id = (key for query_id, key in names.items() if label and query_id.startswith(label))
        return self.owners.get(label) or next(of_id, "")

    def pause(self, seconds: float) -> None:
        self.spark.pause(seconds, watched=False)
        self.asleep_until = max(self.asleep_until, self.time.now + seconds)
        for query in self.queries:
            query.truth.unseen_until(self.time.now, self.asleep_until)
        if self.time.now >= self.awake_since:
            self.asleep_since = self.time.now
        self.awake_since = self.asleep_until

    def kill(self, health: Health = Health.DOWN) -> None:
        """End the process; nothing runs any more."""
        self.alive = self.attached = False
        self.release()
        self.spark.die(health)

    def release(self) -> None:
        self.black_box.kill()
        if self._spool is not None:
            self._spool.kill()

    def close(
        self, uncaught: type[BaseException] | None = None, program: ProgramEnd | None = None
    ) -> None:
        """End the application, perhaps by an exception: like ``Runtime.end`` without threads.

        ``program``: how the main program ended, if that was not announced.
        """
        if self.alive and not self.awake:
            # A paused process ends once it resumes.
            self.time.at(self.asleep_until, lambda: self.close(uncaught, program))
            return
        if not self.attached:
            self.closed_at = self.time.now
            self.kill(Health.STOPPED)
        elif not self._closes:
            self._closes = True
            self.probe.poll()
            # It waits for a poll that begins now; the one under way, if any, is older.
            waits = 2 * self.probe.seconds
            if waits:
                self.time.after(waits + 0.1, lambda: self._end(uncaught, program))
            else:
                self._end(uncaught, program)

    def _end(self, uncaught: type[BaseException] | None, program: ProgramEnd | None) -> None:
        """Report what waits, and end."""
        self.closed_at = self.time.now
        if not self.attached or not self.awake:
            return
        self.step()
        if not self.alive:
            return
        self.end = end = end_of(self.worker.evaluated.snapshot.context, uncaught)
        self.program = program
        if program is not None:
            self.spark.program_ends()
        for item in (Ending(end is None, program), Marker(), Marker()):
            self.inbox.put(item, lifecycle=True)
            self.step()
        if not self.alive:
            return
        self.end = end = end_of_program(end, self.worker.evaluated, self.worker.policy)
        if self._spool is not None:
            self._spool.flush()
        Runtime.stop(self._as_parts(), Deadline(1.0), end)
        self.time.after(
            1.0, lambda: self.kill(Health.STOPPED if end is Notice.STOPPED else Health.DOWN)
        )

    def _as_parts(self) -> Runtime:
        """The parts of a ``Runtime`` that its ``stop`` uses."""
        nothing = SimpleNamespace(
            close=lambda *_: None,
            stop=lambda **_: None,
            join=lambda _: None,
        )
        notifier = SimpleNamespace(close=nothing.close, deliveries=self.couriers)
        server = SimpleNamespace(close=self._server_closed)
        published = SimpleNamespace(alerts=self.worker.evaluated.alerts)
        return SimpleNamespace(  # type: ignore[return-value]
            _loops=[], _notifier=notifier, _black_box=self.black_box, _files=nothing, _publishers=[], _server=server, published=published,
        )  # fmt: skip

    def _server_closed(self, _: float, *, notice: Notice | None) -> None:
        self.announced = notice

    def _attach(self) -> None:
        if self.alive:
            self.attached = True
            self.attached_at = self.bus.listens_since = self.time.now
            self._tick()

    def _tick(self) -> None:
        if not self.alive:
            return
        if self.awake and self.end is None:
            self.probe.poll()
            self.step()
        self.time.after(POLL_SECONDS, self._tick)

    def _evaluated(self, evaluated: Evaluated) -> None:
        labels = evaluated.snapshot.labels()
        if not labels.keys() <= self.owners.keys():
            for label, query in labels.items():
                self.owners.setdefault(label, self.spark.keys.get(query.run.run_id, label))
        self._waiting |= {
            (finding.alertname, finding.query): waiting
            for finding in evaluated.evaluation.findings
            if (waiting := _who_waits(finding.facts))
        }
        self.black_box.offer(evaluated)
        self._world.evaluated(self, evaluated)

    def _start_later(self, query: SimQuery, seconds: float) -> None:
        def start() -> None:
            if self.alive and query.wanted and query.key not in self.spark.living:
                if query.spec.checkpoint == "new":
                    query.new_checkpoint()
                self.spark.start(query)

        self.time.after(seconds, start)
