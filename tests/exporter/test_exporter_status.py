"""The contents of /status, readiness, and what a notebook shows of it."""

from __future__ import annotations

import re
from types import SimpleNamespace

import msgspec
from msgspec.structs import replace
from support.published_states import MONITOR, PROCESS, WALL, full_published, published
from support.story import CONFLICT, IdStory, Story, run

from querypulse.alerting.finding import QueryHealth
from querypulse.core.installed import VERSION
from querypulse.core.states import STATES, QueryState
from querypulse.exporter.published_state import Monitor, Pushes, process_of
from querypulse.exporter.status import (
    MAX_ROWS,
    UNREADY,
    Reason,
    notebook_page,
    status,
    why_unready,
)
from querypulse.listener.foresight.tasks import QueryTasks, TaskSums
from querypulse.listener.probe_report import Context


def queries(shown):
    return {query.name: query for query in status(shown).queries}


def of_a(story):
    return queries(published(story))["a"]


def as_json(shown):
    return msgspec.json.decode(msgspec.json.encode(status(shown)))


def with_health(shown, state, reason="", *, ignored=False):
    health = QueryHealth(QueryState(state), reason=reason, ignored=ignored)
    return replace(shown, health={**shown.health, "a": health})


def test_process_has_an_id_of_its_own_and_its_start():
    own, fork = process_of(1), process_of(2)

    assert process_of(1) is own
    assert own.id != fork.id
    assert as_json(full_published())["process"] == {
        "id": PROCESS.id,
        "started_at": "2023-11-14T21:13:20.000+00:00",
    }


