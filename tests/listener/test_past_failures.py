"""Failures kept in a spool: which ones count in the next process, and which do not."""

from __future__ import annotations

import msgspec
import pytest
from support.story import CONFLICT, Story, processing

from querypulse.alerting.delivery.spool import kept_failures
from querypulse.alerting.words.messages import say
from querypulse.listener.commit_log import LogReport, StartingPoint, Written
from querypulse.listener.events import Started, Terminated
from querypulse.listener.past_failures import (
    KEEP_SECONDS,
    MAX_KEPT,
    FailedQuery,
    PastFailures,
    mark_of,
    shifted,
)
from querypulse.listener.probe_report import Context
from querypulse.listener.state.history import UNKNOWN_BATCH, RunFailure

DAY = 24 * 3600.0
NAME = "StreamingQueryFlapping"
WALL = 1_700_000_000.0
EVERY_SECONDS = 120.0
UUID = "01234567-89ab-cdef-0123-456789abcdef"
OOM = "java.lang.OutOfMemoryError: Java heap space"


class Process(Story):
    """One process; its own clock starts at 0, ``born`` seconds after the first process began.

    ``ahead``: by how many seconds its wall clock is fast.
    """

    def __init__(self, *, born=0.0, kept=(), ahead=0.0):
        super().__init__()
        self.born = born
        self.wall = WALL + born + ahead
        self.past = PastFailures()
        self.read(kept)

    def read(self, kept, *, at=0.0):
        """The spool returns kept failures, perhaps late."""
        self.past.add(kept, now=at, wall=self.wall + at, began_at=0.0)
        return self

    def evaluate(self, now):
        self.state.restore(self.past)
        return super().evaluate(now)

    def kept(self, at):
        """The failures on disk when the process ends at ``at``."""
        self.state.restore(self.past)
        snapshot = self.state.snapshot(at)
        kept = kept_failures(snapshot.queries, self.past.unmet, at)
        text = msgspec.json.encode([shifted(entry, self.wall) for entry in kept])
        return msgspec.json.decode(text, type=tuple[FailedQuery, ...])

    def next(self, *, after=EVERY_SECONDS, ahead=0.0):
        """The next process, which begins ``after`` seconds after this one; this one has ended."""
        kept = self.kept(after)
        return Process(born=self.born + after, kept=kept, ahead=ahead)

    def fails(self, query="a", run=1, *, at=60, batch=None, exception=CONFLICT):
        """A run fails: in ``batch``, or without it after one commit."""
        self.started(query, run, at=at - 8)
        if batch is None:
            self.commit(query, run, batch=int(self.born) + run, at=at - 5)
        else:
            self.probe(processing(query, run, batch=batch), at=at - 5)
        return self.ended(query, run, at=at, exception=exception)


def failing(count, *, every=EVERY_SECONDS, **how):
    """The last of ``count`` processes, each of which fails once."""
    process = Process().fails(**how)
    for _ in range(count - 1):
        process = process.next(after=every).fails(**how)
    return process


def flapping(process, now):
    return [entry for entry in process.evaluate(now).findings if entry.alertname == NAME]


def of_session(process, run, query_id, *, session, at):
    process.state.apply_event(Started(query_id, f"{query_id}-{run}", "a", session=session), at)
    return process


def dies(process, run, query_id, *, at):
    process.state.apply_event(Terminated(query_id, f"{query_id}-{run}", CONFLICT, None), at)
    return process


def unnamed(process, query_id):
    process.state.apply_event(Started(query_id, f"{query_id}-1", None), 55)
    return dies(process, 1, query_id, at=60)


def unknown_batch(process):
    """The query fails before any signal shows where its run began."""
    return process.started(at=59).ended(at=60, exception=CONFLICT)


