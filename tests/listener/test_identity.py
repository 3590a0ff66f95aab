"""Which query an observation belongs to: runs, succession, queries of one name, labels."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.story import CONFLICT, IdStory, polled

from querypulse.listener.probe_report import ProbeReport
from querypulse.listener.state.identity import LABEL_CHARACTERS, UNDECIDED_SECONDS, base_label
from querypulse.listener.state.state import KEEP_COMPLETED_SECONDS, MAX_GONE_QUERIES, State

LATE = 2000.0

# -- new runs ------------------------------------------------------------------------------------


ENDED, DIED = {"active": False}, {"active": False, "exception": CONFLICT}
LATE_OBSERVATIONS = {
    "progress": lambda story, run: story.commits("id", run, at=LATE, batch=99),
    "idle": lambda story, run: story.idles("id", run, at=LATE),
    "end": lambda story, run: story.ends("id", run, at=LATE),
    "probe's end": lambda story, run: story.probe(polled("id", run, **ENDED), at=LATE),
    "probe's failure": lambda story, run: story.probe(polled("id", run, **DIED), at=LATE),
    "failure": lambda story, run: story.fails("id", run, at=LATE),
    "start": lambda story, run: story.start("id", run, at=LATE),
}
"""What may be observed of a run of ``id`` long after it has ended."""


@pytest.mark.parametrize("late", LATE_OBSERVATIONS.values(), ids=LATE_OBSERVATIONS)
def test_late_observation_of_a_past_run_changes_nothing(late):
    for runs in (2, 17, 18, 1001):
        story = IdStory().crash_loop(runs)
        before = story.state.query("id")
        late(story, "run-0")

        assert story.state.query("id") == before, f"{runs - 1} runs ago"
        assert before.failure is not None
        assert before.run.run_id == f"run-{runs - 1}"


def test_event_of_an_unknown_run_does_not_replace_a_known_query():
    """Forgetting past runs is therefore harmless."""
    for what in ("progress", "idle", "end", "probe's end"):
        story = IdStory().crash_loop(2)
        before = story.state.query("id")
        LATE_OBSERVATIONS[what](story, "unmet")

        assert story.state.query("id") == before, what


FAILED = polled("id", "a", **DIED)


@pytest.mark.parametrize(
    ("story", "expected"),
    [
        (IdStory().commits("id", "a", at=1, batch=7), ("a", 1, False, 0, 0)),
        (IdStory().start("id", "a", at=0).start("id", "b", at=1).probe(polled("id", "a"), at=2), ("a", 2, False, 0, 2)),
        (IdStory().start("id", "b", at=5).probe(polled("id", "a"), at=4), ("b", 5, False, 0, 0)),
        (IdStory().probe(polled("id", "a"), at=1).start("id", "b", at=2).start("id", "a", at=2.1).probe(polled("id", "a"), at=3), ("a", 1, False, 0, 0)),
        (IdStory().probe(polled("id", "a"), at=1).start("id", "b", at=2, timestamp=50.0).start("id", "c", at=2.1, timestamp=60.0).probe(polled("id", "c"), at=3),
         ("c", 3, False, 0, 1)),
        (IdStory().probe(polled("id", "a"), at=1).start("id", "b", at=2).ends("id", "a", at=2.1), ("b", 2, False, 0, 1)),
        (IdStory().probe(polled("id", "a"), at=1).commits("id", "a", at=1.5, batch=3).start("id", "b", at=2).fails("id", "b", at=2.1).probe(polled("id", "a"), at=3),
         ("a", 1, False, 1, 0)),
        (IdStory().fails("id", "a", at=1), ("a", 1, True, 1, 0)),
        (IdStory().start("id", "a", at=0).ends("id", "a", at=1).fails("id", "b", at=2), ("b", 2, True, 1, 1)),
        (IdStory().start("id", "b", at=0).commits("id", "b", at=1, batch=0).fails("id", "a", at=2).fails("id", "a", at=3), ("b", 0, False, 1, 0)),
        (IdStory().probe(FAILED, at=0).probe(FAILED, at=1).probe(FAILED, at=2), ("a", 0, True, 1, 0)),
        (IdStory().start("id", "a", at=0).start("id", "b", at=1).probe(polled("id", "a"), at=2).fails("id", "a", at=3).probe(FAILED, at=4), ("a", 2, True, 1, 2)),
        (IdStory().start("id", "a", at=0).start("id", "b", at=1).probe(polled("id", "a"), at=2).fails("id", "a", at=3).probe(FAILED, at=4)
         .start("id", "c", at=5).probe(FAILED, polled("id", "c"), at=6), ("c", 5, False, 1, 3)),
    ],
    ids=["a commit of a run that began before watching", "a run that was considered past is seen alive", "a poll from before the current run",
         "the start of the live run comes after that of an older one", "a poll shows the newer of two starts", "a start before the end of the run before",
         "a late failure of a run before the live one", "a failure of an unknown query", "a failure of an unknown run of an ended query",
         "a failure of an unknown run beside a live one, twice", "a failure that the probe remembers", "a run that became current again fails",
         "a run that became current again has failed"],
)  # fmt: skip
def test_each_observation_belongs_to_one_run_and_each_failure_counts_once(story, expected):
    """The current run, since when, whether it or an earlier one has failed, failures, restarts."""
    query = story.state.query("id")
    counted = (query.history.totals.failed, query.history.totals.restarts)

    assert (query.run.run_id, query.run.started_at, query.failure is not None, *counted) == expected


def test_other_events_introduce_no_query():
    failed = IdStory().start("old", "run", at=0).fails("old", "run", at=1)
    stories = {
        "idle": IdStory().idles("id", "run", at=1),
        "end": IdStory().ends("id", "run", at=1),
        "probe's end": IdStory().probe(polled("id", "run", active=False), at=1),
        "progress under another query's name": failed.commits("id", "late", at=2, batch=7),
    }

    assert [what for what, story in stories.items() if story.state.query("id")] == []


@pytest.mark.parametrize("other_id", ["new-id", "other-id"], ids=["one id", "one name"])
@pytest.mark.parametrize(
    ("timestamp", "present"),
    [(5.0, "new"), (15.0, "other"), (None, "other")],
    ids=["older", "newer", "unknown"],
)
def test_start_time_decides_which_of_two_runs_is_newer(timestamp, present, other_id):
    story = IdStory().start("new-id", "new", at=1, timestamp=10.0, session="s1")
    story.start(other_id, "other", at=2, timestamp=timestamp, session="s1")

    assert story.shown()["q"].run.run_id == present


@pytest.mark.parametrize("ids", [("id", "id"), ("id-a", "id-b")], ids=["one id", "one name"])
@pytest.mark.parametrize(
    ("seen", "present", "since"),
    [("living", "living", 1), ("other", "other", 3), ("", "other", 2)],
    ids=["the poll sees the first", "the poll sees the second", "no poll comes"],
)
def test_next_poll_decides_which_run_is_newer_if_a_start_event_was_lost(ids, seen, present, since):
    """A late start of a query that is restarted with new checkpoints does not restart the clock."""
    by_run = dict(zip(("living", "other"), ids, strict=True))
    story = IdStory().probe(polled(ids[0], "living", session="s1"), at=1)
    story.start(ids[1], "other", at=2, session="s1")
    if seen:
        story.probe(polled(by_run[seen], seen, session="s1"), at=3)
    story.state.snapshot(2 + UNDECIDED_SECONDS + 0.1)

    (query,) = story.shown().values()
    assert (query.run.run_id, query.run.started_at) == (present, since)


def test_late_failure_of_an_older_checkpoint_counts_for_the_query_of_its_name():
    story = IdStory().start("new-id", "new", at=1, timestamp=10.0, session="s1")
    story.commits("new-id", "new", at=1.5, batch=0)
    story.start("old-id", "old", at=2, timestamp=5.0, session="s1").fails("old-id", "old", at=3)

    (query,) = story.shown().values()
    assert (query.run.run_id, query.failure, query.history.totals.failed) == ("new", None, 1)


# -- succession -----------------------------------------------------------------------------------


@pytest.mark.parametrize("memory", ["remembered", "forgotten by the probe"])
@pytest.mark.parametrize("order", ["the end first", "the start first"])
def test_new_checkpoint_after_an_announced_stop_pages_nobody(order, memory):
    story = IdStory().start("old", "r1", at=0, session="s1")
    story.probe(polled("old", "r1", session="s1"), at=1).expect_stop("q")
    if order == "the end first":
        story.ends("old", "r1", at=2).start("new", "r2", at=3, session="s1")
    else:
        story.start("new", "r2", at=2, session="s1").ends("old", "r1", at=3)
    old = polled("old", "r1", session="s1", active=False)
    runs = [polled("new", "r2", session="s1"), *([old] if memory == "remembered" else [])]
    for at in range(4, 200, 20):
        story.probe(*runs, at=at)

    assert list(story.shown()) == ["q"]
    assert story.found(200) == []


@pytest.mark.parametrize("session", ["", "s1", "s2"])
def test_new_checkpoint_under_a_failed_querys_name_continues_it_in_any_session(session):
    """The replaced query does not return through the probe's memory."""
    story = IdStory().start("old", "r1", at=0, session="s1").commits("old", "r1", at=1, batch=3)
    story.fails("old", "r1", at=2).start("new", "r2", at=3, session=session)

    (query,) = story.shown().values()
    assert (query.query_id, query.label) == ("new", "q")
    assert (
        query.history.totals.commits,
        query.history.totals.restarts,
        len(query.history.failures),
    ) == (1, 1, 1)
    assert story.found(3.5) == [("StreamingQueryFailed", "q")]
    ended = polled("old", "r1", active=False, exception=CONFLICT)
    story.commits("new", "r2", at=4, batch=0).probe(ended, polled("new", "r2"), at=5)
    assert (list(story.shown()), story.found(6)) == (["q"], [])


