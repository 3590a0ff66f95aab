"""Whose checkpoint it is: a query of another name takes it, or it loses its query id."""

from __future__ import annotations

from itertools import chain, permutations

import pytest
from support.story import IdStory, poll, polled, source

from querypulse.alerting.words.messages import say
from querypulse.listener.probe_report import Context, JobCounts, SlotUse
from querypulse.listener.source_polls import SourceReport
from querypulse.listener.state.identity import UNDECIDED_SECONDS
from querypulse.listener.state.run import Outcome

STOPPED, REWOUND = "StreamingQueryStopped", "StreamingOffsetsRewound"
TRIGGER = "ProcessingTimeTrigger(0)"
FOLDER = {"checkpoint": "/cp/orders"}

# -- another query takes the checkpoint ------------------------------------------------------------


def of_a(run="a-1", **fields):
    return polled("id", run, "a", **{"session": "s1", "batch": 7, **FOLDER, **fields})


def of_b(run="b-1", **fields):
    return polled("id", run, "b", **{"session": "s2", "batch": 7, **FOLDER, **fields})


def running(name="a"):
    """Query a has committed seven batches."""
    story = IdStory().start("id", "a-1", name, at=0, session="s1", trigger=TRIGGER)
    return story.commits("id", "a-1", name, at=5, batch=6)


def starts_b(story, *, at=10, run="b-1", replaced="a-1", name="b"):
    fields = {"session": "s2", "trigger": TRIGGER, "replaced": replaced, **FOLDER}
    return story.start("id", run, name, at=at, **fields)


def ends_a(story):
    return story.ends("id", "a-1", at=10)


def shows_b(story):
    """A poll that began after the start."""
    return story.probe(of_b(), at=10.2)


def shows_both(story):
    return story.probe(of_b(), of_a(active=False), at=10.3)


OBSERVATIONS = {"end": ends_a, "start": starts_b, "poll": shows_b, "poll of the end": shows_both}


@pytest.mark.parametrize("was_polled", [True, False])
def test_query_whose_checkpoint_another_takes_has_stopped_in_any_order_of_observations(was_polled):
    orders = (permutations(OBSERVATIONS, count) for count in (1, 2, 3, 4))
    for order in (order for order in chain(*orders) if "start" in order):
        story = running()
        if was_polled:
            story.probe(of_a(), at=9)
        for what in order:
            OBSERVATIONS[what](story)
        story.commits("id", "b-1", "b", at=12, batch=7)
        a, b = story.shown()["a"], story.shown()["b"]

        assert story.found(12) == [(STOPPED, "a")], order
        assert (a.run.run_id, a.run.taken_by, a.run.ended.outcome) == (
            "a-1",
            "b",
            Outcome.STOPPED,
        ), order
        assert (b.run.run_id, b.run.alive, b.history.totals.restarts, b.history.totals.commits) == (
            "b-1",
            True,
            0,
            1,
        ), order
        assert (a.history.totals.stopped, story.state.query("id").label) == (1, "b"), order


def test_alert_names_who_took_which_checkpoint_and_what_to_do():
    (found,) = starts_b(running().probe(of_a(), at=9)).evaluate(12).findings

    assert (
        say(found).reason == "Spark stopped it 2 s ago: b was started on its checkpoint, /cp/orders"
    )
    assert say(found).evidence["taken_by"] == "b"
    assert say(found).evidence["next_steps"].startswith("1. Decide which of the two queries")


def test_query_attached_to_late_is_known_by_the_poll_alone():
    story = starts_b(IdStory().probe(of_a(), at=9))

    assert story.found(12) == [(STOPPED, "a")]


@pytest.mark.parametrize(
    "story",
    [
        starts_b(running(), replaced=""),
        starts_b(ends_a(running()), replaced=""),
        starts_b(running().start("id", "a-2", "a", at=6, session="s1"), replaced="a-1"),
        starts_b(ends_a(running().probe(of_a(), at=9)).probe(at=10.5), at=11),
        starts_b(running("b")),
        starts_b(running(), name=None),
        starts_b(running(None)),
        running().probe(of_a(), at=9).probe(of_b(), at=10).probe(of_b(), at=10.1 + UNDECIDED_SECONDS),
    ],
    ids=["Spark stopped none", "after its end", "Spark stopped an earlier run",
         "a poll showed that nothing ran any more", "of the same name",
         "without a name", "its run had no name", "its start event was lost"],
)  # fmt: skip
def test_other_run_on_the_checkpoint_continues_the_query(story):
    (query,) = story.shown().values()

    assert (query.run.run_id, query.run.taken_by) == ("b-1", "")
    assert story.found(70) == []