def unseen(count, *, committed):
    """The query fails before a poll shows its batch; its checkpoint is read afterwards."""
    process, read = Process(), {"at": 61, "committed": (committed, -40.0)}
    for _ in range(count - 1):
        process = unknown_batch(process).began(**read).next(after=3600.0)
    return unknown_batch(process).began(**read)


LAST_OF = "the last with ConcurrentAppendException"
THREE = f"3 failures within 10 min, 2 of them in earlier processes, {LAST_OF}"
POISON = "poison_batch: batch 7 failed 3 times with ConcurrentAppendException"


def flapping_histories():
    """What happened, the last process, the time and the reason of the alert."""
    return [
        ("failed in each process, with commits in between", failing(3), 61, THREE),
        ("failed twice in the process before", Process().fails().fails(run=2, at=100).next().fails(), 61, THREE),
        ("failed in three processes, and starts in the fourth", failing(3).next().started(at=5), 6,
         f"3 failures within 10 min, 3 of them in earlier processes, {LAST_OF}"),
        ("failed in three processes, and commits in the fourth",
         failing(3).next().started(at=5).commit(batch=400, at=8), 9,
         f"3 failures within 10 min, 3 of them in earlier processes, {LAST_OF}"),
        ("was not started in the process in between", failing(2).next(after=100).next(after=100).fails(), 61, THREE),
        ("each process has another checkpoint, under the same name",
         dies(of_session(failing(2).next(), 1, "id-new", session="s9", at=50), 1, "id-new", at=60), 61, THREE),
        ("has no name, and the same id", unnamed(unnamed(unnamed(Process(), "x"*36).next(), "x"*36).next(), "x"*36), 61,
         f"xxxxxxxx: {THREE}"),
        ("one batch, and nothing shows the batch of one failure in between",
         unknown_batch(failing(1, batch=7).next(after=DAY)).next(after=DAY).fails(batch=7), 61, f"{POISON}, 2 of them in earlier processes"),
        ("one batch, and nothing shows the batch of the last failure",
         unknown_batch(failing(2, batch=7, every=DAY).next(after=DAY)), 61, f"{POISON}, 2 of them in earlier processes"),
        ("the clock is behind by 20 s in the third process", failing(2).next(ahead=-80.0).fails(), 61, THREE),
        ("the spool answers after it has failed", Process(born=240.0).fails().read(failing(2).kept(120), at=65), 66, THREE),
        ("one batch in each process", failing(3, batch=7), 61, f"{POISON}, 2 of them in earlier processes"),
        ("one batch, once a day", failing(3, batch=7, every=DAY), 61, f"{POISON}, 2 of them in earlier processes"),
        ("one batch, and the next process has only started it", failing(3, batch=7, every=DAY).next(after=DAY).started(at=5), 6,
         f"{POISON}, 3 of them in earlier processes"),
        ("one batch that no poll has shown", unseen(3, committed=6), 62, f"{POISON}, 2 of them in earlier processes"),
    ]  # fmt: skip


def test_failures_of_earlier_processes_count_and_are_marked():
    for what, process, now, reason in flapping_histories():
        (alert,) = flapping(process, now)

        assert (alert.severity.value, say(alert).reason) == ("critical", reason), what
        assert ", in an earlier process" in say(alert).evidence["deaths"], what
    assert [entry.alertname for entry in failing(4).evaluate(61).findings] == [NAME], "and no other"


def recovered(*, commits=True):
    """A batch failed in three processes, and the next process gets past it."""
    process = failing(3, batch=7).next(after=1000.0).started(at=5)
    return process.commit(batch=7, at=8) if commits else process.idle(at=8)


def namesakes(*, alive):
    """Two queries with one name in two sessions: one failed three times, the other is healthy."""
    process = of_session(Process(), 0, "id-b", session="s2", at=1)
    for number, at in enumerate((20, 30, 40)):
        of_session(process, number, "id-a", session="s1", at=at)
        dies(process, number, "id-a", at=at + 5)
    if not alive:
        process.state.apply_event(Terminated("id-b", "id-b-0", None, None), 50.0)
    return process


