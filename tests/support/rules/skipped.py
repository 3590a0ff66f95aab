"""StreamingDataLossRisk: batches that the sink skips, and records that were passed over."""

from __future__ import annotations

from support.reading import OTHER, TEMPORARY, Reads, TableReads, read_to, table_read_to
from support.rules.case import (
    case,
    data_loss_critical,
    data_loss_risk,
    data_lost,
    idle,
    limits,
    running,
    stopped,
    table,
)
from support.rules.stories import AVAILABLE_NOW, later, steady
from support.story import IdStory, Story
from support.story import polled as polled_run

from querypulse.listener.commit_log import LogReport, SinkLog

FILES = "FileSink[file:/out]"
HUDI = "HoodieStreamingSink[/t]"
DELTA = "DeltaSink[file:/t]"
"""Sinks that remember batch ids: in a log of their own, in a table, by the id of the query."""


@later
def writing(sink=FILES, *, until=100, **log):
    """Query a writes to this sink, and at 2 s its log was read."""
    story = Story().started(at=0).seen(sink=sink, at=1)
    return steady(story.sink(at=2, **log) if log else story, until=until)


@later
def restored(sink, *, batch=3, new_id=False, **log):
    """After batch 9 the next run, which may have a new query id, commits this batch."""
    story, query_id = IdStory(), "id-new" if new_id else "id"
    story.start("id", "run-1", "a", at=0).commits("id", "run-1", batch=9, at=50)
    story.probe(polled_run("id", "run-1", "a", sink=sink), at=55).ends("id", "run-1", at=60)
    story.start(query_id, "run-2", "a", at=61)
    story.probe(polled_run(query_id, "run-2", "a", sink=sink), at=62)
    if log:
        story.state.apply_commit_log(LogReport(63, sinks={"run-2": SinkLog(**log)}))
    return story.commits(query_id, "run-2", batch=batch, at=70)


def first_run():
    """A run of unknown begin."""
    return Reads().run()


def resumed():
    """The next run under the same checkpoint."""
    return read_to().run()


def resumed_table():
    """The same on a table."""
    return table_read_to().run()


def passed_over(seconds=9):
    """The next run begins under a new checkpoint, behind the end of the last; it has been idle so long."""
    return read_to().run(OTHER, begins=600).asks(600).waits(seconds)


def versions_passed_over():
    """The same on a table."""
    return table_read_to().run(OTHER, begins=10).asks({}, begins=10).waits(9)


def new_at_version(begins):
    """The next run begins under a new checkpoint at this version of its table, and reads on."""
    story = table_read_to().run(OTHER, begins=begins).asks({}, begins=begins)
    return story.reads(12).asks(begins=begins).waits(9)


def last_event_lost():
    """Batches were committed whose events were lost; the next run is under a new checkpoint."""
    story = Reads().run().reads(100).asks().probe(polled_run("cp", "run-1", "a", batch=5), at=20)
    return story.stops(after=10).run(OTHER, begins=600)


def begun_at_150():
    """The next run begins under a new checkpoint, behind the last offset that is known."""
    return Reads().run(begins=0).asks(0).reads(100).stops().run(OTHER, begins=150)


def overtaking(end):
    """The next run starts before the last events arrive of a run that has read up to ``end``."""
    story = Reads().run(begins=0).asks(0, latest=0).reads(100).asks().overtaken(end)
    return story.run(OTHER, after=1, begins=600)


def lost(story, *, at=40):
    """Records were passed over, as is known after nine idle seconds."""
    return data_lost(story.waits(9), at=at)


def quiet(story, *, at=40):
    """None were, or nobody can know, after nine idle seconds."""
    return idle(story.waits(9), at=at)