# -- queries of one name --------------------------------------------------------------------------


def namesakes():
    """Two live queries with one name, in two sessions."""
    story = IdStory().start("11111111-a", "r1", at=0, session="s1")
    return story.start("22222222-b", "r2", at=1, session="s2")


FIRST, SECOND, THIRD = "11111111-a", "22222222-b", "33333333-c"
S1, S2 = {"session": "s1"}, {"session": "s2"}


def poll_of(*ids, at, story):
    """A poll that shows a run of each of these ids active, in the session of the same number."""
    runs = [polled(key, f"r{key[0]}", session=f"s{key[0]}") for key in ids]
    return story.probe(*runs, at=at)


def first():
    return IdStory().start(FIRST, "r1", at=0, **S1)


def two_failed():
    story = IdStory().start("00000000-z", "r0", at=0, session="s0").start(FIRST, "r1", at=0, **S1)
    return story.fails("00000000-z", "r0", at=1).fails(FIRST, "r1", at=2)


def forgot_imitation():
    story = IdStory().start("22222222-z", "r0", "q-22222222", at=0).ends("22222222-z", "r0", at=1)
    story.state.forget_name("q-22222222")
    return story


BOTH = {"q": FIRST, "q-22222222": SECOND}


@pytest.mark.parametrize(
    ("story", "labels", "failed"),
    [
        (namesakes().fails(FIRST, "r1", at=2).commits(SECOND, "r2", at=3, batch=0), BOTH, {"q"}),
        (namesakes().fails(FIRST, "r1", at=2).fails(SECOND, "r2", at=2).start(THIRD, "r3", at=3, **S2).commits(THIRD, "r3", at=4, batch=0),
         {"q": FIRST, "q-22222222": THIRD}, {"q"}),
        (IdStory().start(FIRST, "r1", at=0).start(SECOND, "r2", at=1).probe(polled(FIRST, "r1"), polled(SECOND, "r2"), at=2), BOTH, set()),
        (poll_of(FIRST, SECOND, at=3, story=first().fails(FIRST, "r1", at=2)).commits(SECOND, "r2", at=4, batch=0), BOTH, {"q"}),
        (poll_of(FIRST, SECOND, at=3, story=two_failed()).commits(SECOND, "r2", at=4, batch=0),
         {"q": "00000000-z", "q-11111111": FIRST, "q-22222222": SECOND}, {"q", "q-11111111"}),
        (IdStory().start("old", "r1", at=0, **S1).fails("old", "r1", at=1).probe(polled("old", "r1", **S1), polled("new", "r2", **S1), at=2),
         {"q": "new"}, set()),
        (IdStory().start("old", "r1", at=0).start("new", "r2", at=1).probe(polled("new", "r2"), at=2), {"q": "new"}, set()),
        (IdStory().start(FIRST, "r1", at=0).start(SECOND, "r2", at=1).fails(SECOND, "r2", at=2), BOTH, {"q-22222222"}),
        (poll_of(SECOND, FIRST, at=2, story=poll_of(SECOND, at=1.5, story=first().probe(at=1))), BOTH, set()),
        (poll_of(SECOND, FIRST, at=2, story=poll_of(SECOND, at=1.5, story=first().probe(at=1).start(SECOND, "r2", at=1.1, **S2))), BOTH, set()),
        (first().probe(at=1).start(SECOND, "r2", at=1.1, **S2).ends(FIRST, "r1", at=1.2), {"q": SECOND}, set()),
        (first().probe(at=1).start(SECOND, "r2", at=1 + UNDECIDED_SECONDS, **S2), {"q": SECOND}, set()),
        (IdStory().start(FIRST, "r", "*", at=0), {"*-11111111": FIRST}, set()),
        (IdStory().start(FIRST, "r", "unnamed", at=0), {"unnamed-11111111": FIRST}, set()),
        (IdStory().start("22222222-z", "r0", "q-22222222", at=0, session="s0").start(FIRST, "r1", at=1, **S1).start(SECOND, "r2", at=2, **S2),
         {"q-22222222": "22222222-z", "q": FIRST, "q-22222222-2": SECOND}, set()),
        (forgot_imitation().start(FIRST, "r1", at=1, **S1).start(SECOND, "r2", at=2, **S2), {"q": FIRST, "q-22222222-2": SECOND}, set()),
    ],
    ids=["two live ones", "one of two is restarted with a new checkpoint", "two live ones seen by the probe",
         "one that a poll shows beside one that ends before the report",
         "the same, and a third one has failed in another session", "a restart whose last poll is shown again",
         "a poll without the predecessor", "one that fails while it is undecided", "polls miss a run for a moment",
         "polls miss a run for a moment, and another one starts", "a run that vanished and whose end comes late", "a run that vanished long ago",
         "a reserved name", "another reserved name", "names that imitate labels",
         "a name that imitated a label and is forgotten"],
)  # fmt: skip
def test_queries_of_one_name_have_labels_of_their_own_unless_one_continues_the_other(
    story, labels, failed
):
    """The ids by label, and the labels with a failure that is not recovered."""
    shown = story.shown()

    assert {label: query.query_id for label, query in shown.items()} == labels
    assert {label for label, query in shown.items() if query.failure} == failed