def harmless_histories():
    """What happened, the last process and the time."""
    return [
        ("two failures in two processes", failing(2), 61),
        ("failures that are older than the window", failing(3, every=400.0), 61),
        ("the failures of a process grow old in the next one", failing(3).next().started(at=5).commit(batch=400, at=8), 500),
        ("fails in different batches, a day apart", failing(3, every=DAY), 61),
        ("fails with different errors, a day apart",
         failing(2, batch=7, every=DAY).next(after=DAY).fails(batch=7, exception=OOM), 61),
        ("nothing shows the batch of any failure, a day apart",
         unknown_batch(unknown_batch(unknown_batch(Process()).next(after=DAY)).next(after=DAY)), 61),
        ("fails in different batches, and nothing shows the batch of a failure in between",
         unknown_batch(failing(1, batch=7).next(after=DAY)).next(after=DAY).fails(batch=8), 61),
        ("one batch that was committed", recovered(), 9),
        ("one batch, and idle since", recovered(commits=False), 9),
        ("one batch, committed in the last process, and a new one starts", recovered().next(after=1000.0).started(at=5), 6),
        ("one batch, and a process that nobody watched has committed it",
         failing(3, batch=7, every=DAY).next(after=DAY).started(at=5).began(at=6, committed=(9, -600.0)), 7),
        ("one batch, a month ago", failing(3, batch=7).next(after=KEEP_SECONDS + DAY).started(at=5), 6),
        ("one batch in two processes", failing(2, batch=7), 61),
        ("planned stops", Process().started(at=1).commit(batch=1, at=2).expect_stop().ended(at=3).next().started(at=1).expect_stop().ended(at=2)
         .next().started(at=1).expect_stop().ended(at=2), 3),
        ("unannounced stops", Process().started(at=1).ended(at=2).next().started(at=1).ended(at=2).next().started(at=1).ended(at=2), 3),
        ("ends with its SparkContext", failing(2).next().started(at=1).ended(at=2, exception="SparkContext was shut down", context=Context.STOPPED), 3),
        ("another query", failing(3).next().fails("b"), 61),
        ("a query without a name, and with another id", unnamed(unnamed(unnamed(Process(), "x"*36).next(), "y"*36).next(), "z"*36), 61),
        ("its name with another checkpoint, healthy in the last process",
         of_session(namesakes(alive=True).next(), 1, "id-b", session="s9", at=5), 6),
        ("the same, and that one was the last to end", of_session(namesakes(alive=False).next(), 1, "id-b", session="s9", at=5), 6),
        ("the same, and a third checkpoint succeeds that one", of_session(namesakes(alive=False).next(), 1, "id-c", session="s9", at=5), 6),
        ("two live queries have its name",
         of_session(of_session(failing(3).next(), 1, "id-b", session="s8", at=5), 1, "id-c", session="s9", at=5), 6),
        ("the clock of the last process was a day ahead", Process(ahead=DAY).fails().fails(run=2, at=70).fails(run=3, at=80).next().started(at=5), 6),
        ("the clock is an hour ahead now", failing(3).next(ahead=3600.0).started(at=5), 6),
        ("the spool answers late, and one batch was committed meanwhile",
         Process(born=DAY).started(at=5).commit(batch=7, at=8).read(failing(3, batch=7).kept(120), at=9), 10),
        ("no spool", Process(born=120.0).fails(), 61),
    ]  # fmt: skip


def test_harmless_history_of_earlier_processes_does_not_count_as_flapping():
    flap = [what for what, process, now in harmless_histories() if flapping(process, now)]

    assert flap == []


def test_failure_of_an_earlier_process_is_no_failure_of_this_one():
    """``await_any_failure`` must not end a process for a failure in another one."""
    process = failing(3).next().started(at=5)

    assert process.evaluate(6).health["a"].state.value == "flapping"
    assert process.query().failure is None
    assert process.query().history.totals.failed == 0