def test_poll_waits_for_the_start_event_that_says_whether_another_query_was_stopped():
    story = running().probe(of_a(), at=9).probe(of_b(), at=10).probe(of_b(), at=10.5)
    assert story.state.query("id").run.run_id == "a-1"

    starts_b(story, at=10.6)
    assert story.state.query("id").label == "b"


def took_back(*, replaced="b-1"):
    """Query b took the checkpoint and committed two batches; then a was started again."""
    story = starts_b(ends_a(running().probe(of_a(), at=9))).probe(of_b(), at=11)
    story.commits("id", "b-1", "b", at=12, batch=7).commits("id", "b-1", "b", at=13, batch=8)
    if not replaced:
        story.ends("id", "b-1", at=15)
    fields = {"session": "s1", "trigger": TRIGGER, "replaced": replaced, **FOLDER}
    return story.start("id", "a-2", "a", at=20, **fields).commits("id", "a-2", "a", at=25, batch=9)


def test_query_that_takes_its_checkpoint_back_goes_on_and_the_other_has_stopped():
    story = took_back()
    a, b = story.shown()["a"], story.shown()["b"]

    assert story.found(26) == [(STOPPED, "b")]
    assert (a.run.run_id, a.run.taken_by, a.history.totals.restarts) == ("a-2", "", 1)
    assert (b.run.run_id, b.run.taken_by) == ("b-1", "a")
    assert [query.history.totals.commits for query in (a, b)] == [2, 2], (
        "each counts its own batches"
    )


def test_query_that_goes_on_after_the_end_of_the_other_keeps_its_label():
    story = took_back(replaced="")

    assert {label: query.run.run_id for label, query in story.shown().items()} == {
        "a": "a-2",
        "b": "b-1",
    }
    assert story.found(26) == [], "b has stopped within its grace"
    assert story.commits("id", "a-2", "a", at=88, batch=10).found(90) == [(STOPPED, "b")]


def test_each_end_and_each_late_event_belongs_to_the_query_of_its_run():
    story = took_back()
    before = story.shown()
    for run in ("a-1", "b-1"):
        story.ends("id", run, at=30).fails("id", run, at=31).idles("id", run, at=32)
        story.commits("id", run, "a", at=33, batch=99).probe(of_a("a-2"), of_b(active=False), at=34)
    after = story.shown()

    assert after["b"] == before["b"]
    assert (after["a"].run.run_id, after["a"].history.totals.failed) == ("a-2", 0)


def test_query_whose_start_was_lost_is_still_stopped_by_another_one():
    """It took the checkpoint of a, which takes it back: neither event says so, but polls do."""
    story = running().probe(of_a(), at=9).ends("id", "a-1", at=10)
    story.probe(of_b(), at=11).probe(of_b(), at=11.1 + UNDECIDED_SECONDS)
    assert list(story.shown()) == ["a"], "it counts as renamed"

    starts_b(story, at=20, run="c-1", name="c", replaced="b-1")
    assert {label: query.run.run_id for label, query in story.shown().items()} == {
        "a": "b-1",
        "c": "c-1",
    }
    assert story.found(22) == [(STOPPED, "a")]


def test_query_that_returns_after_the_other_one_moved_on_keeps_its_label():
    story = starts_b(running())
    story.start("b-id", "b-2", "b", at=20, session="s2").ends("id", "b-1", at=20)
    story.start("id", "a-2", "a", at=30, session="s1", **FOLDER)

    assert {label: query.run.run_id for label, query in story.shown().items()} == {
        "a": "a-2",
        "b": "b-2",
    }


def test_forgotten_query_does_not_take_the_id_from_the_other():
    story = starts_b(running())
    story.state.forget_name("a")
    story.commits("id", "b-1", "b", at=12, batch=7).start("id", "b-2", "b", at=20, replaced="b-1")

    assert {label: query.run.run_id for label, query in story.shown().items()} == {"b": "b-2"}
    story.start("id", "a-2", "a", at=30, replaced="b-2")
    assert story.shown()["a"].history.totals.restarts == 1, "its counters go on"


