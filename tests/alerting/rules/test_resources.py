"""The rules about the driver's memory and disks: what was read, and the alert, or none."""

from __future__ import annotations

from collections.abc import Callable
from math import pi, sin
from random import Random

import pytest
from msgspec.structs import replace

from querypulse.alerting.evaluate import evaluate
from querypulse.alerting.facts import InCollection
from querypulse.alerting.policy import Policy
from querypulse.alerting.words.reasons import reason_of
from querypulse.listener.events import Started, Terminated
from querypulse.listener.foresight.resources import Container, Disk, Heap, MemoryUse, Resources
from querypulse.listener.probe_report import Context, ProbeReport
from querypulse.listener.state.state import State
from querypulse.listener.state.trends import DAY_SECONDS

MB = 1_000_000
GB = 1000 * MB
MINUTE, HOUR = 60.0, 3600.0
MEMORY, DISK = "StreamingDriverMemory", "StreamingDiskFilling"
DAILY_SEEDS, SAW_SEEDS = 3, 100
Amount = Callable[[float], float]


class Driver:
    """A driver that is read every five seconds, or as often as is said."""

    def __init__(self) -> None:
        self.state = State(0.0)
        self.now = 0.0
        self.collections = 0

    def reads(
        self,
        seconds: float,
        *,
        heap: Amount | None = None,
        gc: Amount = lambda _at: 0.0,
        container: Amount | None = None,
        disks: dict[str, Amount] | None = None,
        every: float = 10.0,
        collects: bool = True,
        context: Context = Context.RUNNING,
    ) -> Driver:
        """For so long: megabytes that collections leave of 1,000, seconds in them, and gigabytes."""
        end = self.now + seconds
        while self.now < end:
            self.now += every
            self.collections += collects
            read = None
            if heap is not None:
                left = int(heap(self.now) * MB)
                counts = self.collections
                read = Heap(left + 50 * MB, left, 1000 * MB, gc(self.now), counts, self.now)
            self.state.apply_probe(ProbeReport(self.now, self.now, (), context, heap=read))
            self.state.apply_reading(
                Resources(
                    self.now,
                    container=None
                    if container is None
                    else Container(int(container(self.now) * GB), 4 * GB),
                    disks=tuple(
                        Disk(path, ("spool_dir",), int((100 - used(self.now)) * GB), 100 * GB)
                        for path, used in (disks or {}).items()
                    ),
                )
            )
        return self

    def reads_again(self, seconds: float, used: float) -> None:
        """After so long, with so much in use, and without another collection of the whole heap."""
        self.now += seconds
        heap = self.state.snapshot(self.now).resources.heap
        assert heap is not None
        heap = replace(heap, used_bytes=int(used * MB), at=self.now)
        self.state.apply_probe(ProbeReport(self.now, self.now, (), Context.RUNNING, heap=heap))

    def alerts(self) -> list[tuple[str, str, str]]:
        """The alerts now: name, severity, code."""
        found = evaluate(self.state.snapshot(self.now), self.now, Policy()).findings
        return [(one.alertname, one.severity.value, one.code.value) for one in found]

    def evidence(self, alertname: str) -> dict[str, str]:
        found = evaluate(self.state.snapshot(self.now), self.now, Policy()).findings
        (finding,) = [one for one in found if one.alertname == alertname]
        assert finding.words is not None
        return {**finding.words.evidence, "reason": finding.reason}


def noise(seed: int, width: float) -> Amount:
    rng = Random(seed)
    return lambda _at: rng.uniform(-width, width)


JITTER = noise(1, 15)


def test_unknown_resources_raise_nothing():
    assert Driver().reads(HOUR).alerts() == []


@pytest.mark.parametrize(
    ("words", "read"),
    [
        ("a heap that saws up to 85%", {"heap": lambda at: 100 + 750 * (at % 900) / 900}),
        ("a large heap that is used and stable", {"heap": lambda _at: 850 + JITTER(0)}),
        ("a heap that lives with little room", {"heap": lambda _at: 940 + JITTER(0)}),
        ("a heap that was given at once", {"heap": lambda _at: 300}),
        ("a cache that warms up", {"heap": lambda at: 850 - 700 / (1 + at / 600)}),
        ("a step", {"heap": lambda at: 200 if at < HOUR else 800}),
        ("a container whose heap takes 93%", {"container": lambda _at: 3.72}),
        ("a container with noise", {"container": lambda _at: 3.7 + JITTER(0) / 500}),
        ("a disk that is 97% full and stays so", {"disks": {"/data": lambda _at: 97.0}}),
        ("a disk that shrinks", {"disks": {"/data": lambda at: 98.0 - at / HOUR}}),
        ("a disk that takes days", {"disks": {"/data": lambda at: 50 + 0.5 * at / HOUR}}),
        ("a disk that was written once", {"disks": {"/data": lambda at: 50 + 40 * (at > HOUR)}}),
        ("collections take a tenth", {"heap": lambda _at: 500, "gc": lambda at: at / 10}),
    ],
)
def test_healthy_driver_raises_nothing_at_any_time(words, read):
    driver = Driver()
    for _ in range(24):
        assert driver.reads(10 * MINUTE, **read).alerts() == [], f"{words} at {driver.now}"


