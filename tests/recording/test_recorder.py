"""What is recorded of an incident, and what is not."""

from __future__ import annotations

import json
import math
from itertools import pairwise

import pytest
from msgspec.structs import replace
from support.planted import PLANTED
from support.recorded import RecordedWorker, final_states
from support.story import processing, progress

from querypulse.alerting.silences import Silence
from querypulse.core.redaction import Redactor
from querypulse.listener.events import Terminated
from querypulse.listener.mailbox import ExpectEnd, ExpectStop, Forget
from querypulse.recording import recorder as module
from querypulse.recording.lines import (
    AlertChanged,
    Change,
    End,
    Event,
    How,
    Notification,
    Request,
    Silenced,
    Stack,
    State,
    decode,
)
from querypulse.recording.states import query_state, snapshot_of

# -- nothing to record ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "live",
    [
        pytest.param(lambda worker: worker, id="no queries"),
        pytest.param(lambda worker: worker.started(), id="a query starts"),
        pytest.param(lambda worker: worker.started().commit(), id="a query commits"),
        pytest.param(lambda worker: worker.started().arrived({"id": "id-a"}), id="events arrive"),
    ],
)
def test_healthy_driver_records_nothing_and_has_no_work(live):
    worker = RecordedWorker()

    live(worker)
    for _ in range(50):
        worker.step()

    assert worker.files == {}
    assert not worker.recorder.is_recording
    assert worker.recorder.take(worker.wall + worker.clock.now) == []


def test_what_an_earlier_process_may_have_left_open_is_not_recorded():
    worker = RecordedWorker()

    for batch in range(60):
        worker.started().commit(batch=batch).step()

    assert worker.stale
    assert worker.files == {}


def test_incident_that_is_over_before_it_is_seen_is_not_recorded():
    worker = RecordedWorker().fails().recovers()
    over = next(
        evaluated
        for evaluated in worker.published
        if any(incident.is_over and incident.alerts for incident in evaluated.incidents)
    )
    late = RecordedWorker()

    late.recorder.update(over)

    assert late.recorder.take(over.wall) == []


def test_finding_that_opens_no_alert_is_not_recorded():
    worker = RecordedWorker().started().commit().poll(processing("a", batch=1)).step()
    worker.poll(processing("a", batch=1)).step(70.0)
    worker.commit(batch=1).poll(processing("a", batch=2)).step()
    for _ in range(10):
        worker.step()

    assert worker.files == {}


# -- what an incident is -------------------------------------------------------------------------


def test_recording_begins_with_whose_it_is():
    worker = RecordedWorker().fails()

    begin = worker.recording().begin
    assert (begin.app, begin.query, begin.continues) == ("etl", "a", "")
    assert [begin.id] == [*worker.files]
    assert begin.id == worker.recording_id


def test_alert_is_written_when_it_opens_and_when_it_ends():
    worker = RecordedWorker().fails().recovers()

    opened, ended = worker.lines(AlertChanged)
    assert (opened.change, opened.alertname) == (Change.OPENED, "StreamingQueryFailed")
    assert opened.facts["type"] == "Failed"
    assert (ended.change, ended.outcome) == (Change.ENDED, "commits")
    assert worker.recording().lines[-1] == End(at=ended.at, how=How.RESOLVED)


def test_nothing_is_recorded_after_the_end():
    worker = RecordedWorker().fails().recovers()
    before = dict(worker.files)

    for batch in range(20, 40):
        worker.arrived({"batchId": batch}).receive(progress("a", 2, batch=batch)).step(5.0)

    assert worker.files == before


def test_next_incident_of_a_query_is_another_recording():
    worker = RecordedWorker().fails().recovers()
    worker.receive(Terminated("id-a", "a-2", "java.io.IOException: again", None)).step()

    assert len(worker.files) == 2