def test_label_does_not_move_when_its_first_query_is_forgotten():
    story = IdStory().start(FIRST, "r1", at=0, trigger="OneTimeTrigger", **S1)
    story.start(SECOND, "r2", at=1, **S2).ends(FIRST, "r1", at=2)
    story.state.forget(KEEP_COMPLETED_SECONDS + 3)

    assert list(story.shown()) == ["q-22222222"]
    story.start(FIRST, "r3", at=2000, **S1)
    assert story.state.query(FIRST).label == "q"


def nameless():
    """A query whose start event was lost, and that failed before a poll saw it."""
    return IdStory().fails("aaaaaaaa-1", "run-0", at=1)


@pytest.mark.parametrize(
    "shows_name",
    [
        lambda story: story.start("aaaaaaaa-1", "run-1", "bronze", at=5),
        lambda story: story.probe(polled("aaaaaaaa-1", "run-1", "bronze"), at=5),
        lambda story: story.probe(polled("aaaaaaaa-1", "run-0", "bronze", **DIED), at=5),
        lambda story: story.start("aaaaaaaa-1", "run-1", None, at=5).commits(
            "aaaaaaaa-1", "run-1", "bronze", at=6, batch=3
        ),
    ],
    ids=["start", "poll", "poll of the ended run", "progress"],
)
def test_query_first_known_by_its_failure_gets_the_label_of_its_name(shows_name):
    story = nameless()
    assert list(story.shown(2)) == ["aaaaaaaa"]
    shows_name(story)

    assert list(story.shown()) == ["bronze"]
    assert story.shown()["bronze"].history.totals.failed == 1
    assert story.state.query("aaaaaaaa-1").label == "bronze"
    story.start("aaaaaaaa-1", "run-9", "silver", at=9)
    assert list(story.shown()) == ["bronze"], "it moves only once"


