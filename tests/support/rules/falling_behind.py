"""StreamingQueryFallingBehind: batches take longer and longer."""

from __future__ import annotations

from support.rules.case import completed, falling_behind, idle, running, table
from support.rules.stories import AVAILABLE_NOW, later, topic
from support.story import CONFLICT, Story, source

MINUTELY = "ProcessingTimeTrigger(60000)"
AT_ONCE = "ProcessingTimeTrigger(0)"
GROWING = range(45, 265, 10)
"""Twenty-two batches, the first two of which are no longer than a minute."""
NIGHT_AND_NOON = (*[70] * 600, *[280] * 158)
"""Batches of a day that always outlast a trigger of a minute."""
LONGER_RUNS = (75, 100, 131, 170, 219, 280, 356, 452, 571, 600, 620)


@later
def runs_of(*lengths, rest=5, every=0, batches=1, fails=(), goes_on=False):
    """Query a runs for these seconds (availableNow), again and again, with a rest between.

    With ``every`` its runs begin so many seconds apart. The runs ``fails`` end with an exception.
    If it ``goes_on``, another run has begun.
    """
    story, at, number = Story(), 0, 0
    for count, seconds in enumerate(lengths, 1):
        began = at if not every else (count - 1) * every
        story.started(run=count, at=began)
        story.seen(number=count, trigger=AVAILABLE_NOW, batch=number, at=began + 1)
        for part in range(1, batches + 1):
            at = began + part * seconds / batches
            story.commit(run=count, batch=number, at=at, seconds=seconds / batches)
            number += 1
        story.ended(run=count, at=at, exception=CONFLICT if count in fails else None)
        at += rest
    if goes_on:
        story.started(run=count + 1, at=at)
        story.seen(number=count + 1, trigger=AVAILABLE_NOW, batch=number, at=at + 1)
    return story


@later
def batches_of(*lengths, trigger=MINUTELY, at=0, lags=()):
    """Query a commits batches of these lengths in seconds, each when the trigger or the last is due.

    ``lags`` is what each of them leaves unread; not known by default.
    """
    story = Story().started(at=at)
    for number, seconds in enumerate(lengths):
        story.seen(trigger=trigger, batch=number, at=at)
        at += seconds
        behind = lags[number : number + 1]
        sources = tuple(source(topic(number), topic(number + lag)) for lag in behind)
        story.commit(batch=number, at=at, seconds=seconds, sources=sources)
        at += 0 if trigger != MINUTELY else max(0, 60 - seconds)
    return story


