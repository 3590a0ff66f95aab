"""Lost, duplicated, late or damaged events never change the final health."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.event_log import recorded
from support.story import CONFLICT, Story, processing, progress, run, source

from querypulse.alerting.incidents.lifecycle import Lifecycle, LifecycleSettings
from querypulse.alerting.words.messages import Guidance
from querypulse.listener.commit_log import LoggedBatches, LogReport
from querypulse.listener.events import DecodeError, EventKind, Idle, Started, Terminated, decode
from querypulse.listener.probe_report import Context, ProbeReport
from querypulse.listener.state.state import State

pytestmark = pytest.mark.slow

RUN_SECONDS = 40
AFTERMATH_SECONDS = 200
ENDS = ("commits", "idles", "hangs", "dies", "stops")


def history(ends):
    """A true history: each run commits every 5 s for 40 s, then ends; 5 s between runs.

    ``ends`` lists how each run ends. Returns the events as (at, event) and the probe's polls
    every 2 s as (at, run or None).
    """
    events, polls, batch = [], [], 0
    for number, end in enumerate(ends, 1):
        began = (number - 1) * (RUN_SECONDS + 5) + 1
        last = number == len(ends)
        events.append((began, Started("id-a", f"a-{number}", "a")))
        commits = range(began + 5, began + RUN_SECONDS, 5)
        if last and end == "commits":
            commits = range(began + 5, began + RUN_SECONDS + AFTERMATH_SECONDS, 5)
        done = {at: batch + index for index, at in enumerate(commits)}
        for at, committed in done.items():
            events.append((at, progress(run=number, batch=committed)))
        over = began + RUN_SECONDS
        until = over + AFTERMATH_SECONDS if last else over + 5
        for at in range(began + 1, until, 2):
            in_flight = batch + sum(1 for moment in done if moment <= at)
            polls.append((at, _poll(number, end, in_flight, over, at)))
        batch += len(done)
        if end == "idles":
            events += [(at, Idle("id-a", f"a-{number}")) for at in range(over, until, 10)]
        if end in ("dies", "stops"):
            exception = CONFLICT if end == "dies" else None
            events.append((over, Terminated("id-a", f"a-{number}", exception, None)))
    return events, polls


def _poll(number, end, in_flight, over, at):
    if at < over or end in ("commits", "hangs"):
        return processing(number=number, batch=in_flight)
    if end == "idles":
        return run(number=number, batch=in_flight)
    exception = CONFLICT if end == "dies" else None
    return run(number=number, active=False, batch=in_flight, exception=exception)


TRUTH = {
    "commits": (set(), "running"),
    "idles": (set(), "idle"),
    "hangs": ({"StreamingQueryStalled"}, "stalled"),
    "dies": ({"StreamingQueryFailed"}, "failed"),
    "stops": ({"StreamingQueryStopped"}, "stopped_unexpectedly"),
}
ABOUT_US = {"QuerypulseEventsMissing", "QuerypulseMonitoringDegraded"}


@st.composite
def damaged_histories(draw):
    """How the runs end, and the received events: some lost, some duplicated, some late."""
    # Only the last run may be alive at its end: a query id runs once at a time.
    ends = [
        *draw(st.lists(st.sampled_from(("dies", "stops")), max_size=2)),
        draw(st.sampled_from(ENDS)),
    ]
    events, polls = history(ends)
    received = [
        (at + draw(st.sampled_from((0, 0, 0, 1, 7, 40, 120))), event)
        for at, event in events
        for _ in range(draw(st.sampled_from((0, 1, 1, 1, 2))))
    ]
    return ends, received, polls


@pytest.mark.fault(
    "Events",
    "Events that are missing, doubled, or late by up to two minutes",
    "The final health and the alerts are those of the true history",
)
@given(damaged_histories())
def test_lost_duplicated_and_late_events_do_not_change_the_final_health(damaged):
    ends, received, polls = damaged
    state = State(0.0)
    reported = [(at, "event", event) for at, event in received] + [
        (at, "poll", seen) for at, seen in polls
    ]
    now = max(at for at, _ in polls) + 1
    for at, kind, what in sorted(reported, key=lambda entry: entry[0]):
        if at > now:
            continue
        if kind == "event":
            state.apply_event(what, at)
        else:
            state.apply_probe(ProbeReport(began_at=at, at=at, runs=(what,)))

    evaluation = evaluated(state, now)

    alerts, health = TRUTH[ends[-1]]
    assert {finding.alertname for finding in evaluation.findings} - ABOUT_US == alerts
    assert evaluation.health["a"].state.value == health


def evaluated(state, now):
    story = Story()
    story.state = state
    # The rules table covers crash loops; a large budget keeps them out of this test.
    return story.evaluate(now, restart_budget=9)


@pytest.mark.fault(
    "Events",
    "Events that arrive in any order",
    "One failure, one alert; no other query's state changes",
)
@given(st.permutations(range(6)))
def test_the_order_of_events_within_a_tick_does_not_matter(order):
    """Spark delivers a start at once and all else by one queue; we read starts and ends first."""
    tick = [
        progress(run=1, batch=4),
        Terminated("id-a", "a-1", CONFLICT, None),
        Started("id-a", "a-2", "a"),
        progress("b", batch=7),
        Idle("id-b", "b-1"),
        progress(run=1, batch=3),
    ]
    state = Story().started(at=0).started("b", at=0).commit(batch=2, at=9).state
    for index in order:
        state.apply_event(tick[index], 10.0)

    evaluation = evaluated(state, 10.5)

    assert [(f.alertname, f.query) for f in evaluation.findings] == [("StreamingQueryFailed", "a")]
    assert evaluation.health["b"].state.value == "running"


RUNS = [
    run(), run(batch=3), processing(batch=0), processing(batch=9, tasks=4), run(active=False),
    run(active=False, exception=CONFLICT), run(number=2, batch=1), run(message="Getting offsets from K"),
    run(trigger="ContinuousTrigger(1000)", message="Running", busy=True), run(async_progress=True),
    run(batch=3, idle_progress=progress(batch=3, committed=False, sources=(source(1, 5),))),
]  # fmt: skip
EVENTS = [
    Started("id-a", "a-1", "a"), Started("id-a", "a-2", None), Idle("id-a", "a-1"), Idle("id-x", "x-1"),
    Terminated("id-a", "a-1", CONFLICT, None), Terminated("id-a", "a-2", None, None),
    progress(batch=0), progress(batch=3, sources=(source({"t": {"0": 4}}, {"t": {"0": 9}}),)),
    progress(batch=2, sources=(source("tok", "tik"),), watermark_timestamp=5.0), progress(run=2, batch=7),
    progress(batch=1, committed=False), progress(batch=9, seconds=None), progress(batch=-1),
]  # fmt: skip
LOGS = [LoggedBatches(), LoggedBatches(4, 3), LoggedBatches(None, 9), LoggedBatches(0, None)]
OBSERVATIONS = st.one_of(
    st.sampled_from(EVENTS),
    st.lists(st.sampled_from(RUNS), max_size=2).map(tuple),
    st.sampled_from(LOGS),
    st.sampled_from(Context),
)


@pytest.mark.fault("Events", "Observations of any kind in any order", "Every evaluation succeeds")
@given(st.lists(st.tuples(st.floats(0, 500), OBSERVATIONS), max_size=30))
def test_folding_and_evaluating_any_observations_never_raises(observations):
    state = State(0.0)
    for at, what in observations:
        if isinstance(what, tuple):
            state.apply_probe(ProbeReport(began_at=at, at=at, runs=what))
        elif isinstance(what, LoggedBatches):
            state.apply_commit_log(LogReport(at, {"a-1": what}, {"a-2": "denied"}))
        elif isinstance(what, Context):
            state.apply_probe(ProbeReport(began_at=at, at=at, runs=(), context=what))
        else:
            state.apply_event(what, at)
        state.forget(at)
        evaluated(state, at)
        evaluated(state, at + 1000)


@pytest.mark.fault(
    "Events", "A recorded event with some of its bytes replaced", "It is read, or rejected"
)
@given(st.sampled_from(recorded(shape="json")), st.integers(0, 2000), st.binary(max_size=3))
def test_damaged_event_is_decoded_or_raises_only_decode_error(event, place, junk):
    kind, text = event
    damaged = text.encode()[:place] + junk + text.encode()[place + len(junk) :]
    try:
        Story().state.apply_event(decode(EventKind(kind), damaged), 1.0)
    except DecodeError:
        return


@pytest.mark.fault(
    "Time and pauses", "The wall clock jumps either way", "No state and no start time changes"
)
@given(st.lists(st.sampled_from((-3600.0, 3600.0, 0.0)), min_size=5, max_size=5))
def test_wall_clock_jumps_change_no_health_and_no_start_time(jumps):
    story = Story().started(at=0).ended(at=1, exception=CONFLICT)
    lifecycle, wall = (
        Lifecycle("etl", Guidance("https://r/{alertname}.md"), LifecycleSettings()),
        itertools.accumulate((1e9, *jumps)),
    )

    reported = [
        lifecycle.update(story.evaluate(now), story.state.snapshot(now), now, next(wall))
        for now in (2, 3, 4, 5, 6)
    ]

    alerts = [alert for (incident,) in reported for alert in incident.alerts]
    assert [alert.name for alert in alerts] == ["StreamingQueryFailed"] * 5
    assert len({alert.starts_at for alert in alerts}) == 1
