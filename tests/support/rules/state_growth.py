"""StreamingStateGrowing: what is never cleared, and what fills its limit."""

from __future__ import annotations

from support.rules.case import alert, limits, running, state_growing, table, watermark_stuck
from support.rules.stories import later
from support.story import Story, source

from querypulse.listener.foresight.operators import StateOperator

HOUR = 3600
DAY = 24 * HOUR
NOW = 1_790_000_000.0
"""Event times are those of this clock."""
critical = alert(("StreamingStateGrowing", "a", "critical"), state="running")


@later
def state(
    hours,
    rows,
    *,
    kind="dedupe",
    removed=0,
    delay=None,
    size=None,
    stuck=False,
    restart=None,
    folder=False,
    every=HOUR,
):
    """Query a commits each hour; ``rows``, ``removed`` and ``size`` are figures or functions of it.

    With a ``delay`` it has a watermark, which may be ``stuck`` from the third batch on. After the batch
    ``restart`` it has a new run.
    """
    story = Story().started(at=0)
    for batch in range(int(hours * HOUR / every)):
        at = every * (batch + 1)
        hour = batch * every / HOUR
        if batch == restart:
            story.ended(at=at - 400).started(at=at - 300)
        mark = (
            None if delay is None else NOW + (min(at, 3 * every) if stuck else at) - every - delay
        )
        kept = StateOperator(
            kind,
            rows=int(_of(rows, hour)),
            rows_removed=int(_of(removed, hour)),
            memory_bytes=int(_of(size or (lambda hour: 200 * _of(rows, hour)), hour)),
        )
        story.commit(
            batch=batch,
            at=at,
            operators=(kept,),
            watermark_timestamp=mark,
            event_time_max=NOW + at,
            sources=(source(batch, None, rows=1_000_000),),
            input_rows=1_000_000,
            state_rows=kept.rows,
        )
    return story.until(story.ends_at + 2)


def _of(figure, hour):
    return figure(hour) if callable(figure) else figure


def leak(hour):
    return 1e6 + 1e5 * hour


def by_day(hour):
    """Most at the end of the day, and a tenth of it at night."""
    return 1e7 * (0.1 + 0.9 * (hour % 24 / 24))


