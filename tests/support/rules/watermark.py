"""StreamingWatermarkStuck and StreamingRowsDropped: event time."""

from __future__ import annotations

from support.rules.case import (
    alert,
    completed,
    limits,
    query_failed,
    rows_dropped,
    running,
    starting,
    table,
    watermark_stuck,
)
from support.rules.stories import AVAILABLE_NOW, later
from support.story import Story, run, source


@later
def watermarks(
    *marks,
    newest=None,
    clock=None,
    late=0,
    state=None,
    every=60,
    rows=(10,),
    first=10,
    loops=False,
    lost=None,
    share=0.0,
):
    """Query a commits every minute: one watermark per batch, a number of rows per source.

    ``newest`` is the newest event time, ``clock`` Spark's clock and ``late`` the rows dropped, of all
    batches or by batch, as ``rows`` is. If it ``loops``, each batch has a run of its own (availableNow).
    The event of the batch ``lost`` does not arrive. By event times, ``share`` of the rows is late.
    """
    story = Story() if loops else Story().started(at=0)
    for number, mark in enumerate(marks):
        if number == lost:
            continue
        run_number, began = 1 + number * loops, first + number * every - 3
        if loops:
            finite = run(number=run_number, trigger=AVAILABLE_NOW, batch=number)
            story.started(run=run_number, at=began).probe(finite, at=began + 1)
        counts = rows[number] if isinstance(rows, list) else rows
        fed = tuple(source(number, None, rows=count) for count in counts)
        said = {"event_time_max": newest, "timestamp": clock, "late_rows": late}
        story.commit(
            run=run_number,
            batch=number,
            at=first + number * every,
            watermark_timestamp=mark,
            sources=fed,
            input_rows=sum(counts),
            state_rows=state,
            late_share=share,
            **{
                name: value[number] if isinstance(value, list) else value
                for name, value in said.items()
            },
        )
        if loops:
            story.ended(run=run_number, at=began + 4)
    return story.until(story.ends_at + 2)