def restarted(session="s1", commits_at=None):
    """A query of unknown name failed, and a poll from before the restart shows its name."""
    story = nameless().start("bbbbbbbb-2", "run-1", "bronze", at=5, session=session)
    if commits_at:
        story.commits("bbbbbbbb-2", "run-1", "bronze", at=commits_at, batch=0)
    return story.probe(polled("aaaaaaaa-1", "run-0", "bronze", session="s1"), at=4)


def named_late(story):
    """A poll shows the name of the query that failed at 1 s without a known start."""
    run = polled("aaaaaaaa-1", "run-0", "bronze", session="s1", active=False, exception=CONFLICT)
    return story.probe(run, at=12)


def named_query(session="s1"):
    """A query of the name with commits, by default in the session of the nameless one."""
    story = IdStory().start("bbbbbbbb-2", "run-1", "bronze", at=0, session=session)
    return story.commits("bbbbbbbb-2", "run-1", "bronze", at=0.2, batch=0)


@pytest.mark.parametrize(
    ("story", "expected"),
    [
        (nameless().start("aaaaaaaa-1", "run-1", None, at=4).start("aaaaaaaa-1", "run-2", "bronze", at=5).fails("aaaaaaaa-1", "run-1", at=6),
         {"bronze": ("run-2", True, 2, 0, 2)}),
        (named_query().fails("aaaaaaaa-1", "run-0", at=1).start("aaaaaaaa-1", "run-2", "bronze", at=5, session="s2"),
         {"bronze": ("run-1", False, 0, 1, 0), "bronze-aaaaaaaa": ("run-2", True, 1, 0, 1)}),
        (restarted(), {"bronze": ("run-1", True, 1, 0, 1)}),
        (restarted(session="s2"), {"bronze": ("run-1", False, 0, 0, 0), "bronze-aaaaaaaa": ("run-0", True, 1, 0, 0)}),
        (restarted(commits_at=6), {"bronze": ("run-1", False, 1, 1, 1)}),
        (named_late(named_query("s2").fails("aaaaaaaa-1", "run-0", at=1).commits("bbbbbbbb-2", "run-1", "bronze", at=11, batch=1)),
         {"bronze": ("run-1", False, 0, 2, 0), "bronze-aaaaaaaa": ("run-0", True, 1, 0, 0)}),
        (named_late(named_query("").fails("aaaaaaaa-1", "run-0", at=1).commits("bbbbbbbb-2", "run-1", "bronze", at=11, batch=1)),
         {"bronze": ("run-1", False, 0, 2, 0), "bronze-aaaaaaaa": ("run-0", True, 1, 0, 0)}),
        (named_late(named_query("s2").fails("bbbbbbbb-2", "run-1", at=0.4).fails("aaaaaaaa-1", "run-0", at=1)),
         {"bronze": ("run-1", True, 1, 1, 0), "bronze-aaaaaaaa": ("run-0", True, 1, 0, 0)}),
        (named_late(named_query().fails("bbbbbbbb-2", "run-1", at=0.4).fails("aaaaaaaa-1", "run-0", at=1)), {"bronze": ("run-0", True, 2, 1, 1)}),
        (named_late(named_query().fails("aaaaaaaa-1", "run-0", at=1).fails("bbbbbbbb-2", "run-1", at=5)),
         {"bronze": ("run-1", True, 1, 1, 0), "bronze-aaaaaaaa": ("run-0", True, 1, 0, 0)}),
        (named_query().fails("aaaaaaaa-1", "run-0", at=1).fails("bbbbbbbb-2", "run-1", at=3).start("aaaaaaaa-1", "run-2", "bronze", at=5, session="s2")
         .commits("aaaaaaaa-1", "run-2", "bronze", at=6, batch=0), {"bronze": ("run-1", True, 1, 1, 0), "bronze-aaaaaaaa": ("run-2", False, 1, 1, 1)}),
        (nameless().start("aaaaaaaa-1", "run-1", "bronze", at=5, session="s1").fails("aaaaaaaa-1", "run-1", at=6).start("bbbbbbbb-2", "run-2", "bronze", at=7, session="s1")
         .start("aaaaaaaa-1", "run-3", None, at=8, session="s2"), {"bronze": ("run-2", True, 2, 0, 2), "aaaaaaaa": ("run-3", False, 1, 0, 2)}),
        (nameless().start("bbbbbbbb-2", "run-1", "bronze", at=2, session="s1").commits("bbbbbbbb-2", "run-1", "bronze", at=3, batch=0)
         .start("bbbbbbbb-2", "run-2", "bronze", at=5, session="s1").probe(polled("aaaaaaaa-1", "run-0", "bronze", session="s1"), at=0.9),
         {"bronze": ("run-2", False, 1, 1, 2)}),
    ],
    ids=["an end is late", "another query has the name", "restarted with a new checkpoint", "a live query of another session has the name",
         "restarted, and has committed", "a live query elsewhere has the name and commits", "one of an unknown session has the name and commits",
         "one that failed elsewhere has the name", "one that ended before in its session has the name", "one that ended afterwards has the name",
         "it restarts elsewhere, and one of the name has failed", "its label is given again", "a later run has recovered"],
)  # fmt: skip
def test_query_first_known_by_a_failure_is_one_with_the_query_of_its_name_or_stays_apart(
    story, expected
):
    """By label: the current run, whether a failure is unrecovered, failures, commits, restarts."""
    assert {
        label: (
            query.run.run_id,
            query.failure is not None,
            query.history.totals.failed,
            query.history.totals.commits,
            query.history.totals.restarts,
        )
        for label, query in story.shown().items()
    } == expected