def by_week(hour):
    return by_day(hour) * (0.4 if hour // 24 % 7 >= 5 else 1.0)


def in_window(days):
    return lambda hour: 1e6 * (hour % (24 * days) + 1)


def levelling_off(hour):
    return 1e8 * (1 - 0.97**hour)


def burst(hour):
    return 1e7 if hour < 3 else 1e5 * hour


TEN_GB = {"state_limit_bytes": 10_000_000_000}
PRUNED = {"removed": 1000, "delay": 600}

CASES = table(
    # No limit is declared
    "a deduplication without a watermark: it grows each day",
    state_growing(state(80, leak)),
    "an aggregation without a watermark, whose keys never come again",
    state_growing(state(80, leak, kind="stateStoreSave")),
    "a join without a watermark keeps all rows",
    state_growing(state(80, leak, kind="symmetricHashJoin")),
    "it was restarted meanwhile, from the same checkpoint",
    state_growing(state(80, leak, restart=40)),
    "time-outs that never fire, although the watermark advances",
    state_growing(state(24 * 34, leak, kind="flatMapGroupsWithState", delay=600)),
    "a deduplication whose event time is no key: nothing is removed, and windows of a month are over",
    state_growing(state(24 * 34, leak, delay=600)),
    "the lists of its keys grow, and the keys are the same",
    state_growing(
        state(24 * 34, 1e6, kind="applyInPandasWithState", delay=600, size=lambda h: 1e9 + 1e8 * h)
    ),
    "the watermark is stuck, and its own alert says so",
    watermark_stuck(state(12, leak, delay=600, stuck=True, every=600), stall_floor_seconds=1000),
    "the same, and two days are too few: keys may level off",
    running(state(60, leak)),
    "a new query fills its state for a day",
    running(state(24, leak)),
    "time-outs of a user's own function, without a watermark, are not due yet",
    running(state(24 * 5, leak, kind="transformWithStateExec")),
    "a window of a week has not closed once",
    running(state(24 * 7, leak, kind="stateStoreSave", delay=HOUR)),
    "windows of a week close each week",
    running(state(24 * 13, in_window(7), removed=lambda h: 1e6 * (h % 168 == 0), delay=HOUR)),
    "windows of a day close each day",
    running(state(24 * 9 + 20, in_window(1), removed=lambda h: 1e6 * (h % 24 == 0), delay=HOUR)),
    "windows of a month have not closed once",
    running(state(24 * 20, leak, kind="stateStoreSave", delay=HOUR)),
    "a time to live of a month, which has not passed once",
    running(state(24 * 20, leak, kind="transformWithStateExec")),
    "windows of a month close each month",
    running(state(24 * 20, leak, kind="stateStoreSave", removed=lambda h: h < 1, delay=HOUR)),
    "a deduplication with a watermark of ten days",
    running(state(24 * 12, leak, delay=10 * DAY)),
    "a join with an interval of five days",
    running(state(24 * 5, leak, kind="symmetricHashJoin", delay=HOUR)),
    "sessions of a busy day",
    running(state(20, by_day, kind="sessionWindowStateStoreSaveExec", **PRUNED)),
    "a daily rhythm",
    running(state(24 * 4 + 18, by_day, **PRUNED)),
    "a weekly rhythm",
    running(state(24 * 15 + 18, by_week, **PRUNED)),
    "groups by key without a watermark level off",
    running(state(24 * 4, levelling_off, kind="stateStoreSave")),
    "a backlog was read at once, and then it keeps what it has",
    running(state(24 * 4, burst, **PRUNED)),
    "small state that grows for ever: a broadcast of lookups",
    running(state(24 * 4, lambda hour: 50 * hour)),
    "state as large as ever, without a watermark",
    running(state(24 * 4, lambda hour: 5e7 + 1e5 * (hour % 3))),
    "it has grown for days, and has not had a row for a day",
    running(state(24 * 4, lambda hour: leak(min(hour, 60)))),
    "its operator reports no rows",
    running(state(24 * 4, -1, size=lambda hour: 0)),
    # A limit is declared
    "it reaches its limit in a few hours",
    state_growing(state(24 * 4, lambda hour: 4.3e5 * hour, delay=10 * DAY), **TEN_GB),
    "the same limit, of this query only",
    state_growing(
        state(24 * 4, lambda hour: 4.3e5 * hour, delay=10 * DAY), **limits("a", **TEN_GB)
    ),
    "it reaches its limit within minutes",
    critical(state(5, lambda hour: 1e7 * hour + 1e5, delay=10 * DAY, every=300), **TEN_GB),
    "windows of an hour fill 95% of the limit each hour",
    running(state(9, lambda hour: 4.75e7 * (hour % 1) * 12 / 11, **PRUNED, every=300), **TEN_GB),
    "it is beyond its limit",
    critical(state(30, 6e7, delay=600, removed=9), **TEN_GB),
    "removals do not keep up: each day has more than the day before",
    state_growing(
        state(
            24 * 6,
            lambda h: 1.2e7 * (h // 24) + by_day(h) / 2,
            **PRUNED,
            size=lambda h: 1.6e9 * (h // 24) + 80 * by_day(h),
        ),
        **TEN_GB,
    ),
    "half of the limit is used, and it grows",
    running(state(24 * 2, lambda hour: 5e5 * hour, delay=10 * DAY), **TEN_GB),
    "it reaches its limit next week",
    running(state(24 * 4, lambda hour: 3.6e7 + 2e4 * hour, delay=10 * DAY), **TEN_GB),
    "the limit of another query",
    running(state(24 * 4, lambda hour: 4.3e5 * hour, delay=10 * DAY), **limits("b", **TEN_GB)),
    "a steep morning below 60% of the limit, as each day",
    running(state(24 * 3 + 14, by_day, **PRUNED), state_limit_bytes=3_500_000_000),
    "a weekly rhythm below 80% of the limit, on Monday",
    running(state(24 * 14 + 18, by_week, **PRUNED), state_limit_bytes=2_500_000_000),
    "four fifths of the limit, after a backlog",
    running(state(20, lambda hour: 4e7 * min(1, (hour + 1) / 4), **PRUNED), **TEN_GB),
    "it has ended",
    running(state(10, 4e7), state_limit_bytes=9_000_000_000),
)