def test_process_that_ends_in_order_ends_what_is_open():
    worker = RecordedWorker().fails()

    worker.recorder.close(worker.wall + worker.clock.now)
    worker.take()

    assert [line.how for line in worker.lines(End)] == [How.CLOSED]


def test_incidents_of_two_queries_are_two_recordings_with_the_states_of_both():
    worker = RecordedWorker().started("b").fails("a", "java.io.IOException: a")
    worker.step(20.0).ended("b", "java.lang.IllegalStateException: b").step()

    recordings = worker.recordings().values()
    assert [recording.begin.query for recording in recordings] == ["a", "b"]
    assert all(final_states(recording)[1].keys() == {"a", "b"} for recording in recordings)


# -- events --------------------------------------------------------------------------------------


def test_recording_begins_with_the_newest_events_of_each_query():
    worker = RecordedWorker()
    for batch in range(100):
        worker.arrived({"batchId": batch})
    worker.arrived({"batchId": 7}, "b").started("b").fails()

    numbers = [(line.query, line.data["batchId"]) for line in worker.lines(Event)]
    assert numbers == [*(("a", number) for number in range(60, 100)), ("b", 7)]


def test_event_that_arrives_meanwhile_is_written_once_with_its_own_time():
    worker = RecordedWorker().fails()
    worker.clock.now += 0.4
    at = worker.wall + worker.clock.now
    worker.arrived({"batchId": 1}).step().step()

    (line,) = worker.lines(Event)
    assert line.at == pytest.approx(at)


@pytest.mark.parametrize(
    "text",
    [
        '{"batchId": 1, "rate": 1e999}',
        '{"batchId": 1, "name": "\\ud800"}',
        "no JSON",
    ],
)
def test_event_that_cannot_be_decoded_leaves_only_its_time(text):
    worker = RecordedWorker().arrived(text).arrived({"batchId": 2}).fails()

    broken, whole = worker.lines(Event)
    assert (broken.data, broken.left_out) == ({}, ("*",))
    assert whole.data == {"batchId": 2}


def test_progress_of_five_megabytes_is_written_without_its_longest_member():
    huge = {"batchId": 3, "sources": ["x" * 5_000_000], "durationMs": {"addBatch": 5}}
    worker = RecordedWorker().arrived(huge).fails()

    (line,) = worker.lines(Event)
    assert line.data == {"batchId": 3, "durationMs": {"addBatch": 5}}
    assert line.left_out == ("sources",)
    assert len(worker.files[worker.recording_id]) < 20_000


# -- texts, silences, requests -------------------------------------------------------------------


def test_text_that_changes_each_second_is_written_at_growing_intervals():
    worker = RecordedWorker().started().commit().poll(processing("a", batch=1)).step()
    for _ in range(1000):
        worker.poll(processing("a", batch=1)).step(1.0)

    reasons = {alert.annotations["reason"] for alert in seen(worker)}
    changed = [line for line in worker.lines(AlertChanged) if line.change is Change.CHANGED]
    gaps = [round(after.at - before.at) for before, after in pairwise(changed)]
    assert len(reasons) > 50
    assert len(changed) < 10
    assert gaps == sorted(gaps)


def seen(worker):
    return [alert for evaluated in worker.published for alert in evaluated.alerts]


def test_silence_is_written_when_it_changes_and_its_alert_is_shown_as_muted():
    worker = RecordedWorker().fails()
    silence = Silence("a", worker.wall + worker.clock.now + 3600.0, "*", "planned")
    worker.silences.append(silence)
    worker.step().step()
    worker.silences.clear()
    worker.step().step()

    assert [len(line.silences) for line in worker.lines(Silenced)] == [1, 0]
    muted = [bool(line.muted) for line in worker.lines(AlertChanged)]
    assert muted == [False, True, False]


def test_alert_that_is_silenced_from_the_beginning_is_recorded():
    worker = RecordedWorker()
    worker.silences.append(Silence("a", worker.wall + 1e6, "*", "planned"))
    worker.fails()

    (line,) = worker.lines(AlertChanged)
    assert line.muted


