"""Whatever happens to events on their way, the verdict in the end is the true one."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st
from support.recorded import recorded
from support.story import CONFLICT, Story, processing, progress, run, source

from querypulse.alerting.lifecycle.guidance import Guidance
from querypulse.alerting.lifecycle.lifecycle import Lifecycle, LifecycleSettings
from querypulse.listener.commit_log import LoggedBatches, LogReport
from querypulse.listener.decode import DecodeError, decode
from querypulse.listener.events import EventKind, Idle, Started, Terminated
from querypulse.listener.probing import Context, ProbeReport
from querypulse.listener.state import State

RUN_SECONDS = 40
AFTERMATH_SECONDS = 200
ENDS = ("commits", "idles", "hangs", "dies", "stops")


def history(ends):
    """A true history: each run commits every 5 s for 40 s, then ends as told; 5 s between runs.

    Gives the events as (at, event) and the probe's looks as (at, run or None), every 2 s.
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
            flying = batch + sum(1 for moment in done if moment <= at)
            polls.append((at, _poll(number, end, flying, over, at)))
        batch += len(done)
        if end == "idles":
            events += [(at, Idle("id-a", f"a-{number}")) for at in range(over, until, 10)]
        if end in ("dies", "stops"):
            exception = CONFLICT if end == "dies" else None
            events.append((over, Terminated("id-a", f"a-{number}", exception, None)))
    return events, polls


def _poll(number, end, flying, over, at):
    if at < over or end == "commits":
        return processing(number=number, batch=flying)
    if end == "hangs":
        return processing(number=number, batch=flying)
    if end == "idles":
        return run(number=number, batch=flying)
    exception = CONFLICT if end == "dies" else None
    return run(number=number, active=False, batch=flying, exception=exception)


TRUTH = {
    "commits": (set(), "running"),
    "idles": (set(), "idle"),
    "hangs": ({"StreamingQueryStalled"}, "stalled"),
    "dies": ({"StreamingQueryFailed"}, "failed"),
    "stops": ({"StreamingQueryStopped"}, "stopped_unexpectedly"),
}
ABOUT_US = {"QuerypulseEventsMissing", "QuerypulseMonitoringDegraded"}


@st.composite
def mishaps(draw):
    """How the runs end, and for each event: lost, told twice, and how late (seconds)."""
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


@given(mishaps())
def test_loss_doubles_and_delay_of_events_never_change_the_final_health(mishap):
    ends, received, polls = mishap
    state = State(0.0)
    reported = [(at, "event", event) for at, event in received] + [
        (at, "look", seen) for at, seen in polls
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
    # A crash loop is another verdict, which the table has.
    return story.evaluate(now, restart_budget=9)


@given(st.permutations(range(6)))
def test_the_order_of_events_within_a_tick_does_not_matter(order):
    """Spark tells a start at once, all else by one queue, and we read births and deaths first."""
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


@given(st.lists(st.tuples(st.floats(0, 500), OBSERVATIONS), max_size=30))
def test_folding_and_evaluating_never_raise_whatever_comes(observations):
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


@given(st.sampled_from(recorded(shape="json")), st.integers(0, 2000), st.binary(max_size=3))
def test_damaged_events_are_refused_or_read_and_never_raise_otherwise(event, place, junk):
    kind, text = event
    damaged = text.encode()[:place] + junk + text.encode()[place + len(junk) :]
    try:
        Story().state.apply_event(decode(EventKind(kind), damaged), 1.0)
    except DecodeError:
        return


@given(st.lists(st.sampled_from((-3600.0, 3600.0, 0.0)), min_size=5, max_size=5))
def test_a_wall_clock_that_jumps_changes_no_health_and_no_beginning(jumps):
    story = Story().started(at=0).ended(at=1, exception=CONFLICT)
    lifecycle, wall = (
        Lifecycle("etl", Guidance("https://r/{alertname}.md"), LifecycleSettings()),
        itertools.accumulate((1e9, *jumps)),
    )

    reported = [
        lifecycle.update(story.evaluate(now), story.state.snapshot(now), now, next(wall))
        for now in (2, 3, 4, 5, 6)
    ]

    assert [[incident.name for incident in round_] for round_ in reported] == [
        ["StreamingQueryFailed"]
    ] * 5
    assert len({incident.starts_at for round_ in reported for incident in round_}) == 1