# -- which query a failure belongs to ----------------------------------------------------------


def test_failures_belong_to_the_query_with_their_id_in_any_start_order():
    process = namesakes(alive=True).next()
    of_session(process, 1, "id-b", session="s8", at=5)
    process.evaluate(6)
    of_session(process, 1, "id-a", session="s9", at=7)

    assert [(entry.query, entry.alertname) for entry in flapping(process, 8)] == [("a-id-a", NAME)]


def test_failures_pass_to_one_successor_only():
    process = failing(3).next()
    of_session(process, 1, "id-b", session="s8", at=5)
    assert len(flapping(process, 6)) == 1

    of_session(process, 1, "id-c", session="s9", at=7)
    assert [entry.query for entry in flapping(process, 8)] == ["a"]


def test_restarted_query_does_not_get_the_failures_twice():
    process = failing(2).next().fails()
    process.evaluate(61)
    process.started(run=2, at=62)
    process.evaluate(63)

    assert len(process.query().history.failures) == 3


def test_failures_read_late_are_placed_before_newer_ones():
    process = Process(born=240.0).fails()
    process.evaluate(61)
    process.read(failing(2).kept(120), at=65).evaluate(66)

    assert [died.at for died in process.query().history.failures] == [-180.0, -60.0, 60]
    assert process.query().history.unrecovered_failures == 1, (
        "the query has committed in this process"
    )


# -- the clocks -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ahead", "at"),
    [
        (0.0, [-60.0]),
        (-59.0, [-1.0]),
        (-100.0, [-1.0]),
        (3600.0, [-3660.0]),
        *[(implausible, []) for implausible in (-121.0, -3600.0, -KEEP_SECONDS, KEEP_SECONDS)],
    ],
)
def test_age_of_a_failure_follows_the_clocks_unless_it_is_implausible(ahead, at):
    process = Process().fails().next(ahead=ahead).started(at=5)
    process.evaluate(6)

    assert [died.at for died in process.query().history.failures] == at


@pytest.mark.parametrize(
    ("ahead", "completed_at"), [(-10.0, -10.0), (30.0, 0.0), (61.0, None), (KEEP_SECONDS, None)]
)
def test_completion_in_the_future_is_none(ahead, completed_at):
    kept = FailedQuery("id-a", mark_of("a"), completed_at=WALL + ahead)
    process = Process(kept=[kept]).started(at=5)
    process.evaluate(6)

    assert process.query().completed_at == completed_at


def test_nonsensical_counts_and_times_do_no_harm():
    died = tuple(RunFailure(WALL + at, -5, "E") for at in (-1.0, 1e300, -1e300, -40.0))
    kept = FailedQuery("id-a", mark_of("a"), died, unrecovered_failures=10**9)
    process = Process(kept=[kept, FailedQuery("", "", (), -3)]).started(at=5)
    process.evaluate(6)

    query = process.query()
    assert [entry.at for entry in query.history.failures] == [-40.0, -1.0]
    assert query.history.unrecovered_failures == 2


# -- limits -----------------------------------------------------------------------------------


def test_only_failures_that_the_rules_use_are_kept():
    """Of one query that fails often, the last 16; of another, its batch; of a third, nothing."""
    process = Process()
    for number in range(40):
        process.fails(run=number, at=100 + 10 * number)
    process.fails("b", at=200, batch=3)
    process.fails("c", at=300).started("c", run=2, at=305).commit("c", run=2, batch=4, at=310)
    process.started("d", at=400).commit("d", batch=1, at=401)
    kept = {entry.query_id: entry for entry in process.kept(2000)}

    assert {name: len(entry.failures) for name, entry in kept.items()} == {"id-b": 1, "id-a": 1}
    assert {entry.query_id: len(entry.failures) for entry in process.kept(500)}["id-a"] == 16


