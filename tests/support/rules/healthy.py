"""Queries without an alert: they commit, are idle, or the source holds data back."""

from __future__ import annotations

from support.rules.case import case, idle, limits, running, starting, table, waiting
from support.rules.stories import HOURLY, later, steady, topic, watched
from support.story import Story, processing, progress, run, source


@later
def idle_with(end, latest):
    """The probe sees a waiting query and the offsets of its source."""
    waiting = progress(batch=10, committed=False, sources=(source(end, latest),))
    return watched(steady(), (101, 300, run(batch=10, idle_progress=waiting)))


PLANS = {"message": "Getting offsets from Kafka"}

CASES = table(
    # healthy
    "just started",
    starting(Story().started(at=0), at=1),
    "commits",
    running(steady(), at=105),
    "commits up to the last second of its window",
    running(steady(), at=160),
    "idle, by its events (Burrow #38: idle topic)",
    idle(Story().started(at=0).commit(batch=0, at=1).idle(at=500), at=520),
    "idle, by the probe; no events at all (listener lost)",
    idle(watched(steady(), (101, 900, run(batch=10)))),
    "first data after long idleness (Burrow #303)",
    running(watched(steady().idle(at=5000), (5001, 5041, processing(batch=10))), at=5045),
    "only the probe sees the commits, events are minutes late (clogged listener bus)",
    running(
        watched(
            steady(),
            (101, 150, processing(batch=11)),
            (155, 200, processing(batch=12)),
            (205, 250, processing(batch=14)),
        ),
        at=200,
    ),
    "commits once an hour under an hourly trigger",
    running(Story().seen(trigger=HOURLY, data=True, at=0).commit(batch=0, at=10), at=10 + 3 * 3600),
    "batches take long, as they always did (FLINK-34131)",
    running(Story().started(at=0).commit(batch=0, at=100, seconds=90), at=100 + 269),
    "the monitor itself was frozen (SIGSTOP)",
    running(steady().paused(at=800, seconds=690), at=805),
    "no activity for a minute, with a larger floor",
    running(steady(), at=300, stall_floor_seconds=300),
    "ignored by pattern",
    case(Story().started(at=0).failed(at=1), at=2, state="failed", **limits("a*", ignore=True)),
    "planning under trigger 0, but Spark records idle progress",
    idle(
        Story()
        .seen(last_progress_mark="1", at=0, **PLANS)
        .seen(last_progress_mark="2", at=290, **PLANS),
        at=300,
    ),
    # idle needs proof
    "the source holds data back (minOffsetsPerTrigger, maxTriggerDelay)",
    waiting(idle_with(topic(5), topic(9))),
    "the source has no new data",
    idle(idle_with(topic(5), topic(5))),
    "the source does not report its latest offset, but found nothing",
    idle(idle_with({"logOffset": 5}, None)),
)
