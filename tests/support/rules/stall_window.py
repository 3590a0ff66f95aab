"""StreamingQueryStalled: three times the second longest batch of the last 49 hours is its window."""

from __future__ import annotations

from support.rules.case import batch_slow_critical, query_stalled, running, starting, table
from support.rules.stories import HOURLY, batches, later, polled, watched, working
from support.story import Story, processing

from querypulse.listener.probe_report import JobCounts

DAY_AND_NIGHT = (*[60] * 1400, 2400)
"""Batches of a minute, and one of forty minutes each night."""


@later
def then_hangs(*seconds, after, **fields):
    """After batches of these lengths the next one hangs, for ``after`` seconds."""
    story = batches(*seconds, **fields)
    at = story.ends_at
    hangs = processing(batch=len(seconds))
    return watched(story, (int(at) + 1, int(at + after), hangs)).until(at + after)


@later
def then_works(*seconds, after):
    """After batches of these lengths, tasks of the next one finish all the time."""
    story = batches(*seconds)
    at = story.ends_at
    seen = lambda number, _: processing(batch=len(seconds), own=JobCounts(4, 1, number, 1))
    return polled(seen, since=at + 1, until=at + after, story=story)


@later
def after_long_batches(seconds, *, python=0.0, driver=0.0, line="", own=None):
    """Catches up in two batches of twenty minutes; then a batch is in flight for ``seconds``."""
    story = batches(1200, 1200, *[10] * 10)
    at = story.ends_at

    def seen(number, _):
        used = None if python is None else number * python
        jobs = own or JobCounts(4)
        return processing(batch=12, line=line, own=jobs, python_cpu=used, jvm_cpu=number * driver)

    return polled(seen, since=at, until=at + seconds, story=story)


def as_its_checkpoint_says(usual):
    return Story().started(at=0).began(at=1, usual=usual)


def restarted():
    return batches(120, 120).ended(at=241).started(run=2, at=242).idle(run=2, at=250)


def stepped_forward():
    """The driver's clock stepped by thirty hours in two batches."""
    story = Story().started(at=-99).commit(batch=90, at=-20, seconds=108_000.0)
    return story.commit(batch=91, at=-10, seconds=108_000.0)


def stepped_back():
    return Story().started(at=-9).commit(batch=90, at=-1, seconds=-3600.0)


CASES = table(
    # the window: three times the second longest batch of the last 49 hours
    "hangs after a first batch of two hours and two of ten seconds",
    query_stalled(then_hangs(7200, 10, 10, after=70)),
    "hangs after a first batch of two hours",
    query_stalled(then_hangs(7200, after=306)),
    "its second batch is shorter than the start grace, after a first one of two hours",
    running(then_hangs(7200, after=295)),
    "the second of its tenth batches takes 40 s among batches of 1 s",
    query_stalled(then_hangs(*[1] * 9, 40, *[1] * 9, after=30), stall_floor_seconds=15.0),
    "the third of its tenth batches takes 40 s",
    running(then_hangs(*[*[1] * 9, 40] * 2, *[1] * 9, after=40), stall_floor_seconds=15.0),
    "the twentieth of its tenth batches takes 40 s",
    running(then_hangs(*[*[1] * 9, 40] * 19, *[1] * 9, after=110), stall_floor_seconds=15.0),
    "every fiftieth batch runs OPTIMIZE, for the third time",
    running(then_hangs(*[*[20] * 49, 700] * 2, *[20] * 49, after=2000)),
    "hangs where every fiftieth batch runs OPTIMIZE",
    query_stalled(then_hangs(*[*[20] * 49, 700] * 2, *[20] * 49, after=2120)),
    "hangs after long batches, and its thread uses no CPU time",
    query_stalled(after_long_batches(605)),
    "hangs after long batches, and its thread uses no CPU time for ten minutes",
    running(after_long_batches(595)),
    "hangs after long batches where fifteen minutes are allowed",
    running(after_long_batches(895), stall_critical_seconds=900.0),
    "works in the driver after long batches",
    running(after_long_batches(3500, driver=0.01)),
    "tries again in the driver after long batches",
    running(after_long_batches(3500, driver=0.0003)),
    "tries again in the driver after long batches, for longer than the window",
    query_stalled(after_long_batches(3605, driver=0.0003)),
    "works in Python after long batches",
    running(after_long_batches(3500, python=0.01, line="/jobs/sync.py:12 in f")),
    "is blocked in Python after long batches",
    query_stalled(after_long_batches(605, line="/jobs/sync.py:12 in f")),
    "is in Python after long batches, and its CPU time is not known",
    running(after_long_batches(3500, python=None, line="/jobs/sync.py:12 in f")),
    "its job runs after long batches",
    running(after_long_batches(3500, own=JobCounts(4, 1, 40, 1))),
    "hangs after two outages of hours, as its checkpoint says",
    query_stalled(
        working(
            story=as_its_checkpoint_says(1800.0).idle(at=5), since=6, until=611, line="", batch=0
        )
    ),
    "two batches took twenty minutes, two days and two hours ago",
    query_stalled(then_hangs(1200, 1200, *[60] * 3000, after=190)),
    "two batches took twenty minutes, two days ago",
    running(then_hangs(1200, 1200, *[60] * 2850, after=3500)),
    "the second night with a batch of forty minutes",
    batch_slow_critical(then_works(*DAY_AND_NIGHT, *[60] * 1400, after=2390)),
    "the third night with a batch of forty minutes",
    running(then_works(*DAY_AND_NIGHT * 2, *[60] * 1400, after=2390)),
    "the third night, and the batch comes an hour late",
    running(then_works(*DAY_AND_NIGHT * 2, *[60] * 1459, after=2390)),
    "the third night, and the batch takes three times as long",
    batch_slow_critical(then_works(*DAY_AND_NIGHT * 2, *[60] * 1400, after=7210)),
    "a query whose batches take two minutes was restarted in this process",
    running(watched(restarted(), (251, 600, processing(number=2, batch=2)))),
    "batches of an hourly trigger take ten minutes, as its checkpoint says",
    starting(
        watched(as_its_checkpoint_says(600.0), (2, 1790, processing(batch=7, trigger=HOURLY))),
        at=1795,
    ),
    "the driver's clock stepped by 30 hours in two batches",
    query_stalled(then_hangs(10, 10, after=70, story=stepped_forward())),
    "the driver's clock stepped back: a batch of less than no time",
    running(then_hangs(10, after=55, story=stepped_back())),
)