def test_one_batch_that_needs_much_for_a_moment_raises_nothing():
    driver = Driver().reads(HOUR, heap=lambda _at: 400)

    assert driver.reads(50, heap=lambda _at: 950).alerts() == []
    assert driver.reads(MINUTE, heap=lambda _at: 400).alerts() == []


def test_heap_that_was_near_its_maximum_once_and_collects_no_more_raises_nothing():
    driver = Driver().reads(HOUR, heap=lambda _at: 400).reads(10, heap=lambda _at: 950)

    assert driver.reads(10 * MINUTE, heap=lambda _at: 950, collects=False).alerts() == []


def test_one_long_collection_raises_nothing():
    driver = Driver().reads(HOUR, heap=lambda _at: 700)

    driver.reads(200, heap=lambda _at: 700, gc=lambda _at: 195.0, every=200)

    for _ in range(30):
        assert driver.reads(10, heap=lambda _at: 700, gc=lambda _at: 195.0).alerts() == []


def test_disk_that_is_cleaned_each_night_raises_nothing():
    driver = Driver()
    for _ in range(4 * 24):
        used = {"/data": lambda at: 30 + 55 * (at % (24 * HOUR)) / (24 * HOUR)}
        assert driver.reads(HOUR, disks=used, every=60).alerts() == [], driver.now / HOUR


def test_leak_in_another_jvm_begins_again():
    """The application stops its session after a leak, and makes another."""
    driver = Driver().reads(HOUR, heap=lambda at: 200 + 600 * at / HOUR)
    driver.collections = 0

    assert driver.reads(MINUTE, heap=lambda _at: 880).alerts() == []


def test_paused_process_is_no_leak():
    driver = Driver().reads(HOUR, heap=lambda _at: 400)
    driver.now += 10 * HOUR
    driver.state.pause(driver.now, 10 * HOUR)

    assert driver.reads(5 * MINUTE, heap=lambda _at: 600).alerts() == []


def test_heap_that_leaks_is_a_warning_then_critical_with_the_time_that_is_left():
    driver = Driver().reads(3300, heap=lambda at: 100 + 225 * at / HOUR + JITTER(0))
    leak = lambda at: 100 + 225 * at / HOUR + JITTER(0)

    assert driver.alerts() == []
    driver.reads(2.7 * HOUR, heap=leak)

    assert driver.alerts() == [(MEMORY, "warning", "heap_full")]
    evidence = driver.evidence(MEMORY)
    assert evidence["reason"].startswith("garbage collection leaves 9")
    assert "at this rate it is full in 2" in evidence["reason"]
    assert "of the heap in use" in evidence["driver_memory"]
    assert driver.reads(1000, heap=leak).alerts() == [(MEMORY, "critical", "heap_full")]


@pytest.mark.parametrize(("left", "share"), [(930, 0.15), (996, 0.0)])
def test_heap_near_its_maximum_is_a_warning_and_critical_once_collections_take_over(left, share):
    driver = Driver().reads(HOUR, heap=lambda _at: left + JITTER(0) / 5, gc=lambda at: share * at)

    assert driver.alerts() == [(MEMORY, "warning", "heap_full")]
    since = driver.now
    later = lambda at: share * since + 0.7 * (at - since)
    driver.reads(4 * MINUTE, heap=lambda _at: left, gc=later)
    assert driver.alerts() == [(MEMORY, "critical", "heap_full")]
    assert "garbage collection takes 70% of the time" in driver.evidence(MEMORY)["driver_memory"]


def test_collections_that_take_over_are_a_warning_also_with_room():
    driver = Driver().reads(4 * MINUTE, heap=lambda _at: 700, gc=lambda at: 0.6 * at)

    assert driver.alerts() == [(MEMORY, "warning", "in_collection")]


def test_what_young_collections_leave_is_not_said_to_be_nothing():
    memory = MemoryUse(heap=Heap(900 * MB, None, 1000 * MB, 60.0), gc_share=0.6)

    assert reason_of(InCollection(memory=memory)) == "garbage collection takes 60% of the time"