def test_failures_of_a_query_not_seen_in_this_process_are_kept_for_the_next():
    process = failing(3, batch=7).next().next().next()

    assert [len(entry.failures) for entry in process.kept(1)] == [3]
    assert process.past.restored({}) == []
    assert recovered().kept(10) == (), "a committed batch is kept no longer than the window"


def test_at_most_a_thousand_queries_are_kept_with_the_newest_failures_first():
    process = Process()
    for number in range(MAX_KEPT + 5):
        process.fails(f"q{number}", at=10 + number / 10)
    kept = {entry.query_id for entry in process.kept(200)}

    assert len(kept) == MAX_KEPT
    assert {"id-q5", f"id-q{MAX_KEPT + 4}"} <= kept
    assert "id-q4" not in kept


# -- a checkpoint that lost its query id ---------------------------------------------------------

REWOUND = "StreamingOffsetsRewound"


def starts(process, query_id="old", name="a", *, at=5, folder="/cp/orders", committed=None):
    """A run that begins in a folder, whose newest commit was at that time."""
    start = Started(query_id, f"{query_id}-run", name, checkpoint=folder)
    process.state.apply_event(start, at)
    point = StartingPoint(committed=None if committed is None else Written(41, committed))
    starts = {f"{query_id}-run": point}
    process.state.apply_commit_log(LogReport(at + 1, starts=starts))
    return process


def without_id(*, between=lambda process: process, **how):
    """The process after one that ran ``old``; the file with its id was deleted in between."""
    process = between(starts(Process())).next(after=DAY)
    return starts(process, "new", **{"committed": -60.0, **how})


@pytest.mark.parametrize("name", ["a", None], ids=["named", "unnamed"])
def test_checkpoint_that_lost_its_id_between_two_processes_is_a_warning(name):
    process = starts(Process(), name=name).next(after=DAY)
    (found,) = starts(process, "new", name, committed=-60.0).evaluate(7).findings

    assert (found.alertname, found.severity.value) == (REWOUND, "warning")
    assert say(found).evidence["id_before"] == "old"


def test_failures_go_on_in_the_folder_under_a_new_id():
    process = starts(Process(), name=None)
    dies_in_folder = Terminated("old", "old-run", CONFLICT, None)
    process.state.apply_event(dies_in_folder, 60)
    process = starts(process.next(), "new", None, committed=-90.0)
    process.evaluate(7)

    assert len(process.state.query("new").history.failures) == 1


@pytest.mark.parametrize(
    "process",
    [
        without_id(committed=None),
        without_id(committed=5.5),
        without_id(folder="/cp/copy"),
        without_id(folder=""),
        without_id(name="b"),
        without_id(name=None),
        starts(starts(Process()).next(after=DAY), committed=-60.0),
        starts(starts(Process(), folder="").next(after=DAY), "new", committed=-60.0),
        starts(starts(Process(), folder=f"file:/tmp/temporary-{UUID}").next(), "new", folder=f"file:/tmp/temporary-{UUID}", committed=-60.0),
    ],
    ids=["an empty folder", "a folder that was emptied and has a new commit", "another folder", "an unknown folder", "another name", "no name",
         "the same id", "its folder was not known", "a temporary folder"],
)  # fmt: skip
def test_other_checkpoint_of_the_next_process_is_no_loss_of_identity(process):
    assert process.evaluate(7).findings == ()


def test_failures_stay_with_the_query_that_had_them_when_another_one_took_its_checkpoint():
    process = Process().fails(batch=7).fails(run=2, at=80, batch=7)
    process.started(run=3, at=85).takes(of_run=3, at=90)
    process = process.next()
    process.state.apply_event(Started("id-a", "b-2", "b", checkpoint="/cp"), 5)
    process.evaluate(6)
    assert process.state.query("id-a").history.failures == ()

    process.state.apply_event(Started("id-a", "a-4", "a", checkpoint="/cp", replaced="b-2"), 7)
    process.evaluate(8)
    assert [
        len(query.history.failures) for query in process.state.snapshot(8).labels().values()
    ] == [0, 2]