def test_query_that_was_first_known_by_a_failure_keeps_what_is_usual_for_its_name():
    story = named_query().commits("bbbbbbbb-2", "run-1", "bronze", at=0.3, batch=1)
    usual = story.shown()["bronze"]
    story.fails("bbbbbbbb-2", "run-1", at=0.4).fails("aaaaaaaa-1", "run-0", at=1)
    bronze = named_late(story).shown()["bronze"]

    assert bronze.history.longest_batches == usual.history.longest_batches
    assert bronze.history.usual_seconds == usual.history.usual_seconds == 0.2


def test_two_queries_that_turn_out_to_be_one_have_the_usual_batch_of_both():
    story = named_query().fails("bbbbbbbb-2", "run-1", at=0.4)
    story.start("aaaaaaaa-1", "run-0", None, at=0.5).commits(
        "aaaaaaaa-1", "run-0", None, at=1, batch=0
    )
    before = [query.history.usual_seconds for query in story.shown().values()]
    (bronze,) = named_late(story.fails("aaaaaaaa-1", "run-0", at=2)).shown().values()

    assert before == [None, None]
    assert bronze.history.usual_seconds == 0.2


@pytest.mark.parametrize("query_id", ["id", "new"])
def test_what_is_usual_for_a_query_is_usual_for_its_next_run(query_id):
    """With the same checkpoint or a new one."""
    story = IdStory().start("id", "run-1", at=0)
    story.commits("id", "run-1", at=50, batch=0, seconds=40.0)
    story.commits("id", "run-1", at=100, batch=1, seconds=30.0)
    story.fails("id", "run-1", at=101).start(query_id, "run-2", at=110)

    (query,) = story.shown().values()
    assert (query.run.run_id, query.history.usual_seconds) == ("run-2", 30.0)


