"""A normal week of a job with eight queries, and the same week with three real problems."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from simulation.clock import BEGIN
from simulation.plan import Plan, QuerySpec, Setup, Step
from simulation.world import World

MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0
DAYS = 7
NAMES = ("bronze", "silver", "gold", "dedup", "enrich", "alerts", "export", "archive")
QUERIES = tuple(
    QuerySpec(name, name, every=MINUTE, takes=10.0 + 2 * number, recovers=30.0)
    for number, name in enumerate(NAMES)
)
GRACE = 120.0
"""``failed_grace_seconds``: the job restarts a query after 30 s."""

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(3600)]


def normal_week() -> Iterator[Step]:
    """What a team does and sees in a week, none of which should wake anybody."""
    yield from (Step(1.0, "start", name) for name in NAMES)
    for number in range(DAYS):
        day = number * DAY
        yield Step(day + 7 * HOUR, "no_executors", "", 5 * MINUTE)
        yield Step(day + 10 * HOUR, "close")
        yield Step(day + 10 * HOUR + 100.0, "boot")
        for name in ("bronze", "silver", "dedup"):
            yield Step(day + 23 * HOUR, "dry", name, 7 * HOUR)
        for optimize in range(50, int(DAY / MINUTE), 50):
            yield Step(day + optimize * MINUTE, "crawl", "gold", 700.0)
    # A backfill of an hour, a schema evolution, an outage of a store, and a neighbour.
    for number in range(10):
        yield Step(2 * DAY + 14 * HOUR + number * 6 * MINUTE, "crawl", "archive", 5 * MINUTE)
    yield Step(3 * DAY + 11 * HOUR, "die", "enrich", arg="[UNKNOWN_FIELD_EXCEPTION] new column")
    yield Step(4 * DAY + 9 * HOUR, "die", "export", arg="ConnectException: try again")
    yield Step(5 * DAY + 15 * HOUR, "crawl", "archive", 15 * MINUTE)
    yield Step(5 * DAY + 15 * HOUR + 2 * MINUTE, "starve", "export", 12 * MINUTE)
    # Another batch fails an hour later; all others wait for one backfill; the platform restarts the
    # job at night, for which there is a silence.
    yield Step(4 * DAY + 10 * HOUR + 30 * MINUTE, "die", "export", arg="ConnectException: again")
    yield Step(6 * DAY + 3 * HOUR, "hog", "archive", 8 * MINUTE)
    yield Step(6 * DAY + 4 * HOUR, "silence", "*", 20 * MINUTE)
    yield Step(6 * DAY + 4 * HOUR + 1 * MINUTE, "kill")
    yield Step(6 * DAY + 4 * HOUR + 6 * MINUTE, "boot")


def messages(*steps: Step) -> list[tuple[float, str, set[tuple[str, str]]]]:
    """When a person was notified in the week, how urgently, and of what; also printed."""
    steps = tuple(sorted((*normal_week(), *steps), key=lambda step: step.at))
    setup = Setup(receivers=("webhook",), failed_grace=GRACE)
    # What the properties ask of any history, they ask elsewhere, in minutes.
    world = World(Plan(1, DAYS * DAY, QUERIES, steps, setup), checked=False)
    assert world.run().violation == ""
    notes = world.receivers[0].notifications
    sent = [(note.at - BEGIN, note.severity, set(note.named)) for note in notes]
    for at, severity, named in sent:
        print(f"day {at / DAY:.3f}  {severity:8}  {sorted(named)}")
    return sent


def test_normal_week_wakes_nobody_and_has_at_most_six_warnings():
    sent = messages()

    assert [severity for _, severity, _ in sent if severity == "critical"] == []
    assert len(sent) <= 6


def test_each_real_problem_of_the_week_is_found_in_its_time():
    dies, hangs, decays = 1 * DAY + 16 * HOUR, 3 * DAY + 17 * HOUR, 5 * DAY + 17 * HOUR
    sent = messages(
        Step(dies, "crash_loop", "alerts", HOUR, "600"),
        Step(hangs, "hang", "silver", HOUR),
        Step(decays, "decay", "bronze", 4 * HOUR, "20"),
    )

    def notified(since: float, severity: str, alert: tuple[str, str]) -> float:
        times = [at - since for at, how, named in sent if how == severity and alert in named]
        return min((seconds for seconds in times if seconds > 0.0), default=float("inf"))

    assert notified(dies, "critical", ("alerts", "StreamingQueryFailed")) < GRACE + 15.0
    assert notified(hangs, "critical", ("silver", "StreamingQueryStalled")) < 3 * MINUTE
    # The driver is new each day and knows no day ago: batches must take three times the first.
    assert notified(decays, "warning", ("bronze", "StreamingQueryFallingBehind")) < 4 * HOUR