CASES = table(
    # StreamingDataLossRisk: batches that the sink skips
    "a new checkpoint on an old output: the sink's log is ahead",
    data_loss_critical(writing(newest=49, skips_to=49), at=105),
    "the sink's log is ahead, and no batch has been committed yet",
    data_loss_critical(
        Story().started(at=0).seen(sink=FILES, at=1).sink(at=2, newest=49, skips_to=49), at=3
    ),
    "the sink has skipped five batches in a moment, and writes again",
    data_loss_critical(writing(newest=4, skips_to=4), at=105),
    "the sink skips the next batch: another query writes to the same folder",
    data_loss_critical(writing(newest=9).sink(at=103, newest=10, skips_to=10), at=105),
    "the only batch of availableNow was skipped, and it is over",
    data_loss_critical(
        Story()
        .started(at=0)
        .seen(sink=FILES, trigger=AVAILABLE_NOW, at=1)
        .commit(batch=0, at=2)
        .ended(at=3)
        .sink(at=4, newest=0, skips_to=0, first=0),
        at=5,
    ),
    "the sink has skipped batches, and writes again since more than a trend window",
    running(writing(newest=4, skips_to=4, until=400), at=405),
    "the sink has skipped batches, then the query was stopped on purpose, long ago",
    stopped(writing(newest=49, skips_to=49).seen(at=100).expect_stop().ended(at=101), at=900),
    "the sink's log is where the query is",
    running(writing(newest=9), at=105),
    "the sink has no log yet",
    running(writing(newest=None), at=105),
    "the sink's log cannot be read, and batch ids go on",
    running(writing(trouble="denied"), at=105),
    "the sink's log is ahead, but ignored",
    running(writing(newest=49, skips_to=49), at=105, **limits("a", ignore=True)),
    "a checkpoint was restored, and Hudi remembers newer ids",
    data_loss_risk(restored(HUDI), at=71),
    "a new checkpoint, and Hudi remembers the ids of the old one",
    data_loss_risk(restored(HUDI, new_id=True, batch=0), at=71),
    "a checkpoint was restored, and Delta remembers newer ids of this query",
    data_loss_risk(restored(DELTA), at=71),
    "a checkpoint was restored, and the log of its file sink cannot be read",
    data_loss_risk(restored(FILES, trouble="denied"), at=71),
    "a new checkpoint: Delta remembers ids by the query's, which is new",
    running(restored(DELTA, new_id=True, batch=0), at=71),
    "a checkpoint was restored, and the log of its file sink is where the query is",
    running(restored(FILES, newest=3), at=71),
    "a checkpoint was restored, and the log of its file sink was not read yet",
    running(restored(FILES), at=71),
    "a new checkpoint on purpose, with foreachBatch",
    running(restored("ForeachBatchSink", new_id=True, batch=0), at=71),
    "a checkpoint was restored, of a query that writes to Kafka",
    running(restored("KafkaSourceProvider$KafkaTable"), at=71),
    "Hudi repeats the batch that was not committed",
    running(restored(HUDI, batch=9), at=71),
    "Hudi has passed the ids of the old checkpoint",
    running(restored(HUDI).commits("id", "run-2", batch=9, at=75), at=76),
    # StreamingDataLossRisk: records that were passed over
    "a new checkpoint begins at the latest offset, behind the last end",
    data_lost(passed_over(), at=40),
    "the same, and where it begins is known only after the poll",
    lost(read_to().run(OTHER).asks(600).began(600)),
    "the same, in one of two partitions",
    lost(
        read_to({"0": 100, "1": 50}, latest={"0": 100, "1": 50})
        .run(OTHER, begins={"0": 100, "1": 90})
        .asks({"0": 100, "1": 90}, latest={"0": 100, "1": 90})
    ),
    "the same, and the run under the new checkpoint is over",
    case(
        passed_over().stops(),
        at=45,
        alerts=[("StreamingDataLossRisk", "a", "critical")],
        state="stopped",
    ),
    "the same, and the next run goes on under the new checkpoint",
    lost(passed_over().stops().run(OTHER).asks(600), at=60),
    "the same, a day ago but for a minute",
    data_lost(passed_over(86_340), at=86_370),
    "a new checkpoint begins at the first retained offset, which is behind the last end",
    lost(read_to().run(OTHER, begins=500).asks(500, earliest=500)),
    "the topic was deleted and created again, longer than the committed offset",
    lost(
        first_run().reads(100).asks(topic_id="A").waits(5).asks(100, topic_id="B", latest=150),
        at=30,
    ),
    "the same, and its records behind that offset have been read",
    lost(
        first_run()
        .reads(100)
        .asks(topic_id="A")
        .reads(150, start=100, rows=50)
        .asks(topic_id="B", latest=150),
        at=30,
    ),
    "the same, between two runs",
    lost(read_to(topic_id="A").run().asks(100, topic_id="B", latest=150)),
    "records were deleted during a planned stop, and a poll shows it before the first batch",
    lost(
        resumed()
        .asks(100, earliest=500, at_rest=True)
        .reads(600, start=100, rows=100)
        .asks(earliest=500)
    ),
    "the same, and the first batch shows it",
    lost(resumed().reads(600, start=100, rows=100).asks(earliest=500)),
    "the same, and nothing is left in the topic",
    lost(resumed().reads(500, start=100, rows=0).asks(earliest=500, latest=500)),
    "the same, and nothing is known of the run before",
    lost(first_run().reads(600, start=100, rows=100).asks(earliest=500), at=30),
    "records were deleted before a batch that was planned earlier had read them",
    lost(
        resumed()
        .asks(100, latest=600)
        .asks(100, latest=600, earliest=500)
        .reads(600, start=100, rows=100)
        .asks(earliest=500)
    ),
    "a new checkpoint begins where the old one ended",
    quiet(read_to().run(OTHER, begins=100).asks(100)),
    "a new checkpoint begins with the topic, to read it once more",
    quiet(read_to().run(OTHER, begins=0).asks(0)),
    "a new checkpoint begins at the latest offset, which was read",
    quiet(read_to(latest=100).run(OTHER, begins=100).asks(100, latest=100)),
    "the same, and all records have expired",
    quiet(
        read_to(latest=100).run(OTHER, begins=100).asks(100, earliest=100, latest=100, at_rest=True)
    ),
    "records were passed over, and a run has read them after all",
    quiet(passed_over().stops().run("third", begins=100).asks(100), at=60),
    "the same, from the beginning of the topic",
    quiet(passed_over().stops().run("third", begins=0).asks(600), at=60),
    "the same, with the old checkpoint",
    quiet(passed_over().stops().run("cp").goes_on(1).asks(100), at=60),
    "records were passed over, and a run has read those that are left",
    lost(passed_over().stops().run("third", begins=300).asks(300, earliest=300), at=60),
    "records were passed over a day ago",
    idle(passed_over(86_400), at=86_430),
    "a new checkpoint, and where it begins is not known",
    quiet(read_to().run(OTHER).asks(600).reads(700, rows=100).asks()),
    "a new checkpoint, and the source was not polled",
    quiet(read_to().run(OTHER, begins=600).reads(700, rows=100)),
    "a new checkpoint, and the broker does not answer",
    quiet(read_to().run(OTHER, begins=600).asks({}, latest={})),
    "a new checkpoint, and another cluster",
    quiet(read_to().run(OTHER, begins=600).asks(600, system="mirror:9092")),
    "a new checkpoint, and the topic was created again",
    quiet(read_to(topic_id="A").run(OTHER, begins=600).asks(600, topic_id="B")),
    "the same name in another session",
    quiet(read_to(session="s1").run(OTHER, begins=600, session="s2").asks(600)),
    "neither run has a checkpoint of its own",
    quiet(read_to(place=TEMPORARY).run(OTHER, begins=600, place=TEMPORARY).asks(600)),
    "a planned rename, with the checkpoint",
    quiet(read_to(topic_id="A").run(name="b").asks(100, topic_id="A")),
    "partitions were added",
    quiet(
        resumed().asks(
            {"0": 100, "1": 500}, earliest={"0": 0, "1": 500}, latest={"0": 100, "1": 500}
        )
    ),
    "the last batch was committed, and its event was lost: the end may be older than it was",
    quiet(last_event_lost().asks(600), at=50),
    "the same, but what was written after its end was not read",
    lost(last_event_lost().asks(600, written_since=400), at=50),
    "the same, and nothing was written after its end",
    quiet(last_event_lost().asks(600, written_since=600), at=50),
    "the last batch was committed, and nothing shows it: a stop came before its event",
    quiet(begun_at_150().asks(150)),
    "the same, but what was written after the stop was not read",
    lost(begun_at_150().asks(150, written_since=120)),
    "the same, and it was seen in flight after a poll",
    quiet(
        Reads()
        .run(begins=0)
        .reads(100)
        .asks()
        .probe(
            polled_run("cp", "run-1", "a", batch=1, busy=True, message="Processing new data"), at=14
        )
        .stops()
        .run(OTHER, begins=150)
        .asks(150)
    ),
    "it was idle before the stop",
    lost(
        Reads().run(begins=0).asks(0).reads(100).waits(1).stops().run(OTHER, begins=150).asks(150)
    ),
    "it failed in its next batch",
    lost(
        Reads()
        .run(begins=0)
        .asks(0)
        .reads(100)
        .stops(planned=False, exception="x")
        .run(OTHER, begins=150)
        .asks(150)
    ),
    "the start of the next run overtakes the event of the last batch",
    quiet(overtaking(600).asks(600).late(end=600).asks(600)),
    "the same, and the query had not read all",
    lost(overtaking(300).asks(600).late(end=300).asks(600)),
    "the same, and its end is not reported",
    idle(
        overtaking(600).asks(600, written_since=600).waits(99).asks(600, written_since=600), at=140
    ),
    "the broker does not report ids, and the topic was created again",
    quiet(first_run().reads(100).asks().waits(5).asks(100, latest=150), at=30),
    "the broker reports an id only now and then",
    quiet(first_run().reads(100).asks(topic_id="A").asks().asks(topic_id="A"), at=30),
    "the topic was created again before anything was read",
    quiet(
        Reads().run(begins=0).asks(0, topic_id="A", latest=0).asks(0, topic_id="B", latest=150),
        at=30,
    ),
    "records that were read expire at once",
    quiet(first_run().reads(600, start=100, rows=500).asks(earliest=500), at=30),
    "a batch of transactions, of which a part was deleted after it was read",
    quiet(first_run().reads(600, start=100, rows=250).asks(earliest=500), at=30),
    "a batch of transactions",
    quiet(first_run().reads(600, start=100, rows=250).asks(), at=30),
    "a batch of nothing but aborted transactions",
    quiet(first_run().reads(600, start=100, rows=0).asks(), at=30),
    "foreachBatch does not read its batches, next to the retention edge",
    quiet(
        first_run()
        .reads(50, start=40, rows=0)
        .asks()
        .reads(60, start=50, rows=0)
        .asks(earliest=60),
        at=30,
    ),
    "a batch of markers, and the broker answers again only after they have expired",
    quiet(first_run().reads(600, start=500, rows=0).asks(after=90, earliest=600), at=120),
    "a compacted topic",
    quiet(first_run().reads(600, start=100, rows=3).asks(earliest=100), at=30),
    "the query was rewound",
    quiet(
        first_run()
        .reads(600)
        .asks()
        .reads(50, start=600, rows=0)
        .asks()
        .reads(600, start=50, rows=550)
        .asks()
    ),
    "a batch in flight may have read what is deleted now",
    quiet(
        first_run()
        .reads(600, start=100, rows=500)
        .asks(600, earliest=700, latest=900)
        .asks(600, earliest=700, latest=900)
        .reads(900, start=600, rows=300)
        .asks(earliest=700),
        at=30,
    ),
    "availableNow, again and again",
    quiet(
        resumed()
        .reads(200, start=100, rows=100)
        .asks(earliest=90)
        .stops()
        .run()
        .reads(300, start=200, rows=100)
        .asks(earliest=190),
        at=60,
    ),
    "a new checkpoint begins at the latest version of its table, behind the last end, and nothing is committed",
    lost(table_read_to().run(OTHER, begins=10).asks({}, latest=10, begins=10)),
    "the same, and its first batch has ended",
    lost(table_read_to().run(OTHER, begins=10).reads(12).asks(begins=10)),
    "versions were deleted during a planned stop, and a poll shows it before the first batch",
    lost(resumed_table().asks(7, earliest=9, oldest=9, at_rest=True).reads(12, start=7).asks()),
    "the same, and the first batch had passed over them",
    lost(
        resumed_table()
        .reads(12, start=7)
        .asks(passed=(7, 9), oldest=9)
        .asks(passed=(7, 9), oldest=9)
    ),
    "the same versions, and nothing is known of the run before",
    lost(TableReads().run().reads(12, start=7).asks(passed=(7, 9), oldest=9), at=30),
    "a new checkpoint begins with the next version of its table",
    idle(new_at_version(7), at=40),
    "a new checkpoint begins with the snapshot of its table",
    idle(new_at_version(0), at=40),
    "a new checkpoint begins with an older version of its table",
    idle(new_at_version(3), at=40),
    "a new checkpoint, and the table does not show where it begins",
    quiet(table_read_to().run(OTHER, begins=10).asks({}).reads(12).asks()),
    "a new checkpoint on another table",
    quiet(table_read_to().run(OTHER, begins=10).asks({}, begins=10, table="U")),
    "a new checkpoint, and the last process was killed while it read the table",
    quiet(
        TableReads()
        .run()
        .reads(7)
        .asks()
        .probe(polled_run("cp", "run-1", "a", batch=5), at=20)
        .stops(after=10)
        .run(OTHER, begins=10)
        .asks({}, begins=10),
        at=50,
    ),
    "versions were passed over, and a run has read them after all",
    quiet(versions_passed_over().stops().run("third", begins=7).asks({}, begins=7), at=60),
    "versions were passed over, and a run has read the snapshot of the table",
    quiet(versions_passed_over().stops().run("third", begins=0).asks({}, begins=0), at=60),
    "versions were passed over a day ago, and are still in each poll",
    quiet(
        TableReads()
        .run()
        .reads(12, start=7)
        .asks(passed=(7, 9), oldest=9)
        .waits(86_400)
        .asks(passed=(7, 9), oldest=9),
        at=86_430,
    ),
    "versions are deleted, and a batch in flight may have read them",
    quiet(resumed_table().asks(7, earliest=9, oldest=9).reads(12, start=7).asks()),
    "versions without a row",
    quiet(resumed_table().reads(12, start=7, rows=0).asks()),
    "versions that were read are deleted",
    quiet(resumed_table().asks(7, oldest=7).reads(12, start=7).asks(oldest=12)),
)