def test_joined_failures_are_in_order_of_time():
    """The query of the name has failed before, and the nameless run between its failures."""
    story = IdStory().start("bbbbbbbb-2", "run-1", "bronze", at=0, session="s1")
    story.fails("bbbbbbbb-2", "run-1", at=1).fails("aaaaaaaa-1", "run-0", at=5000)
    story.start("bbbbbbbb-2", "run-2", "bronze", at=5001, session="s1")
    story.probe(polled("aaaaaaaa-1", "run-0", "bronze", session="s1"), at=4999)

    bronze = story.shown()["bronze"]
    assert [died.at for died in bronze.history.failures] == [1, 5000]
    assert bronze.history.unrecovered.at == 5000
    assert story.found(5002) == [("StreamingQueryFailed", "bronze")]


def test_failure_of_a_joined_run_whose_end_comes_last_is_reported():
    """A poll missed a nameless run, whose name a late event shows after its restart."""
    story = IdStory().probe(polled("aaaaaaaa-1", "run-0", None, session="s1"), at=1).probe(at=2)
    story.start("bbbbbbbb-2", "run-1", "bronze", at=3, session="s1")
    story.commits("aaaaaaaa-1", "run-0", "bronze", at=3.5, batch=0)
    assert list(story.shown(3.6)) == ["bronze"]

    story.fails("aaaaaaaa-1", "run-0", at=4)
    assert story.found(5) == [("StreamingQueryFailed", "bronze")]


@pytest.mark.parametrize(
    ("story", "shown"),
    [
        (
            IdStory()
            .start(FIRST, "r1", at=0)
            .probe(polled(FIRST, "r1"), at=1)
            .start(SECOND, "r2", at=2.1),
            (),
        ),
        (IdStory().start(FIRST, "r1", at=2.1), (polled(SECOND, "r2"),)),
    ],
    ids=["a start after the poll began", "a run that the poll shows beside such a start"],
)
def test_run_waits_for_the_next_poll_if_this_one_could_not_show_its_namesake(story, shown):
    story.state.apply_probe(ProbeReport(began_at=2.0, at=2.2, runs=shown))
    assert [query.query_id for query in story.shown(2.3).values()] == [FIRST]

    story.probe(polled(FIRST, "r1"), polled(SECOND, "r2"), at=3)
    assert {label: query.query_id for label, query in story.shown(3.1).items()} == BOTH


def test_late_failure_of_a_forgotten_query_is_none_of_the_query_that_returns():
    story = IdStory().start("id", "r1", at=0).start("id", "r2", at=1).ends("id", "r2", at=2)
    story.state.forget_name("q")
    story.start("id", "r3", at=10).fails("id", "r1", at=11)

    assert story.found(12) == []


def held_starts():
    """The probe has seen a run of one query; its next start, and one of its name, are undecided."""
    story = IdStory().probe(polled("11111111-a", "r1", session="s2"), at=0)
    story.start("22222222-b", "r2", at=1)
    return story.start("11111111-a", "r3", at=2, session="s1")


@pytest.mark.parametrize(
    "decide",
    [
        lambda story: story.state.snapshot(2.1 + UNDECIDED_SECONDS),
        lambda story: story.probe(at=3),
        lambda story: story.probe(polled("22222222-b", "r2"), at=3),
        lambda story: story.ends("11111111-a", "r1", at=3),
    ],
    ids=["time", "a poll without both", "a poll of the other", "the end"],
)
def test_next_run_of_an_id_keeps_its_label_from_an_earlier_start_of_its_name(decide):
    story = held_starts()
    decide(story)

    labels = {label: query.query_id for label, query in story.shown().items()}
    assert labels == {"q": "11111111-a", "q-22222222": "22222222-b"}


def test_flood_of_undecided_events_is_decided_at_once():
    story = IdStory().start("11111111-a", "r1", at=0).start("22222222-b", "r2", at=1)
    for batch in range(1000):
        story.commits("22222222-b", "r2", at=1, batch=batch)

    assert story.state.query("22222222-b").checkpoint.last_commit_batch == 999


def ended_first(story, n, at, session):
    story.start(f"id-{n}", f"r-{n}", at=at, session=session)
    story.fails(f"id-{n}", f"r-{n}", at=at + 1)


def overtaken(story, n, at, session):
    story.start(f"id-{n}", f"r-{n}", at=at, session=session)
    if n:
        story.fails(f"id-{n - 1}", f"r-{n - 1}", at=at + 0.1)