@pytest.mark.parametrize(
    ("item", "request_", "query"),
    [
        (ExpectStop("a"), "expect_stop", "a"),
        (ExpectEnd(2000.0), "expect_end", "*"),
        (Forget("a"), "forget", "a"),
    ],
)
def test_announcement_during_an_incident_is_written(item, request_, query):
    worker = RecordedWorker().fails()
    worker.inbox.put(item, lifecycle=True)
    worker.step()

    (line,) = worker.lines(Request)
    assert (line.request, line.query) == (request_, query)
    assert line.until == (worker.wall + 2000.0 if request_ == "expect_end" else None)


def test_stack_of_a_batch_that_hangs_is_written_once_until_it_changes():
    worker = RecordedWorker().started().commit().poll(processing("a", batch=1)).step()
    for stack in [("a.b(C.java:1)",)] * 80 + [("a.b(C.java:2)",)] * 20:
        worker.poll(processing("a", batch=1, tasks=0, stack=stack, line="job.py:41")).step(1.0)

    stacks = [(line.query, line.jvm, line.python) for line in worker.lines(Stack)]
    assert stacks == [
        ("a", ("a.b(C.java:1)",), "job.py:41"),
        ("a", ("a.b(C.java:2)",), "job.py:41"),
    ]


# -- notifications -------------------------------------------------------------------------------


def test_notification_that_comes_before_the_recording_begins_is_in_it():
    worker = RecordedWorker()
    other = RecordedWorker().fails()
    worker.notified(other.recording_id)
    worker.fails()

    assert worker.recording_id == other.recording_id
    assert [line.receiver for line in worker.lines(Notification)] == ["pagerduty"]


@pytest.mark.parametrize(("after", "written"), [(0.0, 1), (500.0, 1), (700.0, 0)])
def test_answer_of_a_receiver_is_taken_for_ten_minutes_after_the_end(after, written):
    worker = RecordedWorker().fails()
    identity = worker.recording_id
    worker.recovers()
    worker.take(after)
    worker.notified(identity, after=after)

    assert len(worker.lines(Notification)) == written


def test_notification_of_an_incident_that_is_never_recorded_takes_bounded_memory():
    worker = RecordedWorker()

    for number in range(10_000):
        worker.notified(f"20260101T000000Z-etl-a-{number}")

    assert len(worker.recorder._early) == module.MOST_EARLY
    assert worker.files == {}


# -- the next process ----------------------------------------------------------------------------


def test_next_process_names_the_file_that_it_continues():
    before = RecordedWorker().fails()
    identity = before.recording_id
    incidents = before.offers[-1]
    after = RecordedWorker(parts={identity: 2})
    after.recorder.inherit(incidents)
    after.worker._lifecycle.restore(incidents, after.clock.now)
    after.step()

    begin = after.recording().begin
    assert (begin.id, begin.continues) == (f"{identity}.3", f"{identity}.2")
    assert begin.restored == incidents


def test_alert_that_had_ended_in_the_process_before_is_not_written_again():
    before = RecordedWorker().fails()
    ended = before.offers[-1][0].alerts[0].ended(before.wall + 2000.0)
    other = replace(ended, labels={**ended.labels, "alertname": "StreamingQueryLagging"})
    incident = replace(before.offers[-1][0], alerts=(*before.offers[-1][0].alerts, other))
    after = RecordedWorker()
    after.recorder.inherit([incident])
    after.worker._lifecycle.restore([incident], after.clock.now)
    after.step().step()

    assert [line.alertname for line in after.lines(AlertChanged)] == ["StreamingQueryFailed"]


# -- hostile input -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["../../etc/passwd", "$removed", "$", "*", "", "a\nb", "名前", "x" * 5000, '{"kind":"end"}'],
)
def test_query_of_any_name_is_recorded_and_can_be_read(name):
    worker = RecordedWorker().fails(name)
    for _ in range(3):
        worker.step()

    recording = worker.recording()
    driver, queries = final_states(recording)
    assert recording.unread == 0
    assert "/" not in recording.begin.id
    labels = [query.label for query in snapshot_of(driver, queries.values()).queries]
    assert labels == [query.label for query in worker.published[-1].snapshot.queries]