def test_failures_of_a_query_that_was_renamed_between_two_processes_count():
    process = failing(2, batch=7).next()
    process.state.apply_event(Started("id-a", "b-1", "b"), 5)
    process.evaluate(6)

    assert len(process.state.query("id-a").history.failures) == 2


def test_spool_of_an_earlier_version_has_no_folders():
    text = b'[{"query_id": "old", "mark": "%s", "more": 1}]' % mark_of("a").encode()
    kept = msgspec.json.decode(text, type=tuple[FailedQuery, ...])

    assert starts(Process(kept=kept), "new", committed=-60.0).evaluate(7).findings == ()


def test_folders_of_queries_that_did_not_run_are_kept_and_no_path_is_written():
    process = starts(Process()).next(after=DAY).next(after=DAY)
    (entry,) = process.kept(1)

    assert (entry.query_id, len(entry.folder), "orders" in entry.folder) == ("old", 16, False)
    assert starts(process, "new", committed=-60.0).evaluate(7).findings[0].alertname == REWOUND


def test_no_name_is_written_to_the_spool():
    """A name may be long, or contain private data."""
    (entry,) = Process().fails("secret" * 100).kept(61)

    assert "secret" not in entry.mark
    assert len(entry.mark) == 16
    assert mark_of("lone \ud800 surrogate") != mark_of("")
    assert mark_of(None) == ""


def polled(process, at, **seen):
    return process.probe(processing(active=False, exception=CONFLICT, **seen), at=at)


def failed_unseen():
    """A run that fails before a poll shows its batch."""
    return Process().started(at=1).ended(at=2, exception=CONFLICT)


EPOCH = {"batch": 500, "trigger": "ContinuousTrigger(1000)"}


BATCHES = {
    "no signal": (failed_unseen(), UNKNOWN_BATCH),
    "a poll": (polled(failed_unseen(), 3, batch=41), 41),
    "a poll, and then the checkpoint": (polled(failed_unseen(), 3, batch=41).began(at=4, committed=(40, -100.0)), 41),
    "a poll before Spark had read the checkpoint": (polled(failed_unseen(), 3, batch=-1), UNKNOWN_BATCH),
    "the same, and a later one": (polled(polled(failed_unseen(), 3, batch=-1), 4, batch=0), 0),
    "an epoch, which proves no commit": (polled(failed_unseen(), 3, **EPOCH), UNKNOWN_BATCH),
    "a poll of the next run": (Process().fails(batch=7).started(run=2, at=70).probe(processing(number=2, batch=9), at=80), 7),
}  # fmt: skip


@pytest.mark.parametrize(("process", "batch"), BATCHES.values(), ids=BATCHES)
def test_failure_has_the_batch_that_a_signal_shows_of_its_own_run(process, batch):
    assert process.query().history.failures[-1].batch_id == batch


def test_batch_of_a_run_under_async_progress_tracking_is_unknown_until_a_signal_shows_it():
    """Not every commit is in the log, so the next run may begin at an earlier batch."""
    process = Process().probe(processing(batch=9, async_progress=True), at=1)
    process.probe(processing(batch=9, active=False, async_progress=True, exception=CONFLICT), at=2)
    process.started(run=2, at=3).ended(run=2, at=4, exception=CONFLICT)
    process.started(run=3, at=5).ended(run=3, at=6, exception=CONFLICT)
    assert [died.batch_id for died in process.query().history.failures] == [
        9,
        UNKNOWN_BATCH,
        UNKNOWN_BATCH,
    ]

    seen = processing(number=3, batch=8, active=False, async_progress=True, exception=CONFLICT)
    process.probe(seen, at=7)
    assert [died.batch_id for died in process.query().history.failures] == [9, UNKNOWN_BATCH, 8]
