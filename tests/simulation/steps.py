"""The effect of each step of a plan on the simulated world."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING

from querypulse.listener.mailbox import ExpectStop, ProgramEnd
from querypulse.listener.probe_report import Context
from querypulse.listener.state.state import has_name

from .plan import CAUSES, Step
from .queries import SimQuery
from .run import Run
from .truth import Health

if TYPE_CHECKING:
    from .driver import SimDriver
    from .world import World


def take(world: World, step: Step) -> None:
    """Apply one step; ignore it if it is impossible now."""
    if step.do in _OF_QUERY:
        query = world.queries.get(step.who)
        driver = world.drivers.get(query.spec.driver) if query is not None else None
        if query is not None and driver is not None and driver.alive:
            _OF_QUERY[step.do](driver, query, step)
    elif step.do in _OF_DRIVER:
        driver = world.drivers.get(step.who or world.plan.setup.drivers[0])
        if driver is not None and driver.alive:
            _OF_DRIVER[step.do](driver, step)
    else:
        _OF_WORLD[step.do](world, step)


def _start(driver: SimDriver, query: SimQuery, _: Step) -> None:
    if not query.wanted:
        query.wanted = True
        driver.spark.start(query)


def _restart(driver: SimDriver, query: SimQuery, step: Step) -> None:
    if step.arg == "new":
        run = _run(driver, query)
        if run is not None:
            run.stop(Health.STOPPED)
        query.new_checkpoint()
    query.wanted = True
    driver.spark.start(query)


def _run(driver: SimDriver, query: SimQuery) -> Run | None:
    """Its running run; None if the JVM is paused or the SparkContext has ended."""
    spark = driver.spark
    if not spark.alive or spark.context is not Context.RUNNING:
        return None
    if spark.time.now < spark.paused_until:
        return None
    return spark.living.get(query.key)


def _die(driver: SimDriver, query: SimQuery, step: Step) -> None:
    run = _run(driver, query)
    if run is not None:
        run.fail("Files were added", step.arg or CAUSES[0])


def _fail_first(_: SimDriver, query: SimQuery, __: Step) -> None:
    query.fails_at_once = True


def _stop(driver: SimDriver, query: SimQuery, _: Step) -> None:
    run = _run(driver, query)
    if run is not None:
        query.wanted = False
        run.stop(Health.STOPPED if run.spec.is_finite or run.announced else Health.GONE)


def _take(driver: SimDriver, query: SimQuery, step: Step) -> None:
    """Start the query on the checkpoint of another one that was seen to run; their events arrive.

    Only the start event shows that Spark stopped the other one.
    """
    other = next((other for other in driver.queries if other.key == step.arg), None)
    run = _run(driver, other) if other is not None else None
    names = {query.spec.name, other.spec.name} if other is not None else set()
    if other is None or run is None or None in names or len(names) < 2:
        return
    is_timely = all(map(driver.bus.is_timely, (query.key, other.key)))
    polled = driver.probe.answered.get(other.key, -inf) >= other.started_at
    was_seen = polled or other.started_at >= driver.attached_at
    if driver.attached and driver.awake and is_timely and was_seen:
        query.take_checkpoint(other)
        query.wanted = True
        driver.spark.start(query)


def _plan_stop(driver: SimDriver, query: SimQuery, _: Step) -> None:
    run = _run(driver, query)
    dead = query.truth.health is Health.DEAD
    if run is None or run.spec.name is None:
        return
    # ``expect_stop`` accepts only a name that the driver has seen.
    seen = any(has_name(query, run.spec.name) for query in driver.worker.evaluated.snapshot.queries)
    if seen and driver.awake and not dead:
        query.wanted = False
        driver.inbox.put(ExpectStop(run.spec.name), lifecycle=True)
        # The application may call both within a millisecond; the worker takes them in order.
        driver.step()
        for namesake in driver.spark.living.values():
            # With two running queries of one name, it is unknown which of them is meant.
            namesake.announced |= namesake.spec.name == run.spec.name
        run.stop(Health.STOPPED)


def _until(condition: str) -> Callable[[SimDriver, SimQuery, Step], None]:
    """Begin a condition of the query, or extend it."""
    name = f"{condition}_until"

    def happen(driver: SimDriver, query: SimQuery, step: Step) -> None:
        setattr(query, name, max(getattr(query, name), driver.time.now + step.seconds))
        run = driver.spark.living.get(query.key)
        if run is not None:
            run.trouble()

    return happen


def _of_source(condition: str) -> Callable[[SimDriver, SimQuery, Step], None]:
    def happen(driver: SimDriver, query: SimQuery, step: Step) -> None:
        setattr(query.source, f"{condition}_until", driver.time.now + step.seconds)

    return happen


def _recreate(_: SimDriver, query: SimQuery, __: Step) -> None:
    if query.spec.polled:
        query.source.recreate()


def _decay(driver: SimDriver, query: SimQuery, step: Step) -> None:
    query.decay = (driver.time.now, step.seconds, float(step.arg))


def _crash_loop(driver: SimDriver, query: SimQuery, step: Step) -> None:
    query.crash_until = driver.time.now + step.seconds
    query.crash_pause = float(step.arg or 1.0)
    _die(driver, query, step)


def _bad_runs(driver: SimDriver, query: SimQuery, step: Step) -> None:
    query.bad_runs_until = driver.time.now + step.seconds
    query.bad_runs_last = float(step.arg)


def _late(driver: SimDriver, query: SimQuery, step: Step) -> None:
    ago, _, kind = step.arg.partition(" ")
    driver.spark.post_late(query, int(ago), kind or "idle")


def _fault(world: World, step: Step) -> None:
    if step.do == "delay":
        world.faults.begin("delay", step.who, float(step.arg or 30.0), step.seconds)
    else:
        world.faults.begin(step.do, step.who or "*", step.seconds)
        for query in world.queries.values():
            unread = step.do == "unreadable" and query.spec.needs_log
            if step.do == "probe_refused" or (unread and step.who in ("", query.key)):
                query.truth.unseen_until(world.time.now, world.time.now + step.seconds)


def _receiver(world: World, step: Step) -> None:
    for receiver in world.receivers:
        receiver.misbehave(step.arg, step.seconds)


def _poison(world: World, _: Step) -> None:
    for receiver in world.receivers:
        receiver.poison_next = True


def _acknowledge(world: World, _: Step) -> None:
    for receiver in world.receivers:
        receiver.acknowledged_at = world.time.now


def _silence(world: World, step: Step) -> None:
    query = world.queries.get(step.who)
    if query is not None or step.who == "*":
        world.silences.add(query.spec if query is not None else None, step.seconds, step.arg)


def _jump(world: World, step: Step) -> None:
    world.time.jump += step.seconds


def _boot(world: World, step: Step) -> None:
    driver = world.drivers.get(step.who or world.plan.setup.drivers[0])
    if driver is not None and not driver.alive:
        world.boot(driver.name)


def _once_the_jvm_resumes(
    happen: Callable[[SimDriver, Step], None],
) -> Callable[[SimDriver, Step], None]:
    """Delay a step: a paused JVM runs no shutdown hook, and stops no SparkContext."""

    def later(driver: SimDriver, step: Step) -> None:
        spark = driver.spark
        if spark.time.now < spark.paused_until:
            spark.time.at(spark.paused_until, lambda: later(driver, step))
        elif driver.alive and spark.alive:
            happen(driver, step)

    return later


def _app_stops(driver: SimDriver, step: Step) -> None:
    if driver.spark.context is not Context.SESSION_ENDED:
        driver.spark.context_ends(Context.STOPPED_BY_APPLICATION, Health.STOPPED)
    driver.time.after(step.seconds, driver.close)


def _no_executors(driver: SimDriver, step: Step) -> None:
    driver.spark.bare_until = driver.time.now + step.seconds
    for query in driver.queries:
        _until("starve")(driver, query, step)


def _kill_within(driver: SimDriver, step: Step) -> None:
    driver.dies_after = int(step.arg)


def _hog(driver: SimDriver, query: SimQuery, step: Step) -> None:
    """Let one long batch of the query hold all slots of its driver, once it has one."""
    run = _run(driver, query)
    if run is None:
        return
    if not run.busy:
        driver.time.after(1.0, lambda: _hog(driver, query, step))
        return
    _until("crawl")(driver, query, step)
    for other in driver.queries:
        if other is not query:
            other.holder = query.key
            _until("starve")(driver, other, step)


def _exit(driver: SimDriver, step: Step) -> None:
    """End the main program, which nobody has announced."""
    has_failed = step.arg == "failed"
    driver.close(
        RuntimeError if has_failed else None,
        ProgramEnd("the main program ended", has_failed=has_failed),
    )


def _expire(driver: SimDriver, _: Step) -> None:
    if driver.spark.context is Context.RUNNING and driver.attached:
        driver.spark.session_ends()


def _context_dies(driver: SimDriver, _: Step) -> None:
    if driver.spark.context is Context.RUNNING:
        driver.spark.context_ends(Context.STOPPED, Health.GONE)


def _jvm_crash(driver: SimDriver, _: Step) -> None:
    # A session that has ended does not show how its server ends.
    if driver.spark.context is not Context.SESSION_ENDED:
        driver.spark.die(Health.DOWN)


def _terminate(driver: SimDriver, step: Step) -> None:
    if driver.spark.context is not Context.SESSION_ENDED:
        driver.spark.terminate()
    driver.time.after(step.seconds, driver.close)


_OF_QUERY: dict[str, Callable[[SimDriver, SimQuery, Step], None]] = {
    "start": _start,
    "restart": _restart,
    "die": _die,
    "fail_first": _fail_first,
    "stop": _stop,
    "plan_stop": _plan_stop,
    "take": _take,
    "hog": _hog,
    "recreate": _recreate,
    **{name: _until(name) for name in ("hang", "crawl", "compute", "skew", "starve", "ask", "dry")},
    **{name: _of_source(name) for name in ("lag", "stall", "rewind")},
    "fan_out": _until("fan"),
    "log_stuck": _until("log"),
    "bad_batch": _until("bad"),
    "decay": _decay,
    "crash_loop": _crash_loop,
    "bad_runs": _bad_runs,
    "late": _late,
}
_OF_DRIVER: dict[str, Callable[[SimDriver, Step], None]] = {
    "jvm_pause": lambda driver, step: driver.spark.pause(step.seconds, watched=True),
    "pause": lambda driver, step: driver.pause(step.seconds),
    "kill": lambda driver, _: driver.kill(),
    "kill_within": _kill_within,
    "no_executors": _no_executors,
    "close": lambda driver, _: driver.close(),
    "raise": lambda driver, _: driver.close(RuntimeError),
    "exit": _exit,
    "expire": _once_the_jvm_resumes(_expire),
    "terminate": _once_the_jvm_resumes(_terminate),
    "jvm_crash": _jvm_crash,
    "context_dies": _once_the_jvm_resumes(_context_dies),
    "app_stops": _once_the_jvm_resumes(_app_stops),
}
_OF_WORLD: dict[str, Callable[[World, Step], None]] = {
    **dict.fromkeys(
        ("delay", "drop", "repeat", "probe_refused", "probe_partial", "probe_misses", "unreadable"),
        _fault,
    ),
    "receiver": _receiver,
    "poison": _poison,
    "acknowledge": _acknowledge,
    "silence": _silence,
    "jump": _jump,
    "boot": _boot,
}
