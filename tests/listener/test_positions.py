"""Positions over runs, checkpoints and processes: what was passed over, and what only may be."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from support.reading import OTHER, TEMPORARY, Reads, read_to
from support.story import IdStory, Story, poll, progress, source

from querypulse.alerting.delivery.spool import Kept, kept_failures, stored_readings
from querypulse.listener.commit_log import LogReport, StartingPoint
from querypulse.listener.events import Started, Terminated
from querypulse.listener.past_failures import FailedQuery, PastFailures, shifted
from querypulse.listener.probe_report import Context
from querypulse.listener.source_polls import SourceReport
from querypulse.listener.spark.storage import begin_in, source_indexes
from querypulse.listener.state.positions import (
    MAX_GAPS,
    MAX_POSITIONS,
    Cause,
    Gap,
    LastRead,
    Position,
    place_of,
    recent,
    remains,
    to_store,
    with_gap,
    without_read,
)
from querypulse.listener.state.query import UNSURE_SECONDS

WALL = 1_700_000_000.0
KEY = place_of("broker:9092", "t/0")


def gaps(story):
    """What the query has passed over: (start, end, cause)."""
    (query,) = story.snapshot(story.now).queries
    return [(gap.start, gap.end, gap.cause.value) for gap in query.history.reading.gaps]


class Disk:
    """What one process stores for the next one, as on disk."""

    def __init__(self):
        self.readings = {}
        self.past = PastFailures()
        self.writes = []

    def keep(self, story, **how):
        snapshot = story.snapshot(story.now)
        self.readings = stored_readings(self.readings, snapshot, **{"is_last": False, **how})
        kept = kept_failures(snapshot.queries, self.past.unmet, snapshot.at, self.readings)
        text = msgspec.json.encode([shifted(entry, WALL) for entry in kept])
        if not self.writes or self.writes[-1] != text:
            self.writes.append(text)
        return self

    def restore(self, story, *, later=60.0):
        """Give it to a process that begins ``later`` seconds after the first one did."""
        kept = msgspec.json.decode(self.writes[-1], type=tuple[FailedQuery, ...])
        past = PastFailures()
        past.add(kept, now=0.0, wall=WALL + later, began_at=0.0)
        story.state.restore(past)
        return story


def over_processes(first, second, *, later=60.0, is_last=True):
    """The gaps of the second process, a function of a new story that is restored after its start."""
    disk = Disk().keep(first, is_last=is_last)
    story = Reads()
    return gaps(second(story, lambda: disk.restore(story, later=later)))


def rewound():
    """A query on topic A at 10, whose next batch goes back to the beginning of another topic."""
    story = Reads().run().reads(10).asks(topic_id="A", latest=10)
    return story.reads(0, start=10, rows=0).reads(300, start=0, rows=300)


def new_partition(*, asked):
    """Topic A was deleted, then created again: the query begins the new one at its beginning."""
    story = Reads().run().reads(1000).asks(topic_id="A", latest=1000)
    story.reads({}, start=1000, rows=0)
    if asked:
        story.asks({}, latest={})
    return story.reads(300, start={}, rows=300)


@pytest.mark.parametrize(
    ("what", "story", "expected"),
    [
        ("read from its beginning", rewound().asks(topic_id="B", latest=300), []),
        ("the same, and a poll that began before is late",
         rewound().asks(10, after=-0.5, topic_id="A", latest=10).asks(300, topic_id="B", latest=300), []),
        ("deleted in one batch and read as a new one in the next",
         new_partition(asked=False).asks(topic_id="B"), []),
        ("the same, with a poll between",
         new_partition(asked=True).asks(topic_id="B"), []),
        ("it ends before the old offset",
         Reads().run().reads(5000).asks(topic_id="A").asks(topic_id="B", latest=3), [(0, 3, "recreated")]),
        ("it is empty", Reads().run().reads(5000).asks(topic_id="A").asks(topic_id="B", latest=0), []),
        ("a batch began behind its beginning",
         Reads().run().reads(100).asks(topic_id="A").reads(150, start=100).reads(180, start=150).asks(topic_id="B"),
         [(0, 100, "recreated")]),
    ],
)  # fmt: skip
def test_topic_that_was_created_again_is_not_read_before_the_lowest_offset_of_a_batch(
    what, story, expected
):
    assert gaps(story) == expected, what


def renamed():
    """Query ``a`` has read to 200; Spark stops it for ``b``, which goes on to 5000 under its checkpoint."""
    story = Story()
    story.state.apply_event(Started("id-a", "a-1", "a", checkpoint="/cp"), 0)
    story.ask(at=5, committed=200, at_rest=True, earliest=210, topic_id="A")
    story.takes(at=30)
    asks_run(story, "b-1", at=35, committed=210, topic_id="A")
    done = progress("b", 1, batch=2, sources=(source({"t": {"0": 5000}}, start={"t": {"0": 210}}),))
    story.state.apply_event(replace(done, query_id="id-a"), 50)
    asks_run(story, "b-1", at=60, committed=5000, topic_id="A")
    return story


def asks_run(story, run_id, *, begins=None, at, **answers):
    if begins is not None:
        point = StartingPoint(begins={0: {"t/0": begins}})
        story.state.apply_commit_log(LogReport(at, starts={run_id: point}))
    story.state.apply_sources(SourceReport(at, {run_id: {0: poll(at=at, **answers)}}))


@pytest.mark.parametrize(("name", "new"), [("a", []), ("b", [(5000, 6000, "skipped")])])
def test_query_that_takes_a_checkpoint_takes_its_position_and_no_gap(name, new):
    story = renamed()
    story.state.apply_event(Terminated("id-a", "b-1"), 90)
    story.state.apply_event(Started("id-new", "new", name, checkpoint="/cp2"), 100)
    asks_run(story, "new", begins=6000, at=105, committed=6000, latest=6000, topic_id="A")

    found = {query.name: query.history.reading.gaps for query in story.snapshot(110).queries}
    spans = [(gap.start, gap.end, gap.cause.value) for gap in found[name]]
    before = [(200, 210, "deleted")] if name == "a" else []
    assert spans == [*before, *new]


def begins_at(offset, checkpoint=OTHER, **answers):
    def second(story, restore):
        story.run(checkpoint, begins=offset)
        restore()
        return story.asks(offset, **answers)

    return second


@pytest.mark.parametrize(
    ("what", "first", "second", "expected"),
    [
        ("a new checkpoint behind the end", read_to(), begins_at(600), [(100, 600, "skipped")]),
        ("at the end", read_to(), begins_at(100), []),
        ("before the end", read_to(), begins_at(0), []),
        ("the same checkpoint", read_to(), begins_at(600, "cp"), []),
        (
            "the same checkpoint, another topic",
            read_to(topic_id="A"),
            begins_at(100, "cp", topic_id="B", latest=150),
            [(0, 100, "recreated")],
        ),
        (
            "another checkpoint, another topic",
            read_to(topic_id="A"),
            begins_at(600, topic_id="B"),
            [],
        ),
        ("another cluster", read_to(), begins_at(600, system="mirror:9092"), []),
    ],
)
def test_the_next_process_compares_with_what_was_stored(what, first, second, expected):
    assert over_processes(first, second) == expected, what


def alive(*, end=100):
    """A process that is killed while its query runs."""
    return Reads().run(begins=0).asks(committed={}, latest={}).reads(end).asks()


@pytest.mark.parametrize(
    ("what", "written_since", "expected"),
    [
        ("not known", None, []),
        ("the end may be as old as the gap", 600, []),
        ("a part was certainly written later", 400, [(400, 600, "skipped")]),
        ("the clock of a producer is wrong", 50, [(100, 600, "skipped")]),
    ],
)
def test_position_of_a_process_that_was_killed_counts_as_old_as_it_may_be(
    what, written_since, expected
):
    found = over_processes(
        alive(), begins_at(600, written_since=written_since), later=3600.0, is_last=False
    )

    assert found == expected, what


@pytest.mark.parametrize(
    ("what", "first", "how", "expected"),
    [
        ("the sidecar closes, and the query reads on", alive(), {}, []),
        ("the process ends", alive(), {"process_ends": True}, [(400, 9000, "skipped")]),
        ("Spark has stopped", alive().report(at=5, context=Context.STOPPED), {}, [(400, 9000, "skipped")]),
        ("the query had ended before", alive().stops(), {}, [(100, 9000, "skipped")]),
    ],
)  # fmt: skip
def test_position_of_a_query_that_reads_on_unobserved_is_not_known(what, first, how, expected):
    disk, story = Disk().keep(first), Reads()
    disk.keep(first, is_last=True, **how)
    disk.restore(story.run(OTHER, begins=9000), later=7200.0)

    assert gaps(story.asks(9000, latest=9000, written_since=400)) == expected, what


def test_many_queries_are_stored_together_every_30_seconds():
    story, disk = IdStory(), Disk()
    story.now = 0.0
    names = [f"q{number}" for number in range(20)]
    for number, name in enumerate(names):
        story.start(name, name, name, at=number)
    asked = {name: {0: poll(at=20, committed=0)} for name in names}
    story.state.apply_sources(SourceReport(20.0, asked))
    for second in range(20, 140):
        name, story.now = names[second % len(names)], float(second)
        done = source({"t": {"0": second}}, start={"t": {"0": 0}})
        story.commits(name, name, name, at=story.now, batch=second, sources=(done,))
        disk.keep(story)

    assert len(disk.writes) <= 1 + 120 / 30


@pytest.mark.parametrize(("name", "place", "stored"), [
    ("a", "/cp", True), ("a", TEMPORARY, True), (None, "/cp", True), (None, TEMPORARY, False),
])  # fmt: skip
def test_only_a_query_that_is_found_again_is_stored(name, place, stored):
    story = Reads().run(name=name, place=place).asks(100)

    assert bool(Disk().keep(story).readings) == stored


def test_what_was_written_after_the_last_possible_store_is_asked_for():
    first = alive()
    disk, story = Disk().keep(first), Reads()
    story.run(OTHER)
    disk.restore(story, later=3600.0)

    (query,) = story.snapshot(story.now).queries
    assert query.history.reading.unsure_since == pytest.approx(first.now + UNSURE_SECONDS - 3600.0)


def test_new_checkpoint_is_compared_after_its_first_process_crashed_before_a_poll():
    disk, crashed, last = Disk().keep(read_to(), is_last=True), Reads(), Reads()
    disk.restore(crashed.run(OTHER))
    disk.keep(crashed.stops(planned=False, exception="x"), is_last=True)
    disk.restore(last.run(OTHER, begins=600), later=120.0)
    last.asks(600)
    assert gaps(last) == [(100, 600, "skipped")]

    disk.keep(last.stops(), is_last=True)
    third = Reads().run("third", begins=600)
    disk.restore(third, later=180.0)
    assert gaps(third.asks(600)) == [(100, 600, "skipped")], "it is compared once"


def test_nothing_that_was_stored_is_of_the_future():
    disk, story = Disk().keep(read_to().run(OTHER, begins=600).asks(600)), Reads()
    disk.restore(story.run(OTHER).goes_on(3), later=-400 * 86_400.0)
    assert gaps(story) == [(100, 600, "skipped")]

    story.waits(86_500)

    assert recent(story.state.query(OTHER).history.reading.gaps, story.now) == ()


def test_gap_is_kept_over_processes_until_it_is_read():
    lost = read_to().run(OTHER, begins=600).asks(600).stops()
    assert gaps(lost) == [(100, 600, "skipped")]

    def goes_on(story, restore):
        story.run(OTHER).goes_on(3)
        restore()
        return story.asks(700)

    assert over_processes(lost, goes_on) == [(100, 600, "skipped")]
    assert over_processes(lost, begins_at(100, "third")) == []
    assert over_processes(lost, begins_at(100, "third", earliest=300)) == [(100, 300, "skipped")]


def test_positions_are_stored_at_a_bounded_rate_and_at_once_when_something_ends():
    story, disk = alive(end=0), Disk()
    for number in range(1, 121):
        story.reads(number)
        disk.keep(story)
    assert len(disk.writes) <= 1 + 120 / 30

    written = len(disk.writes)
    disk.keep(story.waits(1).stops())
    assert len(disk.writes) == written + 1
    assert b'"end":120' in disk.writes[-1]
    for _ in range(10):
        disk.keep(story.waits(100))
    assert len(disk.writes) == written + 1, "nothing is new"


def test_spool_of_a_version_without_positions_is_read():
    text = b'{"version":3,"failures":[{"query_id":"cp","mark":"x","deaths":[]}]}'

    (failed,) = msgspec.json.decode(text, type=Kept).failures

    assert failed.reading is None
    text = text.replace(b'"deaths"', b'"reading":{"at":1.0,"positions":{"k":{"end":5}}},"deaths"')
    (failed,) = msgspec.json.decode(text, type=Kept).failures
    assert failed.reading == LastRead(1.0, {"k": Position(5)})


def test_forgotten_query_has_passed_over_nothing_when_it_returns():
    story = read_to().run(OTHER, begins=600).asks(600).stops()
    story.state.forget_name("a")
    story.run(OTHER).asks(600)

    assert gaps(story) == []


def test_completed_query_is_kept_for_its_alert():
    story = read_to().run(OTHER, begins=600, trigger="AvailableNowTrigger").asks(600)
    story.stops(planned=False)
    story.state.forget(story.now + 3600.0)
    assert [query.label for query in story.snapshot(story.now).queries] == ["a"]
    story.state.forget(story.now + 25 * 3600.0)
    assert story.snapshot(story.now).queries == ()


# -- gaps -------------------------------------------------------------------------------------


def gap(start, end, *, first=0, topic_id=""):
    return Gap(KEY, start, end, Cause.SKIPPED, 0.0, first, topic_id)


def spans(found):
    return sorted((each.start, each.end) for each in found)


def test_gaps_that_touch_are_one():
    found = ()
    for start, end in ((10, 20), (40, 50), (20, 30), (5, 8), (25, 45)):
        found = with_gap(found, gap(start, end))

    assert spans(found) == [(5, 8), (10, 50)]


def test_full_list_keeps_its_gaps_and_the_time_each_began():
    found = ()
    for number in range(MAX_GAPS + 50):
        found = with_gap(found, gap(10 * number, 10 * number + 5))
    assert len(found) == MAX_GAPS
    assert with_gap(found, gap(10**6, 10**6 + 5)) == found, "it does not change at each poll"

    grown = with_gap(found, replace(gap(5, 7), found_at=99.0))

    assert (min(spans(grown)), len(grown)) == ((0, 7), MAX_GAPS)
    assert {each.found_at for each in grown} == {0.0}


def topics(number):
    return {f"daily-{number}/0": 5, "t/0": 5}


def positions_of(story, query="a"):
    return {
        place.partition(" ")[2]
        for place in story.state.query(f"id-{query}").history.reading.positions
    }


def test_position_in_a_topic_that_is_not_read_any_more_is_dropped():
    story = Story().started(at=0)
    for day in range(30):
        story.ask(at=day * 86_400.0 + 5, committed=topics(day), latest=topics(day))
    assert positions_of(story) == {"daily-29/0", "t/0"}

    story.ask(at=30 * 86_400.0, committed={}, latest={})
    assert positions_of(story) == {"daily-29/0", "t/0"}, "nothing is known of what it reads"


def test_positions_of_a_source_that_was_not_polled_yet_are_kept():
    story = Story().started(at=0)
    both = {0: poll(at=5, committed={"t/0": 5}), 1: poll(at=5, committed={"u/0": 5})}
    story.state.apply_sources(SourceReport(5.0, {"a-1": both}))
    story.ended(at=10).started(run=2, at=20)
    story.ask(run=2, at=25, committed={"t/0": 5})

    assert positions_of(story) == {"t/0", "u/0"}


def test_topic_that_the_checkpoint_before_read_and_this_one_does_not_is_no_gap_when_it_returns():
    story = Reads().run().asks({"0": 100, "1": 7}, latest={"0": 100, "1": 7}).stops()
    story.run(OTHER, begins={"0": 100}).asks({"0": 100}, latest={"0": 100}).waits(86_400).stops()
    story.run("third", begins={"0": 100, "1": 900})

    assert gaps(story.asks({"0": 100, "1": 900}, latest={"0": 100, "1": 900})) == []


def test_forgotten_query_keeps_no_more_than_1000_positions():
    many = {f"t/{number}": 5 for number in range(MAX_POSITIONS + 1)}
    story = Story().started(at=0).ask(at=5, committed=many, latest=many)
    assert remains(story.query().history.reading).positions == {}

    del many["t/0"]
    story = Story().started(at=0).ask(at=5, committed=many, latest=many)
    assert remains(story.query().history.reading) == story.query().history.reading


OFFSETS = st.integers(0, 20)


@given(st.lists(st.tuples(OFFSETS, OFFSETS)), st.integers(0, 20), st.integers(0, 20))
def test_reading_again_ends_exactly_what_is_retained_from_there_on(pairs, position, first):
    found = ()
    for pair in pairs:
        found = with_gap(found, gap(*sorted(pair)))
    lost = {offset for each in found for offset in range(each.start, each.end)}

    left = without_read(found, KEY, Position(position, first))

    still = {offset for each in left for offset in range(each.start, each.end)}
    assert still == {offset for offset in lost if offset < max(position, first)}


def test_gap_in_a_topic_that_was_deleted_itself_is_gone_and_stays():
    (left,) = without_read((gap(10, 20, topic_id="A"),), KEY, Position(0, 0, "B"))

    assert left.is_gone


def test_first_reading_is_stored_at_once_and_an_equal_one_not_again():
    before, now = LastRead(0.0, {KEY: Position(1)}), LastRead(99.0, {KEY: Position(1)})

    assert to_store({}, {"a": now}, is_last=False) == {"a": now}
    assert to_store({"a": before}, {"a": now}, is_last=False) == {"a": before}
    ended = replace(now, over_at=5.0)
    assert to_store({"a": before}, {"a": ended}, is_last=False) == {"a": ended}
    both = {"a": now, "b": ended}
    assert to_store({"a": before}, both, is_last=False) == both, "all are taken together"
    assert to_store({"a": before, "b": ended}, {"a": now}, is_last=False) == {"a": before}


# -- where a checkpoint begins ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('\0v1\n{"t":{"0":5,"1":7},"u.v":{"0":0}}', {"t/0": 5, "t/1": 7, "u.v/0": 0}),
        ('v1\n{"t":{"0":5}}', {"t/0": 5}),
        ("\0v1\n1700000000000", {}),
        ('v1\n{"path":"file:///a","timestamp":1,"batchId":0}', {}),
        ('v1\n{"path":"a"}\n{"path":"b"}', {}),
        ('{"t":{"0":5}}', {}),
        ("", {}),
        ("v1", {}),
    ],
    ids=["kafka", "without the byte", "rate", "file", "files", "no version", "empty", "no offsets"],
)
def test_only_the_file_of_a_kafka_source_says_where_it_begins(text, expected):
    assert begin_in(text) == expected


def test_sources_are_found_by_their_number():
    listing = "Array(file:/cp/sources/0, file:/cp/sources/12, file:/cp/sources/named, file:/x/3)"

    assert source_indexes(listing) == [0, 12]