@pytest.mark.parametrize(
    ("used", "severity"),
    [
        (lambda _at: 3.95, "warning"),
        (lambda at: 1 + 2.8 * at / (4 * HOUR), "warning"),
        (lambda at: 1 + 2.95 * at / (4 * HOUR), "critical"),
    ],
)
def test_container_near_its_limit_or_rising_towards_it(used, severity):
    driver = Driver().reads(4 * HOUR, container=used)

    assert driver.alerts() == [(MEMORY, severity, "container_full")]
    assert "of 4 GB" in driver.evidence(MEMORY)["driver_memory"]


@pytest.mark.parametrize(
    ("used", "severity"),
    [
        (lambda at: 20 + 74 * at / (4 * HOUR), "warning"),
        (lambda at: 20 + 78 * at / (4 * HOUR), "critical"),
        (lambda _at: 99.5, "warning"),
        (lambda _at: 100.0, "critical"),
    ],
)
def test_disk_that_fills_up_or_is_full(used, severity):
    driver = Driver().reads(4 * HOUR, disks={"/data": used, "/other": lambda _at: 50.0})

    assert driver.alerts() == [(DISK, severity, "disk_full")]
    assert driver.evidence(DISK)["reason"].startswith("/data (spool_dir) has ")


@pytest.mark.parametrize(
    ("before", "words", "left"),
    [
        ({"heap": lambda _at: 985}, "98% of the heap", {}),
        ({"container": lambda _at: 3.95}, "99% of its memory", {"container": lambda _at: 0.3}),
    ],
)
def test_end_of_the_jvm_says_what_was_full_and_does_not_end_that_alert(before, words, left):
    driver = Driver().reads(HOUR, **before)
    (memory,) = driver.alerts()

    for _ in range(60):
        driver.reads(10, context=Context.JVM_GONE, **left)
        assert sorted(driver.alerts()) == [("StreamingDriverDown", "critical", "jvm_ended"), memory]

    assert words in driver.evidence("StreamingDriverDown")["driver_memory"]


def daily_load(rng: Random, peak: float) -> Amount:
    low, phase = rng.uniform(200, 600), rng.random()
    middle, height = (peak + low) / 2, (peak - low) / 2
    return lambda at: middle + height * sin(2 * pi * (at / DAY_SECONDS + phase)) + rng.gauss(0, 4)


@pytest.mark.parametrize("peak", [850, 900, 950])
def test_load_that_comes_each_day_raises_nothing_from_the_first_day_on(peak):
    for seed in range(DAILY_SEEDS):
        driver, load = Driver(), daily_load(Random(seed), peak)
        while driver.now < 2 * DAY_SECONDS + HOUR:
            driver.reads(10 * MINUTE, heap=load, every=120)
            assert driver.alerts() == [], (seed, driver.now / HOUR)


@pytest.mark.parametrize("peak", [850, 880, 900, 920, 950, 970])
def test_garbage_of_the_old_generation_up_to_the_maximum_raises_nothing(peak):
    """Between collections of the whole heap nothing is known of it; each leaves little."""
    for seed in range(SAW_SEEDS):
        rng = Random(seed)
        kept, period = rng.uniform(50, 500), rng.uniform(120, 4 * HOUR)
        driver = Driver()
        while driver.now < 5 * period:
            full_collection = lambda _at, kept=kept, rng=rng: kept + rng.gauss(0, 5)
            driver.reads(1, heap=full_collection, every=1)
            for part in range(10):
                used = kept + (peak - kept) * part / 10
                driver.reads_again(period / 10, used)
                assert driver.alerts() == [], (seed, driver.now / period)


def test_end_of_the_jvm_with_room_in_its_heap_says_nothing_of_memory():
    driver = Driver().reads(HOUR, heap=lambda _at: 300)
    driver.reads(10, context=Context.JVM_GONE)

    assert "driver_memory" not in driver.evidence("StreamingDriverDown")


@pytest.mark.parametrize(("error", "has_memory"), [("OutOfMemoryError", True), ("IOError", False)])
def test_query_that_dies_of_memory_says_how_much_there_was(error, has_memory):
    driver = Driver().reads(MINUTE, heap=lambda _at: 700)
    driver.state.apply_event(Started("id", "run", "orders"), driver.now)
    exception = f"java.lang.{error}: Java heap space\n\tat job.Main.run(Main.java:3)"
    driver.state.apply_event(Terminated("id", "run", exception, None), driver.now)

    evidence = driver.evidence("StreamingQueryFailed")

    assert ("70% of the heap" in evidence.get("driver_memory", "")) is has_memory


def test_only_the_eldest_of_several_processes_reports_what_they_share():
    driver = Driver().reads(HOUR, heap=lambda _at: 960)
    snapshot = driver.state.snapshot(driver.now)
    younger = replace(snapshot, ownership=replace(snapshot.ownership, is_eldest=False))

    assert evaluate(younger, driver.now, Policy()).findings == ()