@pytest.mark.parametrize(
    ("restart", "session"),
    [(ended_first, ""), (ended_first, "s1"), (ended_first, "s{}"), (overtaken, ""), (overtaken, "s1")],
)  # fmt: skip
def test_crash_loop_without_a_fixed_checkpoint_is_one_query(restart, session):
    """In an unknown session, in one, or in a new session each time."""
    story, found = IdStory(), set()
    for number in range(30):
        restart(story, number, number * 2.0, session.format(number))
        found |= set(story.found(number * 2.0 + 1.5))

    assert set(story.shown()) == {"q"}
    assert found <= {("StreamingQueryFailed", "q"), ("StreamingQueryFlapping", "q")}
    assert story.shown()["q"].history.totals.restarts == 29


# -- label length ---------------------------------------------------------------------------------


def test_long_names_that_differ_only_at_the_end_get_distinct_short_labels():
    names = ["n" * 10_000 + end for end in ("a", "b")]
    story = IdStory()
    for number, name in enumerate(names):
        story.start(f"id-{number}", f"r-{number}", name, at=0)

    labels = story.shown()
    assert len(labels) == 2
    assert max(map(len, labels)) == LABEL_CHARACTERS


def test_pattern_matches_the_full_name_of_a_query_with_a_short_label():
    name = "n" * 10_000 + "-nightly"
    story = IdStory().start("id", "r", name, at=0).fails("id", "r", at=1)

    assert story.found(2, overrides=[("*-nightly", {"ignore": True})]) == []
    assert story.found(2) == [("StreamingQueryFailed", base_label(name))]


def test_long_expected_name_is_missing_under_its_label():
    name = "n" * 10_000

    assert IdStory().found(500, expected=[name]) == [("StreamingQueryMissing", base_label(name))]
    story = IdStory().start("id", "r", name, at=0).commits("id", "r", name, at=1, batch=0)
    assert story.found(2, expected=[name]) == []


# -- forgetting -----------------------------------------------------------------------------------

AVAILABLE_NOW = "AvailableNowTrigger"


def completed(story=None, number=1, *, at=0.0, query_id="id"):
    """A run that commits once and completes."""
    story = story or IdStory()
    run_id = f"run-{number}"
    story.start(query_id, run_id, at=at, trigger=AVAILABLE_NOW)
    story.commits(query_id, run_id, at=at + 1, batch=number)
    return story.ends(query_id, run_id, at=at + 2)


def forgotten():
    story = completed()
    story.state.forget(KEEP_COMPLETED_SECONDS + 3)
    assert story.shown() == {}
    return story


def test_old_events_do_not_bring_a_forgotten_query_back():
    of_other_runs = [(what, "unmet") for what in ("progress", "probe's failure")]
    for what, run in [*((what, "run-1") for what in LATE_OBSERVATIONS), *of_other_runs]:
        story = forgotten()
        LATE_OBSERVATIONS[what](story, run)

        assert story.shown() == {}, (what, run)


@pytest.mark.parametrize("query_id", ["id", "new"])
def test_forgotten_query_continues_its_counters_when_it_returns(query_id):
    """Counters never decrease, with the same checkpoint or a new one."""
    story = completed(forgotten(), number=2, at=LATE, query_id=query_id)

    (query,) = story.shown(LATE).values()
    assert query.label == "q"
    assert (
        query.history.totals.commits,
        query.history.totals.completed,
        query.history.totals.restarts,
    ) == (2, 2, 1)


def test_forgotten_loop_continues_its_trends_and_its_usual_batch_when_it_returns():
    """An hourly loop is forgotten after each run."""
    story = IdStory().start("id", "run-1", at=0, trigger=AVAILABLE_NOW)
    story.commits("id", "run-1", at=900, batch=0, seconds=890.0, late_rows=5, input_rows=10)
    story.ends("id", "run-1", at=901).state.forget(KEEP_COMPLETED_SECONDS + 902)
    story.start("id", "run-2", at=3600, trigger=AVAILABLE_NOW)

    (query,) = story.shown(3601).values()
    assert query.checkpoint.trends.late.batches == 1
    assert [seconds for _, seconds in query.history.longest_batches] == [890.0]


def test_forgotten_query_continues_the_time_without_input_when_it_returns():
    """The time in which it was down does not count, nor does the time before its last rows."""
    story = IdStory().start("id", "run-1", at=0).commits("id", "run-1", at=100, batch=0)
    story.fails("id", "run-1", at=110)
    story.state.forget_name("q")
    story.start("id", "run-2", at=500)

    (query,) = story.shown(501).values()
    assert query.checkpoint.without_input_before == 10.0


def test_available_now_loop_whose_first_run_failed_pages_once():
    """The probe remembers the failed run long after the query has recovered."""
    ended = polled("id", "run-0", active=False, exception=CONFLICT)
    story = IdStory().start("id", "run-0", at=0).fails("id", "run-0", at=1)
    assert story.found(2) == [("StreamingQueryFailed", "q")]
    for number in range(1, 60):
        at = number * 60.0
        completed(story, number, at=at).probe(ended, at=at + 30)
        story.state.forget(at + 40)
        assert story.found(at + 50) == []


