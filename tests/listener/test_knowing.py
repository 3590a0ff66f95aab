"""The state of a query follows from the observations, in whatever order the signals arrive."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from support.story import CONFLICT, Story, processing, run

from querypulse.listener.events import Started
from querypulse.listener.probe_report import Context, Trigger, short_sink
from querypulse.listener.state.run import Outcome
from querypulse.listener.state.state import KEEP_COMPLETED_SECONDS

BY_POLL = Story().started(at=0).probe(run(batch=0), at=1).probe(run(batch=1), at=2)
COMMITS = {
    "an event": (Story().started(at=0).commit(batch=0, at=5), (0, 5, 1)),
    "polls, by the batch id alone": (Story().probe(processing(batch=3), at=1).probe(processing(batch=5), at=2), (4, 2, 2)),
    "the first poll, without its time": (Story().probe(processing(batch=9), at=1), (8, None, 0)),
    "an event after the poll that showed it": (BY_POLL.commit(batch=0, at=30), (0, 2, 1)),
}  # fmt: skip


@pytest.mark.parametrize(("story", "expected"), COMMITS.values(), ids=COMMITS)
def test_commit_counts_once_with_the_time_of_the_signal_that_shows_it_first(story, expected):
    query = story.query()

    assert (
        query.checkpoint.last_commit_batch,
        query.run.last_commit_at,
        query.history.totals.commits,
    ) == expected


def test_commit_is_activity_and_its_late_event_still_shows_how_long_the_batch_took():
    assert Story().started(at=0).commit(batch=0, at=5).query().run.last_activity_at == 5
    assert BY_POLL.query().history.longest_batches == ((0, 1.0),)


def test_batch_committed_again_after_a_restart_is_no_new_commit():
    story = Story().started(at=0).commit(batch=4, at=1).ended(at=2, exception=CONFLICT)
    query = story.started(run=2, at=3).commit(run=2, batch=4, at=9).query()

    assert (query.run.last_commit_at, query.history.totals.commits) == (9, 1)


def test_failure_reported_after_the_next_start_remains_until_the_new_run_is_active():
    story = Story().started(at=0).commit(batch=1, at=1).started(run=2, at=5)
    story.ended(at=8, exception=CONFLICT).ended(at=9, exception=CONFLICT)

    query = story.query()
    assert query.run.alive
    assert query.failure.failure.error_class == "ConcurrentAppendException"
    assert (
        query.history.totals.failed,
        len(query.history.failures),
        query.history.unrecovered_failures,
    ) == (1, 1, 1)
    assert story.commit(run=2, batch=2, at=10).query().failure is None
    late = Story().started(at=0).started(run=2, at=5).commit(run=2, batch=2, at=6)
    query = late.ended(at=8, exception=CONFLICT).query()
    assert (query.failure, query.history.unrecovered_failures, len(query.history.failures)) == (
        None,
        0,
        1,
    )


def test_first_signal_reports_a_failure_and_later_ones_do_not_change_it():
    story = Story().started(at=0).probe(run(), at=1)
    story.probe(run(active=False, exception=CONFLICT), at=2)
    first = story.query().run.ended
    story.ended(at=40, exception=CONFLICT).ended(at=41)

    assert story.query().run.ended == first
    assert (first.at, first.signal, first.outcome) == (2, "probe", Outcome.FAILED)
    assert story.query().history.totals.failed == 1


WEEK = 7 * 24 * 3600


@pytest.mark.parametrize(
    ("story", "alert"),
    [
        (Story().probe(run(), at=0).ended(at=1), "StreamingQueryStopped"),
        (Story().probe(run(), at=0).probe(at=1).probe(at=2), "StreamingQueryStopped"),
        (Story().started(at=0).ended(at=1), "StreamingQueryStopped"),
        (Story().started(at=0).ended(at=1, exception=CONFLICT), "StreamingQueryFailed"),
    ],
    ids=["stopped", "vanished", "ended under an unknown trigger", "failed"],
)
def test_query_that_ended_unexpectedly_is_not_forgotten_so_its_alert_does_not_resolve(story, alert):
    before = story.evaluate(WEEK, expected=["a"]).findings
    story.state.forget(WEEK)

    assert [finding.alertname for finding in before] == [alert]
    assert story.evaluate(WEEK, expected=["a"]).findings == before


def test_completed_query_is_forgotten_after_a_while():
    story = Story().probe(run(trigger="AvailableNowTrigger"), at=0).ended(at=1)
    story.state.forget(KEEP_COMPLETED_SECONDS)
    assert story.query()
    story.state.forget(KEEP_COMPLETED_SECONDS + 2)

    assert story.state.snapshot(0).queries == ()


def test_run_that_a_poll_lacks_has_vanished_until_one_shows_it_unless_it_began_during_the_poll():
    assert Story().started(at=5).probe(at=5).query().run.alive
    story = Story().started(at=0).probe(run(), at=1).probe(at=2)
    assert (story.query().run.vanished_at, story.query().run.alive) == (2, False)

    assert story.probe(run(), at=3).query().run.alive


def test_waiting_run_is_idle_at_each_poll_and_stays_alive_without_a_new_one():
    story, waiting = Story(), run()
    for at in (1, 3, 5):
        story.report(waiting, at=at)
    query = story.query()
    assert (query.run.alive, query.run.last_idle_at, query.run.probed_at) == (True, 1, 1)

    assert story.probe(waiting, at=7).query().run.last_idle_at == 7


SHUT_DOWN = "org.apache.spark.SparkException: Job 6 cancelled because SparkContext was shut down"


@pytest.mark.parametrize(
    ("trigger", "exception", "context", "outcome"),
    [
        ("ProcessingTimeTrigger(0)", None, Context.RUNNING, Outcome.STOPPED),
        ("OneTimeTrigger", None, Context.RUNNING, Outcome.COMPLETED),
        ("AvailableNowTrigger", None, Context.RUNNING, Outcome.COMPLETED),
        ("ContinuousTrigger(1000)", None, Context.RUNNING, Outcome.STOPPED),
        ("ProcessingTimeTrigger(0)", SHUT_DOWN, Context.STOPPED, Outcome.STOPPED),
        ("ProcessingTimeTrigger(0)", SHUT_DOWN, Context.RUNNING, Outcome.FAILED),
        ("ProcessingTimeTrigger(0)", CONFLICT, Context.STOPPED, Outcome.FAILED),
    ],
)
def test_end_is_completed_for_a_finite_trigger_and_no_failure_after_its_own_spark_stop(
    trigger, exception, context, outcome
):
    story = Story().probe(run(trigger=trigger), at=0).ended(at=1, exception=exception, context=context)  # fmt: skip

    assert story.query().run.ended.outcome is outcome


MISSING = "java.io.FileNotFoundException: File offsets does not exist"


def test_failure_that_only_the_probe_shows_while_shutdown_hooks_run_does_not_count():
    """The hooks delete temporary checkpoints, once the listener bus has stopped."""
    story = Story().probe(run(), at=0)
    story.probe(run(active=False, exception=MISSING), at=1, context=Context.TERMINATED)

    assert story.query().run.ended is None
    assert story.evaluate(100).findings == ()


@pytest.mark.parametrize("order", ["event, then probe", "probe, then event"])
def test_failure_with_an_event_counts_while_shutdown_hooks_run(order):
    story, hooks = Story().probe(run(), at=0), {"context": Context.TERMINATED}
    failed = run(active=False, exception=CONFLICT)
    if order.startswith("probe"):
        story.probe(failed, at=1, **hooks).ended(at=1, exception=CONFLICT, **hooks)
    else:
        story.ended(at=1, exception=CONFLICT, **hooks).probe(failed, at=1, **hooks)

    assert story.query().run.ended.outcome is Outcome.FAILED


@pytest.mark.parametrize("context", [context for context in Context if context not in (Context.TERMINATED, Context.JVM_GONE)])  # fmt: skip
def test_failure_that_only_the_probe_shows_counts_otherwise(context):
    story = Story().probe(run(), at=0)
    story.probe(run(active=False, exception=MISSING), at=1, context=context)

    assert story.query().run.ended.outcome is Outcome.FAILED


def test_second_longest_batch_of_two_days_is_usual_and_takes_constant_space():
    """Every other hour one batch is long, and a minute shorter than the last; the rest take 1 s."""
    story, usual = Story().started(at=0), {}
    for number in range(60 * 60):
        hour, minute = divmod(number, 60)
        long = 3600.0 - 30 * hour if hour % 2 and not minute else 1.0
        story.commit(batch=number, at=3600 * hour + 60 * minute + 3590 * (long > 1), seconds=long)
        usual[hour] = story.query().history.usual_seconds
    hours = [hour for hour, _ in story.query().history.longest_batches]

    assert (usual[0], usual[1]) == (1.0, 1.0)
    assert all(usual[hour] > 1000 for hour in range(3, 60))
    assert max(map(hours.count, hours)) == 2
    assert hours[0] >= hours[-1] - 49


@pytest.mark.parametrize(
    ("story", "seconds"),
    [
        (Story().started(at=0).commit(batch=0, at=5, seconds=7200.0), (5.0,)),
        (Story().started(at=0).commit(batch=0, at=5).commit(batch=1, at=9, seconds=7200.0), (1.0, 4.0)),
        (Story().started(at=0).commit(batch=0, at=5).commit(batch=1, at=9, seconds=-60.0), (1.0, 0.0)),
        (Story().commit(batch=7, at=5, seconds=60.0), (0.0,)),
        (Story().started(at=0).commit(batch=0, at=5).probe(run(batch=2), at=9).commit(batch=1, at=70, seconds=4.0), (1.0, 4.0)),
    ],
    ids=["first of a run", "the clock was set ahead", "the clock was set back", "attached meanwhile", "its event is late"],
)  # fmt: skip
def test_batch_takes_at_most_as_long_as_it_was_observed(story, seconds):
    assert story.query().history.recent_batches == seconds
    assert story.query().history.totals.batch_seconds == sum(seconds)


@pytest.mark.parametrize(
    ("arrivals", "counted"),
    [
        ([(100, 100)] * 3, (100, 100, 100)),
        ([(100, 100), (400, 100), (400.001, 100), (400.002, 100)], (100, 100, 100, 100)),
        ([(100, 90), (400, 100), (400.001, 100), (400.002, 7200)], (90, 100, 100, 400)),
        ([(100, 10), (400, 10), (500, 7200)], (10, 10, 100)),
        ([(number // 2, 0.5) for number in range(2, 8)], (0.5,) * 6),
    ],
    ids=["all at once", "late together", "the clock was set ahead meanwhile", "the clock was set ahead long after", "two in each poll"],
)  # fmt: skip
def test_batches_that_arrive_together_take_at_most_as_long_as_their_run(arrivals, counted):
    story = Story().started(at=0)
    for batch, (at, seconds) in enumerate(arrivals):
        story.commit(batch=batch, at=at, seconds=seconds)

    assert story.query().history.recent_batches == pytest.approx(counted, abs=0.01)


def test_sink_is_shown_by_its_distinctive_part():
    shown = {
        "NoopTable": "NoopTable",
        "org.apache.spark.sql.execution.datasources.noop.NoopTable$": "NoopTable",
        "org.apache.spark.sql.kafka010.KafkaSourceProvider$KafkaTable@3f1a": "KafkaSourceProvider$KafkaTable",
        "FileSink[/data/out.v1]": "FileSink[/data/out.v1]",
        "": "",
    }

    assert {text: short_sink(text) for text in shown} == shown


def test_progress_recorded_between_two_polls_is_a_sign_of_life():
    story = Story()
    for at, mark in [(0, ""), (1, "2026-01-01T00:00:01Z"), (2, "2026-01-01T00:00:01Z")]:
        story.probe(run(message="Getting offsets from X", last_progress_mark=mark), at=at)
    assert not story.query().run.activity_seen
    story.probe(
        run(message="Getting offsets from X", last_progress_mark="2026-01-01T00:00:11Z"), at=3
    )

    assert story.query().run.last_idle_at == 3


def test_monitors_own_pauses_are_not_watched_time():
    snapshot = Story().paused(at=100, seconds=60).paused(at=300, seconds=50).state.snapshot(400)

    assert snapshot.watched(0, 400) == 290
    assert snapshot.watched(80, 400) == 320 - 20 - 50
    assert snapshot.watched(300, 400) == 100


@pytest.mark.fault(
    "Spark and its listeners",
    "Spark's bus dropped events before `attach`",
    "They are not reported as lost afterwards",
)
def test_events_dropped_before_the_first_count_are_ignored():
    """A driver may have dropped events long before we attached to it."""
    for counts in ([37], [37, 37, 37], [None, None], [None, 37], [None, 37, 37], [0, None]):
        story = Story()
        for at, dropped in enumerate(counts, 1):
            story.probe(run(), at=at, dropped=dropped)

        assert story.state.snapshot(9).events_dropped_at is None
        assert story.evaluate(9).findings == ()


@pytest.mark.fault(
    "Spark and its listeners",
    "Spark's bus overflows and drops events",
    "The drops are counted and reported",
)
def test_events_dropped_since_the_last_poll_are_reported():
    story = Story().probe(run(), at=1, dropped=None).probe(run(), at=2, dropped=37)
    story.probe(run(), at=3, dropped=38).probe(run(), at=4, dropped=38)

    assert story.state.snapshot(9).events_dropped_at == 3
    assert [finding.alertname for finding in story.evaluate(9).findings] == [
        "QuerypulseEventsMissing"
    ]


def begun(*, session="s-1", trigger="ProcessingTimeTrigger(5000)", story=None, number=1):
    """A run that has started and that the probe has not seen yet."""
    story = story or Story()
    story.state.apply_event(Started("id-a", f"a-{number}", "a", session, trigger), number)
    return story


def probed(story, *, session="", trigger="Unknown"):
    seen = run(trigger=trigger)
    return story.probe(replace(seen, facts=replace(seen.facts, session=session)), at=1)


EVERY_5_S, ONCE = Trigger("ProcessingTime", 5.0), {"session": "s-2", "trigger": "OneTimeTrigger"}
KNOWN_OF = {
    "the start": (begun(), "s-1", EVERY_5_S),
    "neither start nor probe": (begun(session="", trigger=""), "", None),
    "a probe that cannot read them either": (probed(begun(session="", trigger="")), "", None),
    "a probe that cannot read them": (probed(begun()), "s-1", EVERY_5_S),
    "the probe": (probed(begun(), **ONCE), "s-2", Trigger("Once")),
    "the next start": (begun(story=begun(), number=2, **ONCE), "s-2", Trigger("Once")),
}


@pytest.mark.parametrize(("story", "session", "trigger"), KNOWN_OF.values(), ids=KNOWN_OF)
def test_session_and_trigger_are_those_of_the_probe_else_of_the_start(story, session, trigger):
    query = story.query()

    assert (query.run.session, query.run.trigger) == (session, trigger)
