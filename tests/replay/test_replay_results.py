"""A replay reports what a live run would have reported, at the times of the log."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.event_log import BEGAN, CONFLICT, EventLog
from support.replays import after, changes, replayed, reported
from support.story import progress

from querypulse.alerting.evaluate import Evaluation
from querypulse.alerting.finding import Finding, Severity
from querypulse.core.states import QueryState
from querypulse.listener.events import Idle, Started, Terminated
from querypulse.replay import engine as replaying
from querypulse.replay.engine import ReplayEngine
from querypulse.settings.settings import Settings
from querypulse.settings.wiring import policy

TICK = 1.0


def steady(until=300.0):
    """Query ``a`` commits every 2 s."""
    return EventLog().started(at=1).commits(since=3, until=until)


def firing(alerts):
    return [(alertname, query) for status, alertname, query, _ in alerts if status == "firing"]


# -- logs that raise alerts ---------------------------------------------------------------------


def test_failure_is_reported_at_the_newest_time_in_the_log(tmp_path):
    log = steady(until=21).work(at=21.5).ended(exception=CONFLICT).work(at=400)

    assert reported(log, tmp_path) == [("firing", "StreamingQueryFailed", "a", 21.5)]


def test_commit_of_the_next_run_resolves_a_failure(tmp_path):
    log = steady(until=21).ended(exception=CONFLICT).started(run=2, at=100)
    log.commit(run=2, batch=10, at=110).commits(since=112, until=130, batch=11)

    assert reported(log, tmp_path) == [
        ("firing", "StreamingQueryFailed", "a", 21.0),
        ("resolved", "StreamingQueryFailed", "a", pytest.approx(110.5, abs=TICK / 2)),
    ]


def test_stall_fires_after_its_window_and_resolves_with_a_commit(tmp_path):
    log = (
        steady(until=101)
        .commit(batch=50, at=725, seconds=620)
        .commits(since=727, until=740, batch=51)
    )

    assert reported(log, tmp_path) == [
        ("firing", "StreamingQueryStalled", "a", pytest.approx(161.5, abs=TICK / 2)),
        ("resolved", "StreamingQueryStalled", "a", pytest.approx(725.5, abs=TICK / 2)),
    ]


def with_input(rows):
    """Query ``a`` reads rows for 20 s; each later batch, every 10 s, has ``rows`` rows."""
    log = EventLog().started(at=1)
    for batch, at in enumerate(range(3, 21, 2)):
        log.commit(batch=batch, at=at, rows=5)
    for batch, at in enumerate(range(30, 400, 10), 10):
        log.commit(batch=batch, at=at, rows=rows)
    return log.commit(batch=99, at=400, rows=5).commit(batch=100, at=402, rows=5)


def test_missing_input_is_reported_when_settings_expect_input(tmp_path):
    alerts = reported(with_input(0), tmp_path, expected_input_seconds=120)

    assert alerts == [
        ("firing", "StreamingInputMissing", "a", pytest.approx(139.5, abs=TICK)),
        ("resolved", "StreamingInputMissing", "a", pytest.approx(400.5, abs=TICK)),
    ]


@pytest.mark.parametrize(("rows", "settings"), [(0, {}), (5, {"expected_input_seconds": 120})])
def test_present_or_unexpected_input_raises_no_alert(tmp_path, rows, settings):
    assert reported(with_input(rows), tmp_path, **settings) == []


def test_stall_is_reported_while_sibling_queries_continue(tmp_path):
    log = EventLog().started("a", at=1).started("b", at=1)
    for batch, at in enumerate(range(3, 400, 2)):
        log.commit("b", batch=batch, at=at)
        if at < 100:
            log.commit("a", batch=batch, at=at)

    assert reported(log, tmp_path) == [
        ("firing", "StreamingQueryStalled", "a", pytest.approx(159.5, abs=TICK / 2))
    ]


def test_other_lines_advance_the_clock_to_a_stall_at_the_end(tmp_path):
    log = steady(until=101).work(at=500)

    assert firing(reported(log, tmp_path)) == [("StreamingQueryStalled", "a")]


@pytest.mark.parametrize("beyond", [0.5, 2.0, 14.0, 16.0])
def test_stall_that_ends_right_after_its_window_fires_and_resolves(tmp_path, beyond):
    log = EventLog().started("a", at=1).started("b", at=1).commit("a", batch=0, at=3)
    log.commits("b", since=3, until=63 + beyond).commit("a", batch=1, at=63.5 + beyond)
    log.commits("b", since=70 + beyond, until=100, batch=99).commit("a", batch=2, at=90)

    assert [change[:3] for change in reported(log, tmp_path)] == [
        ("firing", "StreamingQueryStalled", "a"),
        ("resolved", "StreamingQueryStalled", "a"),
    ]


def test_expected_query_that_never_starts_is_reported_missing(tmp_path):
    log = steady(until=400)

    assert reported(log, tmp_path, expected_queries=["a", "gold"]) == [
        ("firing", "StreamingQueryMissing", "gold", pytest.approx(300.5, abs=TICK / 2))
    ]


def test_expected_query_that_stops_is_reported(tmp_path):
    log = EventLog().started("a", at=1).started("b", at=1).commits("a", since=3, until=11)
    log.ended("a").commits("b", since=12, until=200)

    assert reported(log, tmp_path, expected_queries=["a"]) == [
        ("firing", "StreamingQueryStopped", "a", pytest.approx(71.5, abs=TICK / 2))
    ]


def test_started_query_without_any_activity_is_missing(tmp_path):
    log = EventLog().started("a", at=1).started("b", at=1).commits("b", since=3, until=400)

    assert firing(reported(log, tmp_path)) == [("StreamingQueryMissing", "a")]


def test_failure_after_a_long_silence_is_reported(tmp_path):
    log = steady(until=21).work(at=90_000).ended(exception=CONFLICT)

    assert firing(reported(log, tmp_path)) == [
        ("StreamingQueryStalled", "a"),
        ("StreamingQueryFailed", "a"),
    ]


# -- logs that raise none -----------------------------------------------------------------------


def nothing():
    return EventLog()


def batch_job():
    return EventLog().work(at=5).work(at=4000).stopped(at=4001)


def healthy():
    return steady().stopped(at=301)


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


def stopped_by_its_owner():
    return steady(until=21).ended().work(at=2000)


def stopped_with_its_application():
    return (
        steady(until=21)
        .stopped(at=22)
        .ended(exception="x: SparkContext was shut down")
        .work(at=500)
    )


def a_log_that_just_ends():
    return steady(until=21)


def killed_in_mid_line():
    log = steady(until=21)
    log.lines.append('{"Event":"org.apache.spark.sql.streaming.StreamingQueryListener$QueryProg')
    return log


def clock_set_back():
    return (
        steady(until=101)
        .commits(since=40, until=101, batch=60)
        .commits(since=103, until=150, batch=99)
    )


def restarted_at_once():
    log = steady(until=21).ended().started(run=2, at=22)
    return log.commit(run=2, batch=10, at=24).commit(run=2, batch=11, at=60)


HARMLESS = [
    nothing, batch_job, healthy, idle, slow_but_regular, stopped_by_its_owner,
    stopped_with_its_application, a_log_that_just_ends, killed_in_mid_line, clock_set_back,
    restarted_at_once,
]  # fmt: skip


def test_harmless_log_raises_no_alert(tmp_path):
    alerts = {log.__name__: reported(log(), tmp_path / log.__name__) for log in HARMLESS}

    assert alerts == {log.__name__: [] for log in HARMLESS}


def test_end_of_the_application_reports_no_expected_query(tmp_path):
    log = steady(until=21).stopped(at=22).work(at=4000)

    assert reported(log, tmp_path, expected_queries=["a"]) == []


def test_failure_before_the_context_stops_stays_reported(tmp_path):
    log = steady(until=21).ended(exception=CONFLICT).stopped(at=60)

    assert reported(log, tmp_path) == [("firing", "StreamingQueryFailed", "a", 21.0)]


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


# -- the summary ----------------------------------------------------------------------------------


def test_replay_counts_events_alerts_and_what_they_span(tmp_path):
    log = (
        steady(until=101)
        .commit(batch=50, at=725, seconds=620)
        .ended(exception=CONFLICT)
        .stopped(at=730)
    )
    ((_, replay),) = replayed(log.write(tmp_path / "log"))

    assert (replay.app, replay.events, replay.opened) == ("etl", 53, 2)
    assert (replay.began_at, replay.ended_at) == (BEGAN, BEGAN + 730)


@pytest.mark.parametrize(
    ("severities", "notifications"),
    [
        ([["warning"], ["warning"], ["warning", "warning"]], 1),
        ([["warning"], ["critical", "warning"], ["critical"]], 2),
        ([["critical"], ["warning"], ["critical"]], 2),
        ([["critical"], [], ["critical"]], 2),
        ([[], []], 0),
    ],
)
def test_incident_is_a_notification_when_it_opens_or_becomes_critical(
    monkeypatch, severities, notifications
):
    """Each step: the severities of all alerts of one query."""
    steps = [
        Evaluation(
            tuple(
                Finding(f"Alert{number}", "a", Severity(severity), QueryState.FAILED, "", "", {})
                for number, severity in enumerate(step)
            )
        )
        for step in severities
    ]
    monkeypatch.setattr(replaying, "evaluate", lambda *_: steps.pop(0))
    engine = ReplayEngine(policy(Settings()), "app", BEGAN)
    for _ in severities:
        engine.evaluate()

    assert engine.notifications == notifications


def test_app_name_setting_overrides_the_name_in_the_log(tmp_path):
    log = steady(until=21).ended(exception=CONFLICT)

    assert [c.app for c in changes(log.write(tmp_path / "log"), app_name="prod")] == ["prod"]


# -- skipping ahead gives the same result as evaluating every tick --------------------------------

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
    engine, now, batch, runs = (
        ReplayEngine(wanted, "app", BEGAN),
        BEGAN,
        0,
        dict.fromkeys("abc", 1),
    )
    alerts = []
    for query, what, pause in [*story, ("a", None, 1000.0)]:
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
        histories.setdefault((alert.alertname, alert.query), []).append(
            (alert.status, after(alert.at))
        )
    return histories


def the_same(one, other):
    """The same changes of the same alerts, each within a tick."""
    return one.keys() == other.keys() and all(
        [status for status, _ in one[key]] == [status for status, _ in other[key]]
        and all(abs(a - b) <= TICK for (_, a), (_, b) in zip(one[key], other[key], strict=True))
        for key in one
    )


@pytest.mark.slow
@settings(max_examples=15)
@given(
    story=st.lists(_EVENTS, max_size=20),
    grace=st.sampled_from([0, 2, 30, 60]),
    floor=st.sampled_from([3, 20, 60]),
)
def test_skipping_a_silent_stretch_equals_evaluating_every_tick(story, grace, floor):
    wanted = policy(
        Settings(
            expected_queries=("a", "z"),
            gone_grace_seconds=grace,
            start_grace_seconds=grace,
            stall_floor_seconds=floor,
        )
    )
    assert the_same(play(story, wanted), play(story, wanted, every_tick=True))


@pytest.mark.parametrize("others", [0, 1, 20])
def test_stall_that_ends_between_two_evaluations_is_reported(others):
    wanted = policy(Settings(stall_floor_seconds=60.0))
    engine, alerts, now = ReplayEngine(wanted, "app", BEGAN), [], 0.0
    alerts += engine.apply(progress("a", batch=0), BEGAN)
    while now < 61.5:
        now += 0.5
        for number in range(others):
            event = progress(f"other-{number}", batch=round(now * 2))
            alerts += engine.apply(event, BEGAN + now)
    alerts += engine.apply(progress("a", batch=1), BEGAN + 61.7)
    alerts += engine.wait(BEGAN + 62.0) + engine.evaluate()

    assert [(change.status, change.alertname) for change in alerts] == [
        ("firing", "StreamingQueryStalled"),
        ("resolved", "StreamingQueryStalled"),
    ]