def figures_of(value):
    """Every figure in a piece of JSON."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [figure for part in value for figure in figures_of(part)]
    return [value] if isinstance(value, float) else []


def test_status_names_the_version_of_querypulse():
    assert as_json(full_published())["version"] == VERSION


def test_figures_have_at_most_milliseconds_and_the_microseconds_of_callbacks():
    third = Story().started(at=1 / 3).commit(batch=0, at=71.647780807000345, seconds=2 / 3)
    shown = replace(published(third, now=100.0), wall=WALL + 1 / 3)
    (query,) = as_json(shown)["queries"]

    assert query["last_commit_age_seconds"] == 28.352
    assert query["recent_batch_seconds"] == [0.667]
    monitor = as_json(full_published(monitor=replace(MONITOR, probe_age_seconds=1 / 3)))["monitor"]
    assert monitor["probe_age_seconds"] == 0.333
    assert monitor["callback_duration_seconds"]["total_seconds"] == 0.50001
    long = [figure for figure in figures_of(as_json(shown)) if figure != round(figure, 6)]
    assert long == []


def test_what_is_not_there_is_null_in_every_field_but_the_reason_of_a_state():
    """A script that asks ``if problem is None`` must not meet two forms of nothing."""

    def empty(value, place=""):
        if isinstance(value, dict):
            value = list(value.items())
        if isinstance(value, list):
            parts = [part if isinstance(part, tuple) else ("", part) for part in value]
            return {name for key, part in parts for name in empty(part, key or place)}
        return {place} if value == "" else set()

    story = Story().supervised("a").probe(run("a"), run("b"), at=0).commit(batch=0, at=90)
    monitor = Monitor(pushes={"gateway": Pushes()})

    assert empty(as_json(published(story, monitor=monitor, expected=("c",)))) == {"reason"}


def test_last_thirty_batches_are_shown_and_survive_a_restart():
    story = Story().started(at=0)
    for batch in range(40):
        story.commit(batch=batch, at=1 + batch, seconds=1.0)
    story.commit(batch=40, at=540, seconds=500.0).started(run=2, at=550)

    assert of_a(story).recent_batch_seconds == (*(1.0,) * 29, 500.0)


def test_cost_of_a_query_is_its_part_of_all_tasks_and_those_of_no_query_are_shown_as_such():
    spent = {"a": 30.0, "b": 10.0, "idle": 0.0}
    runs = [
        run(name, finished=QueryTasks(TaskSums(tasks=4, cpu_seconds=seconds, spilled_bytes=7)))
        for name, seconds in spent.items()
    ]
    story = Story().probe(*runs, run("uncounted"), at=10, unowned=TaskSums(cpu_seconds=10.0))
    shown = status(published(story))
    costs = {query.name: query.cost for query in shown.queries}

    assert costs.pop("uncounted") is None
    assert {name: cost.cpu_share for name, cost in costs.items()} == {"a": 0.6, "b": 0.2, "idle": 0}
    assert shown.unowned_cost.cpu_share == 0.2
    assert (costs["a"].tasks, costs["a"].spilled_bytes) == (4, 7)


def test_share_of_no_cost_at_all_is_unknown():
    story = Story().probe(run("a", finished=QueryTasks()), at=10)

    assert status(published(story)).queries[0].cost.cpu_share is None


def test_ignored_and_expected_queries_are_marked():
    shown = published(Story().started(at=0).started("b", at=0), expected=("b",))
    marks = {name: (query.expected, query.ignored) for name, query in queries(shown).items()}

    assert marks == {"a": (False, False), "b": (True, False)}
    assert queries(with_health(shown, "idle", ignored=True))["a"].ignored


def test_error_of_an_earlier_run_stays_until_the_next_run_commits():
    story = Story().started(at=0).ended(at=10, exception=CONFLICT).started(run=2, at=20)
    assert of_a(story).error_class == "ConcurrentAppendException"
    assert of_a(story.commit(run=2, batch=1, at=30)).error_class is None


def test_query_that_is_idle_or_polls_for_offsets_is_shown_so():
    asking = run(message="Getting offsets from KafkaV2", busy=True)
    idle = Story().started(at=0).commit(batch=1, at=10).idle(at=90)

    assert of_a(idle).last_idle_age_seconds == 10.0
    assert of_a(Story().started(at=0).probe(asking, at=10)).batch_in_flight_seconds is None


def test_each_state_is_ready_or_unready():
    shown = published(Story().started(at=0).commit(batch=1, at=10))
    answers = {state: why_unready(with_health(shown, state, "because")) for state in STATES}
    unready = {
        "failed",
        "missing",
        "stopped_unexpectedly",
        "stalled",
        "flapping",
        "rewound",
        "starting",
    }
    assert unready == set(UNREADY)
    assert answers == {
        state: [Reason("a", state, "because")] if state in unready else [] for state in STATES
    }


def test_driver_without_its_jvm_is_not_ready_whatever_its_queries_are():
    ended = Story().started(at=0).probe(at=1, context=Context.JVM_GONE)

    assert why_unready(published(ended)) == [
        Reason(None, "missing", "the JVM of the driver has ended")
    ]
    assert why_unready(published(ended.probe(at=2, context=Context.STOPPED_BY_APPLICATION))) == []


def test_expected_query_that_was_never_evaluated_is_not_ready():
    shown = replace(published(expected=("a",)), health={})
    assert why_unready(shown) == [Reason("a", "starting", "not evaluated yet")]


def test_name_is_shown_once_and_shortened_and_an_unnamed_query_by_its_id():
    name = "n" * 10_000
    present = Story().started(name, at=0).commit(name, batch=0, at=1)
    for shown in (published(expected=(name,)), published(present, expected=(name,))):
        (query,) = status(shown).queries
        assert (len(query.name), query.expected) == (100, True)
    assert list(queries(published(Story().probe(run(None), at=1)))) == ["id-None"]


def test_two_queries_with_one_expected_name_are_both_expected():
    story = IdStory().start("11111111", "r1", at=0, session="s1")
    story.start("22222222", "r2", at=1, session="s2")
    shown = queries(published(story, expected=("q",)))

    assert {name: query.expected for name, query in shown.items()} == {
        "q": True,
        "q-22222222": True,
    }


def test_suppressed_alert_names_the_suppressing_one():
    def alert(alertname, query, reason):
        labels = {"alertname": alertname, "query": query}
        return SimpleNamespace(labels=labels, annotations={"reason": reason}, starts_at=0.0)

    pair = SimpleNamespace(
        alert=alert("StreamingBatchSlow", "a", "slow"),
        by=alert("StreamingQueryStalled", "*", "silent"),
    )
    (shown,) = as_json(replace(full_published(), inhibited=(pair,)))["suppressed"]

    assert shown == {
        "alertname": "StreamingBatchSlow",
        "query": "a",
        "reason": "slow",
        "by_alertname": "StreamingQueryStalled",
        "by_query": "*",
    }


# -- in a notebook ----------------------------------------------------------------------------


def rows(shown):
    """The text of each row but the first."""
    page = notebook_page(status(shown), None)
    return [re.findall("<td>(.*?)</td>", row) for row in page.split("<tr>")[2:]]


def test_unhealthy_queries_come_first_with_reason_age_and_alerts():
    dead, busy, absent = rows(full_published())

    assert dead[:2] == ["dead", "failed"]
    assert dead[3:] == ["", "StreamingQueryFailed"]
    assert busy == ["busy", "running", "", "30 s ago", ""]
    assert absent[0] == "absent"


def test_text_is_escaped():
    shown = replace(published(Story().started("<script>", at=0)), app="<b>&")
    page = notebook_page(status(shown), "http://h/?a=1&b=2")

    assert "<script>" not in page
    assert "&lt;b&gt;&amp;" in page
    assert 'href="http://h/?a=1&amp;b=2"' in page


def test_rows_are_bounded_and_alerts_of_the_driver_follow():
    story = Story()
    for number in range(MAX_ROWS + 3):
        story.started(f"q{number}", at=0)
    shown = published(story)
    (alert,) = full_published().alerts
    driver = replace(alert, labels={**alert.labels, "query": "*"})
    *queries, more, last = rows(replace(shown, alerts=(driver,)))

    assert len(queries) == MAX_ROWS
    assert more[0] == "and 3 more"
    assert (last[0], last[-1]) == ("*", "StreamingQueryFailed")