def test_query_with_a_new_checkpoint_leaves_the_old_one_to_the_other():
    story = starts_b(running())
    story.start("new-id", "a-2", "a", at=20, session="s1").commits("id", "b-1", "b", at=22, batch=7)

    assert {query.query_id: label for label, query in story.shown().items()} == {
        "id": "b",
        "new-id": "a",
    }
    assert story.found(23) == []


def test_query_that_takes_a_checkpoint_continues_an_ended_one_of_its_name():
    story = IdStory().start("b-id", "b-0", "b", at=0).commits("b-id", "b-0", "b", at=1, batch=3)
    story.ends("b-id", "b-0", at=2).start("id", "a-1", "a", at=3, trigger=TRIGGER)
    starts_b(story)
    b = story.shown()["b"]

    assert (b.run.run_id, b.history.totals.restarts, b.query_id) == ("b-1", 1, "id")
    assert story.found(12) == [(STOPPED, "a")]


def test_slots_are_held_by_the_query_that_runs_and_not_by_the_one_before():
    story = starts_b(running()).probe(of_b(), at=12)
    waits = {"own": JobCounts(4, 1, 40, 0), "slots": SlotUse(4, 4, "id", 3)}
    waits |= {"message": "Processing new data", "busy": True, "data": True, "batch": 1}
    story.start("c-id", "c-1", "c", at=12).commits("c-id", "c-1", "c", at=12, batch=0)
    for at in range(13, 90, 5):
        busy = of_b(own=JobCounts(9, 1, at, 3), message="Processing new data", busy=True, batch=7)
        story.probe(polled("c-id", "c-1", "c", **waits), busy, at=at)
    reasons = {found.query: say(found).reason for found in story.evaluate(90).findings}

    assert "b 3 of them" in reasons["c"]


def test_stop_of_the_application_explains_a_taken_checkpoint():
    story = starts_b(running().probe(of_a(), at=9))
    story.probe(at=11, context=Context.STOPPED_BY_APPLICATION)

    assert story.found(300) == []


# -- the checkpoint loses its query id -------------------------------------------------------------


def read_by(run, at, end):
    polls = {run: {0: poll(at=at, committed=end, latest=end)}}
    return SourceReport(at, polls)


def reaches(story, run, *batches, query_id="old", name="q", at):
    for number, batch in enumerate(batches):
        read = (source({"t": {"0": 100 * (batch + 1)}}, None),)
        story.commits(query_id, run, name, at=at + number, batch=batch, sources=read)
    return story


def stopped_at_batch_six(name="q"):
    story = IdStory().start("old", "r1", name, at=0, trigger=TRIGGER, **FOLDER)
    story.probe(polled("old", "r1", name, batch=3, **FOLDER), at=1)
    reaches(story, "r1", 4, 5, 6, name=name, at=5)
    return story.ends("old", "r1", at=10)


def started_again(name="q", story=None, *, described=True, folder="/cp/orders"):
    story = story or stopped_at_batch_six(name)
    story.start("new", "r2", name, at=20, checkpoint=folder if described else "")
    return story


@pytest.mark.parametrize("name", ["q", None], ids=["named", "unnamed"])
@pytest.mark.parametrize("shown_by", ["event", "poll", "poll of the next batch"])
def test_query_whose_batch_ids_go_on_under_a_new_id_is_one_query_with_a_warning(name, shown_by):
    story, label = started_again(name), name or "old"
    if shown_by == "event":
        reaches(story, "r2", 7, query_id="new", name=name, at=25)
    else:
        batch = 7 if shown_by == "poll" else 8
        story.probe(polled("new", "r2", name, batch=batch, **FOLDER), at=25)
    (query,) = story.shown().values()
    (found,) = story.evaluate(26).findings

    assert (query.label, query.query_id, query.history.totals.restarts) == (label, "new", 1)
    assert (found.alertname, found.severity.value) == (REWOUND, "warning")
    assert "/cp/orders has a new query id, although batch ids go on" in say(found).reason
    assert say(found).evidence["id_before"] == "old"


def test_history_and_positions_go_on_under_the_new_id():
    story = stopped_at_batch_six()
    story.start("old", "r1b", at=11, **FOLDER).fails("old", "r1b", at=12)
    reaches(started_again(story=story), "r2", 7, 8, query_id="new", at=25)
    query = story.state.query("new")

    assert (
        query.history.totals.commits,
        query.history.totals.failed,
        len(query.history.failures),
    ) == (6, 1, 1)
    assert query.checkpoint.last_commit_batch == 8
    assert story.state.query("old") is query, "the old id is of the past"