def test_expected_query_is_never_forgotten():
    story = IdStory()
    story.state = State(0.0, ["q"])
    completed(story)
    for number in range(MAX_GONE_QUERIES + 10):
        story.start(f"id-{number}", f"r-{number}", f"q{number}", at=number)
        story.ends(f"id-{number}", f"r-{number}", at=number)
    story.state.forget(1e6)

    assert "q" in story.shown()
    assert ("StreamingQueryMissing", "q") not in story.found(1e6, expected=["q"])


# -- a completed run is a recovery ----------------------------------------------------------------


def restarted_after_a_failure(trigger="OneTimeTrigger"):
    return IdStory().start("id", "r1", at=0).fails("id", "r1", at=1).start("id", "r2", at=2, trigger=trigger)  # fmt: skip


def test_completed_run_and_an_announced_stop_clear_an_earlier_failure_in_any_order():
    after, at_work = restarted_after_a_failure, {"trigger": ""}
    stories = {
        "progress first": after().commits("id", "r2", at=3, batch=0).ends("id", "r2", at=3),
        "end first": after().ends("id", "r2", at=3).commits("id", "r2", at=3, batch=0),
        "end only": after().ends("id", "r2", at=3),
        "announced before": after(**at_work).expect_stop("q").ends("id", "r2", at=3),
        "announced after": after(**at_work).ends("id", "r2", at=3).expect_stop("q"),
        "the failure arrives last": IdStory().start("id", "r1", at=0)
        .start("id", "r2", at=1, trigger="OneTimeTrigger").ends("id", "r2", at=2).fails("id", "r1", at=3),
    }  # fmt: skip

    for what, story in stories.items():
        query = story.state.query("id")
        assert (query.failure, query.history.unrecovered_failures, query.history.totals.failed) == (
            None,
            0,
            1,
        ), what
        assert story.found(1000) == [], what


def test_other_end_clears_no_failure():
    stories = {
        "a sudden stop": restarted_after_a_failure(trigger="").ends("id", "r2", at=3),
        "a stop that is announced after the failure": IdStory()
        .start("id", "r1", at=0).fails("id", "r1", at=1).expect_stop("q"),
    }  # fmt: skip

    assert [what for what, story in stories.items() if not story.state.query("id").failure] == []


# -- any events in any order ----------------------------------------------------------------------

ids = st.sampled_from(["11111111", "22222222", "33333333"])
names = st.sampled_from(["q", "q", "p", None])
sessions = st.sampled_from(["", "s1", "s2"])
numbers = st.integers(1, 3)


@st.composite
def steps(draw):
    query_id, name, session = draw(ids), draw(names), draw(sessions)
    run_id, batch = f"{query_id}-{draw(numbers)}", draw(st.integers(-1, 6))
    kind = draw(
        st.sampled_from(["start", "commit", "idle", "end", "fail", "probe", "gone", "drop"])
    )
    return {
        "start": lambda p, at: p.start(query_id, run_id, name, at=at, session=session),
        "commit": lambda p, at: p.commits(
            query_id, run_id, name, at=at, batch=max(batch, 0), committed=batch >= 0
        ),
        "idle": lambda p, at: p.idles(query_id, run_id, at=at),
        "end": lambda p, at: p.ends(query_id, run_id, at=at),
        "fail": lambda p, at: p.fails(query_id, run_id, at=at),
        "probe": lambda p, at: p.probe(
            polled(query_id, run_id, name, session=session, batch=batch), at=at
        ),
        "gone": lambda p, at: p.probe(
            polled(query_id, run_id, name, active=False, exception=CONFLICT), at=at
        ),
        "drop": lambda p, at: p.state.forget_name(name or "unnamed"),
    }[kind]


# One random history in 10,000 gives the label of an id to another one within one step, and rightly.
@settings(derandomize=True)
@given(st.lists(steps(), max_size=60))
def test_labels_stay_and_counters_only_grow_in_any_order(script):
    story, labels, totals = IdStory(), {}, {}
    for at, step in enumerate(script):
        step(story, at)
        shown = story.shown(at)
        present = {query.query_id: label for label, query in shown.items()}
        assert len(present) == len(shown)
        for query_id, label in present.items():
            # A query without a name gets the label of its name, once.
            assert labels.get(query_id, label) in {label, query_id}
        for label, query in shown.items():
            before = totals.get(label, query.history.totals)
            for field in set(before.__struct_fields__) - {"batch_buckets"}:
                assert getattr(query.history.totals, field) >= getattr(before, field)
            assert sum(query.history.totals.batch_buckets) >= sum(before.batch_buckets)
            assert query.run.last_activity_at <= at
            totals[label] = query.history.totals
        labels = present
        story.evaluate(at, expected=["q"])
