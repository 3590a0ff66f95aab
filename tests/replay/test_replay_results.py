"""A replay reports what a live run would have reported, at the times of the log."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.event_log import BEGAN, CONFLICT, EventLog, after, changes, replayed, reported
from support.story import progress

from querypulse.listener.events import Idle, Started, Terminated
from querypulse.replay.engine import Replayed, ReplayEngine
from querypulse.replay.terms import terms_of
from querypulse.settings.settings import Settings

TICK = 1.0


def steady(until=300.0):
    """Query ``a`` commits every 2 s."""
    return EventLog().started(at=1).commits(since=3, until=until)


def about(second, within=TICK / 2):
    return pytest.approx(second, abs=within)


def failed(at):
    return ("firing", "StreamingQueryFailed", "a", at)


def stalled(at, status="firing"):
    return (status, "StreamingQueryStalled", "a", at)


def next_run():
    log = steady(until=21).ended(exception=CONFLICT).started(run=2, at=100)
    log.commit(run=2, batch=10, at=110)
    return log.commits(run=2, since=112, until=150, batch=11)


def long_batch():
    log = steady(until=101).commit(batch=50, at=725, seconds=620)
    return log.commits(since=727, until=770, batch=51)


def with_input(rows):
    """Query ``a`` reads rows for 20 s; each later batch, every 10 s, has ``rows`` rows."""
    log = EventLog().started(at=1)
    for batch, at in enumerate(range(3, 21, 2)):
        log.commit(batch=batch, at=at, rows=5)
    for batch, at in enumerate(range(30, 400, 10), 10):
        log.commit(batch=batch, at=at, rows=rows)
    for batch, at in enumerate(range(400, 440, 2), 99):
        log.commit(batch=batch, at=at, rows=5)
    return log


def two_queries(a_until, b_until):
    """Both start; each commits every 2 s until then, if ever."""
    log = EventLog().started("a", at=1).started("b", at=1)
    for batch, at in enumerate(range(3, 400, 2)):
        for name, until in (("a", a_until), ("b", b_until)):
            if at < until:
                log.commit(name, batch=batch, at=at)
    return log


def one_stops():
    log = EventLog().started("a", at=1).started("b", at=1).commits("a", since=3, until=11)
    return log.ended("a").commits("b", since=12, until=200)


EXPECTS_INPUT = {"expected_input_seconds": 120}
ALERTS = [
    ("a failure, at the newest time in the log",
     steady(21).work(at=21.5).ended(exception=CONFLICT).work(at=400), {}, [failed(21.5)]),
    ("a failure before the context stops", steady(21).ended(exception=CONFLICT).stopped(at=60), {}, [failed(21.0)]),
    ("commits of the next run resolve the failure",
     next_run(), {}, [failed(21.0), ("resolved", "StreamingQueryFailed", "a", about(140.5))]),
    ("a failure after a long silence joins the stall",
     steady(21).work(at=90_000).ended(exception=CONFLICT), {}, [stalled(about(82.5)), failed(90_000.0)]),
    ("a batch of ten minutes", long_batch(), {}, [stalled(about(162.5)), stalled(about(755.5), "resolved")]),
    ("a stall while a sibling continues", two_queries(100, 400), {}, [stalled(about(160.5))]),
    ("other lines advance the clock to a stall", steady(101).work(at=500), {}, [stalled(about(162.5))]),
    ("an expected query that never starts",
     steady(400), {"expected_queries": ["a", "gold"]}, [("firing", "StreamingQueryMissing", "gold", about(301.5))]),
    ("an expected query that stops",
     one_stops(), {"expected_queries": ["a"]}, [("firing", "StreamingQueryStopped", "a", about(72.5))]),
    ("a query that has started and does nothing",
     two_queries(0, 400), {}, [("firing", "StreamingQueryMissing", "a", about(302.5))]),
    ("expected rows do not come", with_input(0), EXPECTS_INPUT, [
        ("firing", "StreamingInputMissing", "a", about(140.5, TICK)),
        ("resolved", "StreamingInputMissing", "a", about(430.5, TICK)),
    ]),
]  # fmt: skip


@pytest.mark.parametrize("row", [row[1:] for row in ALERTS], ids=[row[0] for row in ALERTS])
def test_alerts_fire_and_resolve_at_the_times_of_the_log(tmp_path, row):
    log, settings, alerts = row

    assert reported(log, tmp_path, **settings) == alerts


@pytest.mark.parametrize("beyond", [0.5, 2.0, 14.0, 16.0])
def test_stall_that_ends_right_after_its_window_is_reported_if_two_evaluations_see_it(
    tmp_path, beyond
):
    log = EventLog().started("a", at=1).started("b", at=1).commit("a", batch=0, at=3)
    log.commits("b", since=3, until=63 + beyond).commit("a", batch=1, at=63.5 + beyond)
    for batch, at in enumerate(range(82, 140, 2), 2):
        log.commit("a", batch=batch, at=at).commit("b", batch=batch + 99, at=at)

    both = [("firing", "StreamingQueryStalled", "a"), ("resolved", "StreamingQueryStalled", "a")]
    assert [change[:3] for change in reported(log, tmp_path)] == (both if beyond > 1 else [])


def idle():
    log = steady(until=21)
    for at in range(31, 2000, 10):
        log.idle(at=at)
    return log


def slow_but_regular():
    log = EventLog().started(at=1)
    for batch, at in enumerate(range(100, 2000, 100)):
        log.commit(batch=batch, at=at, seconds=95)
    return log


def killed_in_mid_line():
    log = steady(until=21)
    log.lines.append('{"Event":"org.apache.spark.sql.streaming.StreamingQueryListener$QueryProg')
    return log


def clock_set_back():
    log = steady(until=101).commits(since=40, until=101, batch=60)
    return log.commits(since=103, until=150, batch=99)


def restarted_at_once():
    log = steady(until=21).ended().started(run=2, at=22)
    return log.commit(run=2, batch=10, at=24).commit(run=2, batch=11, at=60)


SHUT_DOWN = "x: SparkContext was shut down"
HARMLESS = [
    ("nothing", EventLog(), {}),
    ("a batch job", EventLog().work(at=5).work(at=4000).stopped(at=4001), {}),
    ("healthy", steady().stopped(at=301), {}),
    ("idle", idle(), {}),
    ("slow but regular", slow_but_regular(), {}),
    ("stopped by its owner", steady(21).ended().work(at=2000), {}),
    (
        "stopped with its application",
        steady(21).stopped(at=22).ended(exception=SHUT_DOWN).work(at=500),
        {},
    ),
    (
        "the end of the application of an expected query",
        steady(21).stopped(at=22).work(at=4000),
        {"expected_queries": ["a"]},
    ),
    ("a log that just ends", steady(21), {}),
    ("killed in mid-line", killed_in_mid_line(), {}),
    ("the clock is set back", clock_set_back(), {}),
    ("restarted at once", restarted_at_once(), {}),
    ("no rows, and none are expected", with_input(0), {}),
    ("expected rows come", with_input(5), EXPECTS_INPUT),
]


def test_harmless_log_raises_no_alert(tmp_path):
    alerts = {
        name: reported(log, tmp_path / name.replace(" ", "-"), **settings)
        for name, log, settings in HARMLESS
    }

    assert {name: changes for name, changes in alerts.items() if changes} == {}


def test_applications_in_one_file_are_evaluated_separately(tmp_path):
    """The order of the applications in the file does not matter."""
    first, second = EventLog("first"), EventLog("second")
    first.started("a", at=1).commits("a", since=3, until=11).ended("a", exception=CONFLICT)
    second.started("b", at=1000).commits("b", since=1002, until=1020).ended("b", exception=CONFLICT)
    first.lines = second.stopped(at=1030).lines + first.lines

    ((alerts, replay),) = replayed(first.write(tmp_path / "log"))
    assert [(alert.app, alert.alertname, alert.query) for alert in alerts] == [
        ("second", "StreamingQueryFailed", "b"),
        ("first", "StreamingQueryFailed", "a"),
    ]
    assert (replay.opened, replay.events) == (2, 19)


def test_replay_counts_events_alerts_and_what_they_span_and_a_setting_names_the_app(tmp_path):
    log = steady(until=101).commit(batch=50, at=725, seconds=620)
    path = log.ended(exception=CONFLICT).stopped(at=730).write(tmp_path / "log")
    ((alerts, replay),) = replayed(path)

    assert (replay.app, replay.events, replay.opened) == ("etl", 53, 2)
    assert (replay.began_at, replay.ended_at) == (BEGAN, BEGAN + 730)
    assert {alert.app for alert in alerts} == {"etl"}
    assert {alert.app for alert in changes(path, app_name="prod")} == {"prod"}


def fails_again(after):
    """Fails at 21 s, recovers, and fails in a later batch so many seconds after that."""
    log = steady(until=21).ended(exception=CONFLICT).started(run=2, at=30)
    log.commits(run=2, since=32, until=21 + after, batch=10)
    return log.ended(run=2, exception=CONFLICT).work(at=60 + after)


def all_fail():
    log = EventLog()
    for name in "abc":
        log.started(name, at=1)
    for name in "abc":
        log.commits(name, since=3, until=21)
    for name in "abc":
        log.ended(name, exception=CONFLICT)
    return log.work(at=60)


@pytest.mark.parametrize(
    ("log", "notifications"),
    [
        (steady(), 0),
        (steady(until=21).ended(exception=CONFLICT).work(at=400), 1),
        (steady(until=21).work(at=90).ended(exception=CONFLICT), 2),
        (fails_again(after=20), 1),
        (fails_again(after=120), 2),
        (all_fail(), 2),
        (steady(until=21).ended(exception=CONFLICT).work(at=10 * 3600), 3),
    ],
    ids=[
        "healthy",
        "a failure",
        "a failure that joins a stall",
        "a failure before the recovery",
        "a failure after the recovery",
        "three failures of one cause",
        "a failure with reminders after four hours, and eight",
    ],
)
def test_notifications_are_those_of_a_driver(tmp_path, log, notifications):
    ((_, replay),) = replayed(log.write(tmp_path / "log"))

    assert replay.notifications == notifications


_EVENTS = st.tuples(
    st.sampled_from("abc"),
    st.sampled_from(["commit", "commit", "commit", "idle", "died", "stopped", "started"]),
    st.sampled_from([0.1, 0.4, 1.0, 3.0, 9.0, 14.0, 16.0, 40.0, 61.0, 150.0, 300.0]),
)


def event_of(query, run, what, batch):
    ids = (f"id-{query}", f"{query}-{run}")
    if what == "commit":
        return progress(query, run, batch=batch, seconds=0.5)
    if what == "idle":
        return Idle(*ids)
    if what == "started":
        return Started(*ids, query)
    return Terminated(*ids, CONFLICT if what == "died" else None, None)


def play(story, wanted, *, every_tick=False):
    """The alerts of a story as (status, second) by alert; ``every_tick`` evaluates each second."""
    engine, now, batch = ReplayEngine(wanted, Replayed("app", "log"), BEGAN), BEGAN, 0
    runs, alerts = dict.fromkeys("abc", 1), []
    for query, what, pause in [*story, ("a", None, 500.0)]:
        second, now, batch = int(now - BEGAN), now + pause, batch + 1
        while every_tick and (second := second + 1) <= now - BEGAN:
            alerts += engine.wait(BEGAN + second) + engine.evaluate()
        runs[query] += what == "started"
        if what is None:
            alerts += engine.wait(now)
        else:
            alerts += engine.apply(event_of(query, runs[query], what, batch), now)
    histories = {}
    for alert in alerts:
        history = histories.setdefault((alert.alertname, alert.query), [])
        history.append((alert.status, after(alert.at)))
    return histories


def the_same(one, other):
    """The same changes of the same alerts, each within a tick."""
    return one.keys() == other.keys() and all(
        [status for status, _ in one[key]] == [status for status, _ in other[key]]
        and all(abs(a - b) <= TICK for (_, a), (_, b) in zip(one[key], other[key], strict=True))
        for key in one
    )


@pytest.mark.slow
@settings(max_examples=10)
@given(
    story=st.lists(_EVENTS, max_size=20),
    grace=st.sampled_from([0, 2, 30, 60]),
    floor=st.sampled_from([3, 20, 60]),
)
@example(story=[("c", "started", 9.0), ("a", "idle", 9.0), ("c", "commit", 9.0)], grace=0, floor=20)
def test_skipping_a_silent_stretch_equals_evaluating_every_tick(story, grace, floor):
    wanted = terms_of(
        Settings(
            expected_queries=("a", "z"),
            gone_grace_seconds=grace,
            start_grace_seconds=grace,
            stall_floor_seconds=floor,
        )
    )
    assert the_same(play(story, wanted), play(story, wanted, every_tick=True))