def test_name_that_is_no_text_is_recorded_with_a_mark_in_its_place():
    worker = RecordedWorker().fails("caf\udce9")

    recording = worker.recording()
    assert recording.begin.query == "caf?"
    assert worker.lines(AlertChanged)


def test_secret_in_an_old_spool_is_not_in_the_recording_that_goes_on():
    first = RecordedWorker().fails()
    (incident,) = first.published[-1].incidents
    alert = replace(incident.alerts[0], annotations={"description": "password=hunter2hunter2"})
    second = RecordedWorker(Redactor().text)
    second.recorder.inherit([replace(incident, alerts=(alert,))])
    second.recorder.update(first.published[-1])
    second.take()

    (content,) = second.files.values()
    assert b"restored" in content
    assert b"hunter2" not in content


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.kind)
def test_secret_is_in_no_line(planted):
    worker = RecordedWorker(Redactor().text)
    worker.arrived({"sources": [{"description": planted.text}], planted.text: 1})
    worker.started().commit().poll(processing("a", batch=1)).step()
    silence = Silence("*", worker.wall + 1e6, "*", planted.text)
    worker.silences.append(silence)
    for _ in range(70):
        stack = (planted.text,)
        polled = processing("a", batch=1, tasks=0, stack=stack, line=planted.text)
        worker.poll(polled).step(1.0)
    worker.ended("a", planted.text).step()
    worker.notified(error=planted.text)
    worker.take()

    content = worker.files[worker.recording().begin.id].decode()
    kinds = {type(line) for line in worker.recording().lines}
    assert {Event, State, AlertChanged, Notification, Silenced} <= kinds
    assert planted.secret not in content
    assert json.dumps(planted.secret)[1:-1] not in content


def test_member_of_spark_s_json_whose_name_says_that_it_is_secret_is_hidden():
    worker = RecordedWorker(Redactor().text)
    worker.arrived({"options": {"password": "hunter2", "path": "/data"}}).fails()

    (line,) = worker.lines(Event)
    assert line.data == {"options": {"password": "[redacted]", "path": "/data"}}


def test_state_that_cannot_be_encoded_is_written_once_it_can(monkeypatch):
    worker = RecordedWorker().fails()

    def broken(_):
        raise TypeError("no such type")

    monkeypatch.setattr(module, "query_state", broken)
    with pytest.raises(TypeError):
        worker.recorder.update(fresh(worker))
    monkeypatch.undo()
    worker.step().step()

    _, queries = final_states(worker.recording())
    assert queries["a"] == query_state(worker.published[-1].snapshot.labels()["a"])


def fresh(worker):
    """An evaluation in which the query is another one than before."""
    evaluated = worker.published[-1]
    query = replace(evaluated.snapshot.queries[0])
    return replace(evaluated, snapshot=replace(evaluated.snapshot, queries=(query,)))


# -- many ----------------------------------------------------------------------------------------


def test_of_200_queries_those_that_it_is_about_are_recorded():
    worker = RecordedWorker()
    for number in range(200):
        worker.started(f"q{number:03}")
    worker.step().ended("q150", "java.io.IOException: gone").step()

    _, queries = final_states(worker.recording())
    assert len(queries) == module.MOST_QUERIES
    assert "q150" in queries


def test_query_that_joins_a_driver_s_incident_later_is_recorded_too():
    worker = RecordedWorker()
    for number in range(200):
        worker.started(f"q{number:03}")
    worker.step()
    for label in ("q100", "q101", "q102"):
        worker.ended(label, "java.io.IOException: gone")
    worker.step().step(5.0).ended("q190", "java.io.IOException: gone").step().step(11.0)

    recordings = worker.recordings().values()
    (shared,) = (recording for recording in recordings if recording.begin.query == "*")
    _, queries = final_states(shared)
    assert {"q100", "q101", "q102", "q190"} <= queries.keys()