def test_warning_waits_for_the_first_batch_and_ends_after_an_hour_or_with_the_next_run():
    story = started_again()
    assert story.found(21) == []

    story.fails("new", "r2", at=22).start("new", "r3", at=23, checkpoint="/cp/orders")
    reaches(story, "r3", 7, query_id="new", at=25)
    assert story.found(26) == [(REWOUND, "q")], "the run before committed nothing"

    reaches(story, "r3", 8, query_id="new", at=3640)
    assert story.found(3641) == []
    story.ends("new", "r3", at=3650).start("new", "r4", at=3651, checkpoint="/cp/orders")
    reaches(story, "r4", 9, query_id="new", at=3655)
    assert story.found(3656) == []


def test_poll_while_spark_reads_the_logs_does_not_decide_whether_batch_ids_go_on():
    """It shows the newest batch of the log as the current one until it has read the commits."""
    story = started_again()
    story.probe(polled("new", "r2", "q", batch=-1, **FOLDER), at=24)
    reading_logs = polled("new", "r2", "q", batch=6, message="Initializing sources", **FOLDER)
    story.probe(reading_logs, at=25)
    assert story.found(25.5) == []

    story.probe(polled("new", "r2", "q", batch=7, **FOLDER), at=26)
    assert [alertname for alertname, _ in story.found(27)] == [REWOUND]


def emptied(batch):
    return reaches(started_again(), "r2", batch, query_id="new", at=25)


@pytest.mark.parametrize(
    "story",
    [
        emptied(0),
        emptied(6),
        started_again().probe(polled("new", "r2", batch=0, **FOLDER), at=25),
        reaches(started_again().probe(polled("new", "r2", batch=2, **FOLDER), at=24), "r2", 2, 7, query_id="new", at=25),
        reaches(started_again().probe(polled("new", "r2", batch=6, **FOLDER), at=24), "r2", 6, 7, query_id="new", at=25),
        reaches(started_again(folder="/cp/copy"), "r2", 7, query_id="new", at=25),
        reaches(started_again(described=False), "r2", 7, query_id="new", at=25),
        reaches(stopped_at_batch_six().start("old", "r2", at=20, **FOLDER), "r2", 7, at=25),
        reaches(started_again(story=IdStory().start("old", "r1", at=0, **FOLDER).ends("old", "r1", at=1)), "r2", 7, query_id="new", at=25),
    ],
    ids=["the folder was emptied", "the folder is older", "a poll shows that the folder was emptied", "it catches up in an emptied folder", "its first batch is the last of the old one",
         "another folder", "an unknown folder", "the same id", "the old run had no batch"],
)  # fmt: skip
def test_other_new_ids_are_no_loss_of_identity(story):
    (query,) = story.shown().values()

    assert story.found(30) == []
    assert (query.run.run_id, query.history.totals.restarts, query.lost_identity) == (
        "r2",
        1,
        False,
    )


def test_emptied_folder_leaves_no_position_behind():
    """Offsets that begin again are then no rewind."""
    story = reaches(started_again(), "r2", 0, 1, 2, query_id="new", at=25)
    query = story.state.query("new")

    assert (query.checkpoint.last_commit_batch, query.history.totals.commits) == (2, 7)
    assert story.found(27) == []
    reaches(story, "r2", *range(3, 6), query_id="new", at=200)
    assert story.found(203) == []


@pytest.mark.parametrize("other", ["p", None], ids=["another name", "no name"])
def test_query_of_another_name_in_the_folder_is_another_query(other):
    story = started_again(other, stopped_at_batch_six())
    reaches(story, "r2", 7, query_id="new", name=other, at=25)

    assert {query.run.run_id for query in story.shown().values()} == {"r1", "r2"}
    assert story.found(26) == []


def test_running_query_in_the_folder_is_never_continued():
    """Spark does not stop it: the ids differ."""
    story = IdStory().start("old", "r1", at=0, session="s1", trigger=TRIGGER, **FOLDER)
    story.start("new-id", "r2", at=20, session="s2", **FOLDER)

    assert {label: query.run.run_id for label, query in story.shown().items()} == {
        "q": "r1",
        "q-new-id": "r2",
    }