@later
def late_days(*days, state=7, restart=False, groups=None):
    """Query a commits every 10 minutes; on each day it drops a percentage of its rows, or by hour.

    Spark counts them, or so many ``groups`` of them, and event times show the percentage.
    """
    story, per_day, run_number = Story().started(at=0), 6 * 24, 1
    for batch in range(per_day * len(days)):
        percent = days[batch // per_day]
        if callable(percent):
            percent = percent(batch % per_day // 6)
        at = 600 * (batch + 1)
        if restart and batch == per_day:
            run_number = 2
            story.ended(at=at - 400).started(run=2, at=at - 300)
        late = int(percent * 100)
        times = {"watermark_timestamp": at + 1.0, "event_time_max": at + 2.0}
        fed = (source(batch, None, rows=10_000),)
        story.commit(
            run=run_number,
            batch=batch,
            at=at,
            sources=fed,
            input_rows=10_000,
            late_rows=late if groups is None else groups,
            late_share=0.0 if groups is None else percent / 100,
            state_rows=state,
            **times,
        )
    return story.until(story.ends_at + 2)


@later
def of_the_hour(until, *, since=0, late=1800, ends=2**40, idles=2**40):
    """Event times of the hour of two sources, each five minutes; the second is ``late``.

    From ``ends`` on its event times are the same, from ``idles`` on it has no rows.
    """
    times, year = range(since, until, 300), 3600 * 300_000
    second = [year + (min(at, ends, idles) - late) // 3600 * 3600 for at in times]
    return watermarks(
        *(event_time - 600.0 for event_time in (second[0], *second[:-1])),
        newest=[year + at // 3600 * 3600.0 for at in times],
        rows=[(10, 10 * (at < idles)) for at in times],
        every=300,
    )


NEWER = [600.0 + 60 * number for number in range(9)]
SLOWLY = {"stall_floor_seconds": 400.0}
STEADY = [500.0 + 60 * number for number in range(8)]

rows_dropped_and_stuck = alert(
    "StreamingWatermarkStuck", state="watermark_stuck", besides=["StreamingRowsDropped"]
)


def lost_event(lost, *, newest, first=3000.0, count=8):
    """The watermark advances by an hour; the event of a batch was lost."""
    return watermarks(0.0, *[first] * 3, *[first + 3600.0] * count, newest=newest, lost=lost)


def one_ends(*, rows):
    """Two sources, of which one stays where it is."""
    newest = [600.0 + 60 * n for n in range(16)]
    return watermarks(*STEADY, *[920.0] * 8, newest=newest, rows=rows)


CASES = table(
    # StreamingWatermarkStuck
    "newer rows arrive, the watermark does not advance (Dataflow: data freshness)",
    watermark_stuck(watermarks(440.0, *[500.0] * 8, newest=NEWER)),
    "the watermark never advances, although event times do: the other source has none",
    watermark_stuck(watermarks(*[0.0] * 8, newest=1.7e9, rows=(10, 10))),
    "stuck since before the driver started, and event times have moved on by hours",
    watermark_stuck(watermarks(*[500.0] * 8, newest=[600.0, *[8000.0] * 7])),
    "one row from 2099: the watermark is ahead, all rows are late, and none is counted",
    watermark_stuck(watermarks(*[4e9] * 9, newest=NEWER, clock=700.0)),
    "one row from the year 292278994, and the rows are dropped",
    rows_dropped_and_stuck(watermarks(*[9e15] * 8, newest=600.0, clock=700.0, late=9)),
    "an event was lost when the watermark advanced; newer rows arrive since, and it does not advance",
    watermark_stuck(lost_event(3, newest=[3600.0] * 3 + [7200.0] + [11_000.0] * 8)),
    "event times of the hour, and the event was lost in which it changed",
    running(lost_event(3, newest=[3600.0] * 3 + [7200.0] * 9)),
    "event times of the hour, which wait for two hours, and the event was lost in which it changed",
    running(lost_event(3, first=28_800.0, newest=[36_000.0] * 3 + [39_600.0] * 9)),
    "event times of the hour, and the event was lost in which it changed for the first time",
    running(watermarks(*[3000.0] * 2, *[6600.0] * 8, newest=[3600.0] + [7200.0] * 9, lost=1)),
    "event times of the hour, and the event was lost in which the watermark advanced",
    running(lost_event(4, count=9, newest=[3600.0] * 3 + [7200.0] * 10)),
    "availableNow in a loop: newer rows arrive, the watermark does not advance",
    watermark_stuck(watermarks(440.0, *[500.0] * 8, newest=NEWER, loops=True), at=492),
    "availableNow in a loop: the watermark advances",
    completed(watermarks(*(500.0 + n for n in range(9)), newest=NEWER, loops=True), at=492),
    "availableNow in a loop: event time of the hour",
    completed(watermarks(440.0, *[500.0] * 8, newest=[600.0] * 9, loops=True), at=492),
    "availableNow in a loop that has ended, and the watermark did not advance",
    completed(watermarks(440.0, *[500.0] * 8, newest=NEWER, loops=True), at=820),
    "availableNow in a loop: the watermark did not advance, then a run failed",
    query_failed(
        watermarks(440.0, *[500.0] * 8, newest=NEWER, loops=True)
        .started(run=10, at=495)
        .failed(run=10, at=496),
        at=497,
    ),
    "event time of the hour: the watermark is the same for an hour",
    running(watermarks(440.0, *[500.0] * 8, newest=[600.0] * 9)),
    "event time of the hour, and the next hour has just begun",
    running(watermarks(440.0, *[500.0] * 8, newest=[600.0] * 7 + [4200.0] * 2)),
    "one device's clock is ahead, and the others follow",
    running(watermarks(440.0, *[3500.0] * 8, newest=[3600.0, *NEWER[:8]])),
    "one device's clock was ahead before the driver started",
    running(watermarks(*[3500.0] * 9, newest=NEWER)),
    "old rows are sent again, and the watermark has no reason to advance",
    running(watermarks(440.0, *[500.0] * 8, newest=[600.0, *range(590, 510, -10)])),
    "event times of the hour, of which the first advance was seen",
    running(watermarks(440.0, 440.0, *[500.0] * 7, newest=[540.0, 600.0, *[600.0] * 7])),
    "event times begin in 1970, within the delay",
    running(watermarks(*[0.0] * 9, newest=NEWER)),
    "rows without event time, or none after a filter",
    running(watermarks(*[0.0] * 8)),
    "event times are in the future by nature (forecasts): the watermark follows them",
    running(watermarks(*[4e9] * 8, newest=4e9 + 60, clock=700.0)),
    "the watermark advances",
    running(watermarks(*(500.0 + n for n in range(9)), newest=NEWER)),
    "a join waits for its other side",
    running(watermarks(440.0, *[500.0] * 8, rows=(10, 0), newest=NEWER)),
    "no rows, only no-data batches",
    running(watermarks(440.0, *[500.0] * 8, rows=(0,), newest=NEWER)),
    "two sources, and the event times of one end",
    watermark_stuck(one_ends(rows=(10, 10))),
    "event times of the hour, and those of the second source end",
    watermark_stuck(of_the_hour(21_600, ends=7200), at=21_602, **SLOWLY),
    "event times of the hour, and the second source has no rows since the third hour",
    running(of_the_hour(36_000, idles=9600), at=36_002, **SLOWLY),
    "two sources, and one has no rows any more",
    running(one_ends(rows=[(10, 10)] * 9 + [(10, 0)] * 7)),
    "a query without a watermark",
    running(watermarks(*[None] * 9, newest=NEWER)),
    "the watermark does not advance, not for the window yet",
    running(watermarks(440.0, *[500.0] * 5, newest=NEWER)),
    "the watermark was stuck, then it advanced",
    running(watermarks(440.0, *[500.0] * 7, 501.0, newest=NEWER)),
    # StreamingRowsDropped
    "nine of ten rows are late, in each batch, while the watermark advances",
    rows_dropped(watermarks(*STEADY, late=9)),
    "a tenth of the rows is late, as Spark counts them after aggregation",
    rows_dropped(watermarks(*STEADY, late=2, rows=(20,))),
    "a twentieth of the rows is late, and no day is known",
    running(watermarks(*STEADY, late=5, rows=(100,))),
    "all rows are late, and Spark counts few of them, after aggregation",
    rows_dropped(watermarks(*[1401.0] * 8, newest=1400.0, late=2, rows=(100,), state=7)),
    "nine of ten rows are late, and Spark counts few groups of them, after aggregation",
    rows_dropped(watermarks(*STEADY, late=5, rows=(100,), share=0.9)),
    "always, 99 of 100 rows are late, and Spark counts few groups of them",
    rows_dropped(late_days(99.0, 99.0, groups=52)),
    "one of a hundred rows is late, always, and Spark counts more groups of them than of others",
    running(late_days(1.0, 1.0, 1.0, groups=5)),
    "a twentieth of the rows is late, in few groups, and no day is known",
    running(watermarks(*STEADY, late=1, rows=(100,), share=0.05)),
    "three times as many rows are late as on the day before, in as few groups",
    rows_dropped(late_days(1.0, 3.5, groups=5)),
    "one of ten rows is late, of a few",
    running(watermarks(*STEADY, late=1)),
    "one of a hundred rows is late, always",
    running(late_days(1.0, 1.0, 1.0)),
    "one of a hundred rows is late at night, fewer by day",
    running(
        late_days(lambda hour: 3.0 if hour < 6 else 0.3, lambda hour: 3.0 if hour < 6 else 0.3)
    ),
    "twice as many rows are late as on the day before",
    running(late_days(1.0, 2.0)),
    "far more rows are late than on the day before, and still less than a hundredth",
    running(late_days(0.01, 0.9)),
    "three times as many rows are late, on the first day",
    running(late_days(lambda hour: 1.0 if hour < 12 else 4.0)),
    "more rows were late than on the day before, over a restart, for a while",
    running(late_days(1.0, lambda hour: 4.0 if hour < 23 else 1.0, restart=True)),
    "as many rows are late as on the day before, after a restart",
    running(late_days(3.0, 3.0, restart=True)),
    "a query without state, whose batches have rows that are never dropped",
    running(late_days(0.0, 0.0, state=None)),
    "three times as many rows are late as on the day before",
    rows_dropped(late_days(1.0, 3.5)),
    "the same, after a restart",
    rows_dropped(late_days(1.0, 3.5, restart=True)),
    "no row was late on the day before, now one of a hundred is",
    rows_dropped(late_days(0.0, 1.0)),
    "a tenth of the rows is late, always",
    rows_dropped(late_days(10.0, 10.0)),
    "a backfill: the newest event time is an hour behind the watermark, and nothing is counted",
    rows_dropped(watermarks(*[5000.0] * 8, newest=1400.0, state=7)),
    "an old file is read, of a query that keeps no state and drops nothing",
    running(watermarks(*[5000.0] * 8, newest=1400.0)),
    "the newest event time is a little behind the watermark",
    running(watermarks(*[5000.0] * 8, newest=4900.0, state=7)),
    "each batch of a million rows drops one",
    running(watermarks(*STEADY, late=1, rows=(1_000_000,))),
    "rows are dropped now and then: what a watermark is for",
    running(watermarks(*STEADY, late=[9, 9, 0, 9, 9, 9, 0, 9])),
    "rows were dropped for a while (a phone came back), then no more",
    running(watermarks(*STEADY, late=[9] * 7 + [0])),
    "availableNow in a loop: each run drops rows",
    rows_dropped(watermarks(*STEADY, late=9, loops=True), at=432),
    "availableNow in a loop: the last run drops none",
    completed(watermarks(*STEADY, late=[9] * 7 + [0], loops=True), at=432),
    "availableNow in a loop: some runs drop rows",
    completed(watermarks(*STEADY, late=[9, 9, 0, 9, 9, 9, 0, 9], loops=True), at=432),
    "availableNow in a loop: runs drop rows, not for the window yet",
    completed(watermarks(*STEADY[:5], late=9, loops=True), at=252),
    "availableNow in a loop that has ended, and each run dropped rows",
    completed(watermarks(*STEADY, late=9, loops=True), at=760),
    "availableNow in a loop: each run dropped rows, then it began with a new checkpoint",
    starting(watermarks(*STEADY, late=9, loops=True).started_again(at=440), at=445),
    "availableNow in a loop: the next run has begun, and read nothing yet",
    starting(watermarks(*STEADY, late=9, loops=True).started(run=9, at=440), at=445),
    "rows are dropped, not for the window yet",
    running(watermarks(*STEADY[:5], late=9)),
    "two huge batches drop rows: too few samples",
    running(watermarks(*STEADY[:2], late=9, every=400), stall_floor_seconds=100.0),
    "no rows, so no late ones",
    running(watermarks(*STEADY, rows=(0,), late=9)),
    "rows were dropped, then the query failed",
    query_failed(watermarks(*STEADY, late=9).failed(at=433), at=434),
    "rows are dropped, but ignored",
    running(watermarks(*STEADY, late=9), **limits("a", ignore=True)),
) | {
    f"event times of the hour, and those of the second source come {late // 60} minutes later, "
    f"since minute {since // 60}, for {hours} hours": running(
        of_the_hour(3600 * hours + late, late=late, since=since),
        at=3600 * hours + late - since + 2,
        **SLOWLY,
    )
    for late in (600, 1800, 3300)
    for since in (1500, 3000, late - 300)
    for hours in (1, 2, 4)
}