CASES = table(
    # StreamingQueryFallingBehind
    "batches grow from 30 s to 270 s, at a trigger of a minute",
    falling_behind(batches_of(*range(30, 280, 10))),
    "batches grow, each begins when the last has ended, and the lag rises",
    falling_behind(batches_of(*GROWING, trigger=AT_ONCE, lags=range(100, 540, 20)), at=3305),
    "batches of 70 s take three times as long as a day ago",
    falling_behind(batches_of(*[20] * 1440, *[70] * 10), at=87_110),
    "batches of 70 s take three times as long as a day ago, and as long as two days ago",
    falling_behind(batches_of(*[60] * 240, *[20] * 2640, *[70] * 10), at=173_510),
    "batches of 70 s take three times as long as two days ago, and as long as a day ago",
    running(batches_of(*[20] * 1380, *[60] * 180, *[20] * 1320, *[70] * 10), at=173_510),
    "batches take more than three times as long as a day ago, and each begins when the last has ended",
    falling_behind(batches_of(*[20] * 4300, *[70] * 10, trigger=AT_ONCE), at=86_705),
    "batches outlast their trigger all day, and at noon they take half as long again as at noon a day ago",
    falling_behind(batches_of(*NIGHT_AND_NOON, *[70] * 600, *[430] * 5), at=130_395),
    "batches outlast their trigger all day, and take longer at noon, as a day ago",
    running(batches_of(*NIGHT_AND_NOON, *[70] * 600, *[280] * 10), at=131_045),
    "batches outlast their trigger all day, and on the first day they take twice as long at noon",
    running(batches_of(*range(70, 140)), at=7250),
    "batches grow by the time of day, a little more than a day ago",
    running(batches_of(*NIGHT_AND_NOON, *[70] * 600, *[400] * 10), at=132_245),
    "batches take twice as long as a day ago, and each begins when the last has ended",
    running(batches_of(*[35] * 2460, *[70] * 10, trigger=AT_ONCE), at=86_805),
    "batches grow from 30 s to 170 s, at a trigger of a minute, on the first day",
    running(batches_of(*range(30, 180, 10)), at=1600),
    "batches always outlast their trigger, and do not grow",
    running(batches_of(*[90] * 15), at=1360),
    "batches outlast their trigger, as a day ago",
    running(batches_of(*[90] * 970), at=87_310),
    "batches take twice as long as a day ago",
    running(batches_of(*[35] * 1440, *[70] * 10), at=87_110),
    "batches grow, and fit into their trigger interval",
    running(batches_of(*range(5, 58, 2)), at=1625),
    "batches grow by the time of day, and each begins when the last has ended: the lag is not known",
    running(batches_of(*GROWING, trigger=AT_ONCE), at=3305),
    "batches grow by the time of day, and each reads all there is",
    running(batches_of(*GROWING, trigger=AT_ONCE, lags=[0] * 22), at=3305),
    "batches grow, each begins when the last has ended, and the lag is steady",
    running(batches_of(*GROWING, trigger=AT_ONCE, lags=[900] * 22), at=3305),
    "batches grow, each begins when the last has ended, and the lag falls",
    running(batches_of(*GROWING, trigger=AT_ONCE, lags=range(900, 460, -20)), at=3305),
    "batches grow, each begins when the last has ended, and the lag rose once",
    running(batches_of(*GROWING, trigger=AT_ONCE, lags=[100] * 4 + [900] * 18), at=3305),
    "batches grow, and take less than a minute, without a trigger interval",
    running(batches_of(*range(1, 58), trigger=AT_ONCE), at=1655),
    "batches grow a little",
    running(batches_of(*range(90, 105)), at=1460),
    "batches grew for a while, and the last one fits again",
    running(batches_of(*range(30, 180, 10), 50), at=1650),
    "batches grow, four of them so far",
    running(batches_of(*[30] * 5, *range(70, 190, 30)), at=765),
    "each tenth batch runs OPTIMIZE, for ever longer",
    running(batches_of(*(80 + 20 * n if n % 10 == 9 else 30 for n in range(41))), at=3300),
    "a backlog is read in ever shorter batches",
    running(batches_of(*range(180, 60, -10)), at=1445),
    "availableNow has much to read, and its batches grow",
    running(batches_of(*range(40, 190, 10), trigger=AVAILABLE_NOW), at=1640),
    "availableNow in a loop: its runs take longer and longer, and the next one runs",
    falling_behind(runs_of(*LONGER_RUNS, goes_on=True), at=3650),
    "availableNow in a loop: its runs take longer and longer, between two of them",
    falling_behind(runs_of(*LONGER_RUNS), at=3630),
    "availableNow in a loop: its runs of many short batches take longer and longer",
    falling_behind(runs_of(*LONGER_RUNS, batches=30, goes_on=True), at=3650),
    "availableNow in a loop: its runs take twice as long as at first",
    completed(runs_of(*range(75, 165, 10), 150), at=1120),
    "availableNow in a loop: its runs are always long",
    completed(runs_of(*[400] * 12), at=4862),
    "availableNow in a loop: its runs take longer and longer, and the last one was short",
    idle(runs_of(*LONGER_RUNS, 50, goes_on=True), at=3690),
    "availableNow in a loop: its runs take longer and longer, and less than a minute",
    completed(runs_of(*range(5, 58, 2)), at=970),
    "availableNow in a loop: its runs took longer and longer, and one failed",
    completed(runs_of(*LONGER_RUNS, fails=(10,)), at=3630),
    "availableNow in a loop: a run is five times as long as the others",
    completed(runs_of(*[100] * 8, 500, 100), at=1450),
    "availableNow each hour: its runs take longer and longer in the morning, and it rests between them",
    completed(runs_of(*range(200, 1800, 200), every=3600), at=26_900),
    "availableNow has caught up in ever longer runs, and runs as a stream since",
    running(
        runs_of(*LONGER_RUNS)
        .started(run=12, at=3700)
        .seen(number=12, batch=11, at=3701)
        .commit(run=12, batch=11, at=3702),
        at=3703,
    ),
    "it grew, restarted, and has had one batch since",
    running(
        batches_of(*range(30, 180, 10))
        .failed(at=1600)
        .started(at=1610)
        .commit(batch=15, at=1790, seconds=175),
        at=1800,
    ),
)
