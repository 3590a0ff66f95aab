"""What /status shows, and whether all is ready."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest
from msgspec.structs import replace
from support.exporter_boards import MONITOR, WALL, board, full_board, full_story
from support.id_story import IdStory
from support.story import CONFLICT, Story, processing, run, source

from querypulse.alerting.evaluate import QueryHealth
from querypulse.alerting.finding import QueryState
from querypulse.alerting.outbox import outbox, talk
from querypulse.exporter.published_state import DELIVERY_OUTCOMES, LOSS_REASONS, STATES, Monitor
from querypulse.exporter.readiness import UNREADY, Reason, readiness
from querypulse.exporter.status import status

CONTRACT = [
    "name", "id", "run_id", "state", "reason", "last_commit_batch", "last_commit_age_seconds",
    "window_seconds", "batch_in_flight_seconds", "lag_offsets", "error_class",
]  # fmt: skip
ADDED = [
    "expected", "ignored", "started_at", "restarts", "trigger", "sink", "batch_in_flight",
    "last_idle_age_seconds", "recent_batch_seconds", "input_rows_per_second",
    "processed_rows_per_second", "lag_seconds", "last_input_age_seconds", "checkpoint_problem",
]  # fmt: skip


def queries(shown):
    return {query.name: query for query in status(shown).queries}


def as_json(shown):
    return msgspec.json.decode(msgspec.json.encode(status(shown)))


def with_health(shown, label, state, reason=""):
    health = {**shown.health, label: QueryHealth(QueryState(state), reason)}
    return msgspec.structs.replace(shown, health=health)


def test_the_states_and_outcomes_are_those_of_alerting():
    assert tuple(state.value for state in QueryState) == STATES
    assert talk.OUTCOMES == DELIVERY_OUTCOMES
    assert outbox.LOSSES == LOSS_REASONS


def test_json_has_the_fields_of_the_contract_and_what_the_page_needs_besides():
    shown = as_json(full_board())
    assert list(shown) == [
        "app",
        "spark_version",
        "queries",
        "alerts",
        "monitor",
        "at",
        "suppressed",
    ]
    assert all(list(query) == CONTRACT + ADDED for query in shown["queries"])
    assert (shown["app"], shown["spark_version"]) == ("shop", "4.0.0")


def test_a_busy_query_shows_its_commit_its_batch_and_the_sum_of_its_known_lags():
    busy = queries(full_board())["busy"]
    assert (busy.id, busy.run_id, busy.state) == ("id-busy", "busy-1", "running")
    assert busy.last_commit_batch == 7
    assert busy.last_commit_age_seconds == 30.0
    assert busy.last_input_age_seconds == 30.0
    assert busy.batch_in_flight_seconds == 20.0
    assert busy.lag_offsets == 42.0
    assert busy.window_seconds == 60.0
    assert busy.error_class is None


LAST = {"input_rows_per_second": 5.0, "sources": (source(5, 9),)}


@pytest.mark.parametrize(
    ("what", "story", "now"),
    [
        ("it failed", Story().commit(batch=0, at=10, **LAST).ended(at=20, exception=CONFLICT), 30),
        ("it stopped", Story().commit(batch=0, at=10, **LAST).ended(at=20), 30),
        ("it hangs", Story().commit(batch=0, at=10, **LAST).probe(processing(batch=1), at=80), 80),
        ("its last batch is long ago", Story().commit(batch=0, at=10, **LAST).idle(at=80), 80),
    ],
)
def test_a_rate_of_the_past_is_not_shown_as_one_of_the_present(what, story, now):
    assert queries(board(story, now=now))["a"].input_rows_per_second is None, what


@pytest.mark.parametrize(
    ("what", "story", "now", "lag"),
    [
        ("it failed", Story().commit(batch=0, at=10, **LAST).ended(at=20, exception=CONFLICT), 30, None),
        ("it hangs", Story().commit(batch=0, at=10, **LAST).probe(processing(batch=1), at=80), 80, None),
        ("it runs", Story().commit(batch=0, at=10, **LAST), 30, 4),
        ("it is idle, which proves it", Story().commit(batch=0, at=10, **LAST).idle(at=80), 90, 4),
    ],
)  # fmt: skip
def test_lag_as_spark_reported_it_is_shown_while_it_is_of_the_present(what, story, now, lag):
    assert queries(board(story, now=now))["a"].lag_offsets == lag, what


def test_lag_at_the_broker_is_shown_of_a_dead_query_too():
    story = Story().commit(batch=0, at=10, **LAST).ask(at=20, committed=5, latest=45)
    story.ended(at=25, exception=CONFLICT)

    assert queries(board(story, now=30))["a"].lag_offsets == 40


def test_the_moment_and_the_start_of_a_run_are_iso_8601():
    shown = full_board()
    assert status(shown).at == "2023-11-14T22:13:20.000+00:00"
    assert queries(shown)["busy"].started_at == "2023-11-14T22:11:50.000+00:00"
    assert queries(shown)["absent"].started_at is None


def test_a_busy_query_shows_how_it_runs_and_how_its_batches_went():
    busy = queries(full_board())["busy"]
    assert (busy.expected, busy.ignored, busy.restarts) == (True, False, 0)
    assert (busy.trigger, busy.sink) == ("ProcessingTime(10 s)", "noop")
    assert (busy.batch_in_flight, busy.recent_batch_seconds) == (8, (2.0,))
    assert (busy.input_rows_per_second, busy.processed_rows_per_second) == (50.0, 500.0)
    assert busy.last_idle_age_seconds is None


def test_an_idle_query_shows_since_when_it_was_seen_to_have_nothing_to_do():
    story = Story().started(at=0).commit(batch=1, at=10).idle(at=90)
    assert queries(board(story))["a"].last_idle_age_seconds == 10.0


def test_the_last_thirty_batches_are_shown_as_they_were_and_outlive_a_restart():
    story = Story().started(at=0)
    for batch in range(40):
        story.commit(batch=batch, at=batch, seconds=1.0)
    story.commit(batch=40, at=40, seconds=500.0).started(run=2, at=50)
    shown = queries(board(story))["a"].recent_batch_seconds
    assert shown == (*(1.0,) * 29, 500.0)


def test_who_is_ignored_and_who_is_on_the_roster_is_shown():
    shown = board(Story().started(at=0).started("b", at=0), expected=("b",))
    reported = {query.name: (query.expected, query.ignored) for query in status(shown).queries}
    assert reported == {"a": (False, False), "b": (True, False)}
    ignored = {**shown.health, "a": QueryHealth(QueryState.IDLE, ignored=True)}
    assert queries(msgspec.structs.replace(shown, health=ignored))["a"].ignored is True


def test_a_dead_query_shows_its_error_and_no_batch_in_flight():
    dead = queries(full_board())["dead"]
    assert (dead.state, dead.error_class) == ("failed", "ConcurrentAppendException")
    assert "ConcurrentAppendException" in dead.reason
    assert dead.batch_in_flight_seconds is None


def test_the_error_of_an_earlier_run_stays_until_the_next_run_recovers():
    story = Story().started(at=0).ended(at=10, exception=CONFLICT).started(run=2, at=20)
    assert queries(board(story))["a"].error_class == "ConcurrentAppendException"
    story.commit(run=2, batch=1, at=30)
    assert queries(board(story))["a"].error_class is None


def test_asking_for_offsets_is_not_a_batch_in_flight():
    asking = run(message="Getting offsets from KafkaV2", busy=True)
    story = Story().started(at=0).probe(asking, at=10)
    assert queries(board(story))["a"].batch_in_flight_seconds is None


def test_a_query_on_the_roster_is_shown_before_anybody_has_seen_it():
    absent = queries(full_board())["absent"]
    assert (absent.id, absent.run_id, absent.last_commit_batch) == (None, None, None)
    assert (absent.state, absent.reason) == ("starting", "expected, not seen yet")
    assert queries(full_board(now=500.0))["absent"].state == "missing"


def test_queries_without_a_health_are_shown_as_not_evaluated_yet():
    shown = msgspec.structs.replace(full_board(), health={})
    assert {query.state for query in status(shown).queries} == {"starting"}
    assert {query.name for query in status(shown).queries} == {"busy", "dead", "absent"}


def test_a_state_is_plain_text_and_not_an_enum_member():
    assert all(type(query.state) is str for query in status(full_board()).queries)


def test_an_unnamed_query_goes_by_its_short_id():
    story = Story()
    story.probe(run(None), at=1)
    assert list(queries(board(story))) == ["id-None"]


def test_alerts_report_when_they_began_in_iso_8601():
    (alert,) = as_json(full_board())["alerts"]
    assert alert["labels"] == {
        "alertname": "StreamingQueryFailed", "app": "shop", "query": "dead", "severity": "critical",
    }  # fmt: skip
    assert alert["annotations"]["summary"]
    assert alert["starts_at"] == "2023-11-14T22:13:20.000+00:00"


def test_the_monitor_shows_all_its_facts():
    shown = as_json(full_board())["monitor"]
    assert set(shown) == set(Monitor.__struct_fields__)
    assert (shown["listener_path"], shown["listener_registered"]) == ("bus_queue", True)
    assert shown["heartbeat_timestamp"] == WALL - 0.5
    assert shown["deliveries"] == {"webhook": {"delivered": 5, "transient": 2}, "pagerduty": {}}
    assert shown["alerts_lost"] == {"webhook": {}, "pagerduty": {"rejected": 1}}
    assert shown["circuits_open"] == {"webhook": True, "pagerduty": False}
    assert shown["spool_problem"] == "/spool: no space left on device"
    assert shown["app_name_problem"] == "the app is called 'pyspark-shell'"
    assert shown["probe_duration_seconds"] == {
        "count": 2,
        "total_seconds": 0.32,
        "p99_seconds": 0.5,
    }
    assert shown["callback_duration_seconds"]["p99_seconds"] == 1.0


def test_an_empty_board_has_a_status():
    assert as_json(board(monitor=Monitor()))["queries"] == []


@pytest.mark.parametrize("state", STATES)
def test_each_state_makes_ready_or_unready(state):
    story = Story().started(at=0).commit(batch=1, at=10)
    answer = readiness(with_health(board(story), "a", state, "because"))
    unready = state in (
        "failed", "missing", "stopped_unexpectedly", "stalled", "flapping", "rewound", "starting",
    )  # fmt: skip
    assert unready == (state in UNREADY)
    assert answer.ready is not unready
    assert answer.reasons == ((Reason("a", state, "because"),) if unready else ())


def test_ready_needs_every_query_of_the_roster_and_every_other():
    answer = readiness(full_board())
    assert [(reason.query, reason.state) for reason in answer.reasons] == [
        ("dead", "failed"),
        ("absent", "starting"),
    ]


def test_nothing_is_ready_before_the_first_poll():
    assert readiness(None).ready is False


def test_a_driver_without_queries_and_roster_is_ready():
    assert readiness(board()).ready is True


def test_a_roster_that_was_never_evaluated_is_not_ready():
    shown = msgspec.structs.replace(board(expected=("a",)), health={})
    assert readiness(shown).reasons == (Reason("a", "starting", "not evaluated yet"),)


def test_showing_changes_nothing():
    shown = full_board()
    assert as_json(shown) == as_json(shown)
    assert shown.monitor == MONITOR
    assert shown.snapshot == full_story().state.snapshot(100.0)


def test_a_long_name_is_shown_once_and_bounded_also_while_it_is_only_expected():
    """L24"""
    name = "n" * 10_000
    absent = status(board(expected=(name,)))
    present = status(
        board(Story().started(name, at=0).commit(name, batch=0, at=1), expected=(name,))
    )

    for shown in (absent, present):
        (query,) = shown.queries
        assert (len(query.name), query.expected) == (100, True)


def test_two_queries_of_one_expected_name_are_both_expected():
    story = IdStory().start("11111111", "r1", at=0, session="s1")
    story.start("22222222", "r2", at=1, session="s2")

    shown = {query.name: query.expected for query in status(board(story, expected=("q",))).queries}
    assert shown == {"q": True, "q-22222222": True}


def test_what_is_suppressed_names_what_suppresses_it():
    def alert(alertname, query, reason):
        labels = {"alertname": alertname, "query": query}
        return SimpleNamespace(labels=labels, annotations={"reason": reason}, starts_at=0.0)

    pair = SimpleNamespace(
        alert=alert("StreamingBatchSlow", "a", "slow"),
        by=alert("StreamingQueryStalled", "*", "silent"),
    )
    (shown,) = as_json(replace(full_board(), suppressed=(pair,)))["suppressed"]

    assert shown == {
        "alertname": "StreamingBatchSlow", "query": "a", "reason": "slow",
        "by_alertname": "StreamingQueryStalled", "by_query": "*",
    }  # fmt: skip