def test_names_that_are_gone_take_no_place_among_the_queries_of_a_recording(monkeypatch):
    monkeypatch.setattr(module, "MOST_QUERIES", 5)
    worker = RecordedWorker().started("a").step().ended("a", "java.io.IOException: gone").step()
    first = worker.recording_id
    for number in range(10):
        worker.started(f"run-{number}").step(11.0).ended(f"run-{number}", None).step()
        worker.inbox.put(Forget(f"run-{number}"), lifecycle=True)
        worker.step(11.0)
    worker.started("newest").step(11.0)

    _, queries = final_states(worker.recordings()[first])
    assert queries.keys() == {"a", "newest"}


def test_incidents_that_open_later_thin_out_no_recording_that_has_ended(monkeypatch):
    monkeypatch.setattr(module, "ALL_BYTES", 200_000)
    worker = RecordedWorker().started("b").started("c")
    for number in range(20):
        worker.arrived({"batchId": number, "text": "x" * 5000})
    first = worker.fails().recording_id
    worker.recovers()
    before = worker.files[first]
    worker.fails("b", "java.io.IOException1: gone").fails("c", "java.io.IOException2: gone")

    assert len(worker.files) == 3
    assert len(before) > module.ALL_BYTES / 3
    assert worker.files[first] == before


@pytest.mark.parametrize(
    ("queries", "steps"), [(1, 30), (100, 30), (200, 15), (1000, 4), (5000, 4)]
)
def test_the_more_queries_the_fewer_evaluations_wait_in_memory(queries, steps):
    evaluated = RecordedWorker().started().step().published[-1]
    snapshot = replace(evaluated.snapshot, queries=evaluated.snapshot.queries * queries)

    assert module.most_steps(replace(evaluated, snapshot=snapshot)) == steps


@pytest.mark.slow
def test_300_open_incidents_stay_within_the_bound_in_memory():
    worker = RecordedWorker()
    for number in range(300):
        worker.started(f"q{number:03}")
    worker.step()
    for number in range(300):
        # Their causes differ.
        worker.ended(f"q{number:03}", f"java.io.IOException{number}: gone")
    for _ in range(3):
        worker.step(11.0)

    contents = [recording.lines.whole for recording in worker.recorder._open.values()]
    assert len(contents) == module.MOST_OPEN
    assert worker.recorder.left_out == 300 - module.MOST_OPEN
    assert sum(map(len, contents)) <= module.ALL_BYTES
    for content in contents:
        kinds = [type(line) for line in decode(content, "").lines]
        assert {AlertChanged, State} <= set(kinds)


@pytest.mark.slow
def test_incident_of_many_hours_stays_small_with_all_its_alerts():
    worker = RecordedWorker().fails()
    first = worker.lines(State)[0]
    for batch in range(3000):
        worker.arrived({"batchId": batch, "text": "x" * 1000}, "a").step(15.0)
    worker.recovers()

    recording = worker.recording()
    assert len(worker.files[recording.begin.id]) <= module.FULL_BYTES
    changes = [line.change for line in worker.lines(AlertChanged)]
    assert changes[0] is Change.OPENED
    assert changes[-1] is Change.ENDED
    assert worker.lines(State)[0] == first
    assert recording.lines[-1].how is How.RESOLVED


def test_infinite_numbers_of_a_state_come_back():
    worker = RecordedWorker().fails()
    worker.inbox.put(ExpectStop("a", until=math.inf), lifecycle=True)
    worker.step()

    driver, queries = final_states(worker.recording())
    snapshot = worker.published[-1].snapshot
    (query,) = snapshot_of(driver, queries.values()).queries
    assert query_state(query) == query_state(snapshot.queries[0])
