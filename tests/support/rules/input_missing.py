"""StreamingInputMissing: a source, or all of them, has no rows for too long."""

from __future__ import annotations

from support.rules.case import (
    alert,
    completed,
    idle,
    input_missing,
    joined,
    limits,
    query_failed,
    query_stalled,
    running,
    starting,
    stopped,
    table,
)
from support.rules.stories import (
    AVAILABLE_NOW,
    HOURLY,
    STOPPED,
    available_now,
    commits_unseen,
    epochs,
    hung_batch,
    kafka,
    later,
    looping,
    steady,
    topic,
    watched,
)
from support.story import Story, processing, run, source


def snapshots(count):
    """The end offsets of batches on an Iceberg table, a snapshot each."""
    return [{"version": 1, "snapshot_id": 7 + number, "position": 1} for number in range(count)]


EMPTY = {"latest": None, "rows": 0, "input_rows": 0}
INPUT = {"expected_input_seconds": 600.0}
FED = {"description": "KafkaV2[Subscribe[fed]]"}
DRY = {"description": "KafkaV2[Subscribe[dry]]"}


@later
def united(*dry, until=700, story=None, run=1, begin=10, first=0, **fields):
    """Each 10 s a batch has rows of one source; of the other one at the times ``dry``."""
    story = story or Story().started(at=0)
    for number, at in enumerate(range(begin, until + 1, 10)):
        rows = 10 if at in dry else 0
        sources = (
            source(topic(at), **FED),
            source(topic(sum(t <= at for t in dry)), rows=rows, **DRY),
        )
        story.commit(
            run=run,
            batch=first + number,
            at=at,
            sources=sources,
            **{"input_rows": 10 + rows, **fields},
        )
    return story


@later
def over_restart(*dry, until):
    """The query of ``united`` is restarted at 301 s; the other source has rows at ``dry``."""
    story = united(*dry, until=300).failed(at=301).started(run=2, at=303)
    return united(*dry, until=until, story=story, run=2, begin=310, first=30)


@later
def swapped(*, until=900):
    """After a restart at 450 s the sources come in another order; each has rows in one run only."""
    story = united(*range(10, 441, 10), until=440).ended(at=445).started(run=2, at=450)
    for number, at in enumerate(range(460, until + 1, 10)):
        sources = (source(topic(at), **DRY), source(topic(at), rows=10, **FED))
        story.commit(run=2, batch=44 + number, at=at, sources=sources, input_rows=20)
    return story


@later
def uncounted(every=9999, *, until=700):
    """Two folders; Spark 3.5 counts rows only in the batches, ``every`` so often, that read both."""
    story, dry = Story().started(at=0), 0
    for number, at in enumerate(range(0, until + 1, 10)):
        reads_both = number % every == 0
        dry += reads_both
        rows = 10 if reads_both else 0
        sources = (
            source({"logOffset": number}, rows=rows, description="FileStreamSource[file:/fed]"),
            source({"logOffset": dry}, rows=rows, description="FileStreamSource[file:/dry]"),
        )
        story.commit(batch=number, at=at, sources=sources, input_rows=2 * rows)
    return story


@later
def counting_nothing(*, until, moves=True):
    """One of two sources, whose rows Spark does not count; its offsets move."""
    story = Story().started(at=0)
    for number, at in enumerate(range(10, until + 1, 10)):
        other = source({"cursor": at if moves else 0}, rows=0, description="PythonSource")
        story.commit(batch=number, at=at, sources=(source(topic(at), **FED), other))
    return story


@later
def folder_polls(*gone, until, story=None, run=1, begin=5):
    """The folder of query a is polled each 15 s while it idles; it is gone within these times."""
    story = story or steady(until=20)
    for at in range(begin, until + 1, 15):
        story.folder(run=run, at=at, gone=any(since <= at < end for since, end in gone))
    return story.idle(run=run, at=until)


NO_ROWS = {"rows": 0, "input_rows": 0}
events_missing = alert(("QuerypulseEventsMissing", "*"), state="running")
input_missing_since_start = alert("StreamingInputMissing", state="starting")


def begun():
    return Story().started(at=0)


def mongo_times(count):
    """End offsets that are the cluster's time."""
    return ({"version": 1, "offset": {"$timestamp": {"t": n}}} for n in range(count))


def gone_until(second):
    return folder_polls((100, 9999), until=second)


WHERE_ROWS_ARE_EXPECTED = table(
    # StreamingInputMissing
    "no rows for longer than expected",
    input_missing(steady().idle(at=690), at=710),
    "no rows for longer than expected, seen by the probe only",
    input_missing(watched(steady(), (101, 705, run(batch=10))), at=710),
    "batches without rows, again and again",
    input_missing(
        kafka(*[topic(5)] * 61, latest=topic(5), first=110, batch=10, story=steady(), **NO_ROWS),
        at=715,
    ),
    "no rows since its run began",
    input_missing(begun().idle(at=600), at=610),
    "no rows since its restart",
    input_missing(steady().failed(at=101).started(at=103).idle(at=700), at=710),
    "restarted a minute ago, and only starting since",
    input_missing_since_start(
        steady().seen(at=690).expect_stop().ended(at=691).started(at=695), at=750
    ),
    "no rows before its restart; since then, the probe has seen commits whose events are late",
    running(
        steady()
        .idle(at=690)
        .seen(batch=10, at=695)
        .failed(at=696)
        .seen(number=2, batch=11, at=700)
        .seen(number=2, batch=13, at=702),
        at=710,
    ),
    "no rows reported, but the event of the batch that completed the run before is late",
    starting(
        Story()
        .started(at=0)
        .works(batch=0, tasks=0, trigger=AVAILABLE_NOW, at=650)
        .seen(batch=1, trigger=AVAILABLE_NOW, active=False, at=660)
        .started(at=695),
        at=710,
    ),
    "no rows reported, and the run before was stopped within a batch",
    starting(
        begun().works(batch=0, tasks=0, at=650).expect_stop().ended(at=660).started(at=695), at=710
    ),
    "availableNow runs that read no rows, again and again",
    input_missing_since_start(
        Story()
        .started(at=0)
        .seen(trigger=AVAILABLE_NOW, at=1)
        .idle(at=2)
        .ended(at=550)
        .started(at=560)
        .seen(trigger=AVAILABLE_NOW, at=561)
        .ended(at=690)
        .started(at=695),
        at=710,
    ),
    "availableNow in a loop, between two runs that read no rows",
    input_missing(looping(*[0] * 12, rows=0), at=670),
    "availableNow in a loop: one run of the last ten minutes read rows",
    idle(
        looping(*[0] * 3, rows=0)
        .started(run=4, at=180)
        .commit(run=4, batch=3, at=184)
        .ended(run=4, at=185)
        .seen(number=5, trigger=AVAILABLE_NOW, at=700),
        at=710,
    ),
    "no rows, not for long enough",
    idle(steady().idle(at=690), at=699),
    "rows arrived a moment ago",
    running(steady().idle(at=690).commit(batch=10, at=705), at=710),
    "every batch has rows",
    running(steady(until=900), at=905),
    "no rows before its restart, and none since",
    input_missing(steady().idle(at=640).failed(at=650).started(at=655).idle(at=700), at=710),
    "no rows before two restarts, and none since",
    input_missing(
        steady().failed(at=400).started(at=405).failed(at=650).started(at=655).idle(at=715), at=720
    ),
    "failed long ago, restarted lately, and idle since",
    idle(steady().failed(at=101).started(at=695).idle(at=705), at=710),
    "started, within the limit",
    idle(begun().idle(at=500), at=510),
    "a day is allowed by pattern",
    idle(steady().idle(at=890), at=900, **limits("a", expected_input_seconds=86_400.0)),
    "it is stalled: another rule reports it",
    query_stalled(hung_batch(until=900)),
    "it has failed: another rule reports it",
    query_failed(steady().failed(at=101), at=900),
    "it was stopped, and the stop was announced",
    stopped(steady().seen(at=100).expect_stop().ended(at=101), at=900),
    "availableNow, finished, and no rows since",
    completed(available_now().commit(batch=0, at=1).ended(at=2), at=900),
    "a batch is in flight, and may have rows",
    running(watched(steady().idle(at=690), (695, 710, processing(batch=10, tasks=3))), at=712),
    "an hourly trigger",
    running(Story().seen(trigger=HOURLY, data=True, at=0).commit(batch=0, at=10), at=3500),
    "only the probe sees the commits: their rows are unknown",
    events_missing(commits_unseen(until=715), at=715),
    "only the commit log shows a commit, whose event is late: its rows are unknown",
    idle(
        steady()
        .seen(batch=10, at=101)
        .log(committed=9, at=102)
        .log(committed=10, at=700)
        .seen(batch=11, at=701),
        at=710,
    ),
    "the first reading of the commit log shows the commit, whose event is late",
    idle(steady().seen(batch=10, at=101).log(committed=10, at=700).seen(batch=11, at=701), at=710),
    "Continuous has no events that count rows",
    running(epochs(until=900, log_until=900)),
    "Continuous, just restarted",
    running(epochs(until=900, log_until=900).started(run=2, at=902), at=903),
    "only the probe sees the commits, then a restart",
    idle(commits_unseen(until=715).started(at=716).idle(at=718), at=719),
    "the driver was frozen",
    idle(steady().idle(at=105).paused(at=800, seconds=690), at=805),
    "the application has stopped its SparkContext, and no rows arrive since",
    stopped(steady().seen(at=100).probe(at=101, context=STOPPED), at=900),
    "ignored",
    idle(steady().idle(at=890), at=900, **limits("a", ignore=True)),
    # StreamingInputMissing: one source of several
    "one of two sources has no rows any more",
    input_missing(united(10, 20, 30), at=705),
    "one of two sources has had no rows since the run began",
    input_missing(united(), at=705),
    "one of two sources has no rows any more, and a batch is always in flight",
    input_missing(watched(united(10, 20, 30), (701, 705, processing(batch=70))), at=706),
    "one of two sources had no rows before a restart, and has none since",
    input_missing(over_restart(10, 50, until=700), at=705),
    "one of two sources had no rows before a restart, and has some since",
    running(over_restart(10, 50, 400, until=700), at=705),
    "one of two sources has rows from time to time",
    running(united(10, 300, 600), at=705),
    "two sources, and both have rows",
    running(united(*range(10, 701, 10)), at=705),
    "one of two sources has no rows, not for long enough",
    running(united(10, until=600), at=605),
    "one of two sources has no rows, and the rows of a batch add up to none of them",
    running(united(10, 650, input_rows=50), at=705),
    "the same source is read twice, and Spark counts its rows once",
    running(kafka(*map(topic, range(71)), latest=None), at=712),
    "one of two folders has no files, so that Spark 3.5 counts no rows of the other one",
    input_missing(uncounted(), at=705),
    "one of two folders has no files now and then, so that Spark 3.5 counts no rows of the other one",
    running(uncounted(50), at=705),
    "none of two folders has files any more",
    input_missing(uncounted(until=100).idle(at=700), at=705),
    "a source that never counts rows advances",
    running(counting_nothing(until=700), at=705),
    "a source that never counts rows does not advance",
    input_missing(counting_nothing(until=700, moves=False), at=705),
    "the sources have other places after a restart, and both have rows",
    running(swapped(), at=905),
    **INPUT,
)

WITHOUT_EXPECTATION = table(
    "no rows for an hour, the limit is set by pattern",
    input_missing(steady().idle(at=3690), at=3710, **limits("a", expected_input_seconds=3600.0)),
    "a hundred batches in a row move the offsets and read no row (Iceberg after a compaction)",
    input_missing(kafka(*snapshots(101), **EMPTY), at=1011),
    "ninety batches in a row move the offsets and read no row",
    running(kafka(*snapshots(90), **EMPTY), at=901),
    "a hundred batches move the offsets and read no row, within a minute",
    running(kafka(*snapshots(101), **EMPTY, every=0.5), at=62),
    "two hundred batches, and each reads rows",
    running(kafka(*snapshots(200), latest=None), at=2001),
    "stateful batches at an end that does not move",
    running(kafka(*snapshots(1) * 200, **EMPTY), at=2001),
    "offsets that are text move in each trigger of an idle source (MongoDB: the cluster's time)",
    running(kafka(*mongo_times(200), **EMPTY), at=2001),
    "one number moves in each trigger of an idle source: a time",
    running(kafka(*({"at": n} for n in range(200)), **EMPTY), at=2001),
    "no rows, and none are expected",
    idle(steady().idle(at=9990), at=10_000),
    "batches take ten minutes, and have rows",
    running(
        begun().commit(batch=0, at=600, seconds=590).commit(batch=1, at=1200, seconds=590),
        at=1790,
        expected_input_seconds=300.0,
    ),
    "one of two sources has no rows, and none are expected",
    running(united(10), at=705),
    # StreamingInputMissing: the folder is gone
    "its input folder has not been there for longer than a trend window",
    input_missing(folder_polls((100, 9999), until=500), at=505),
    "its input folder is gone, not for long enough",
    idle(folder_polls((300, 9999), until=500), at=505),
    "its input folder was gone for some minutes, and is back",
    idle(folder_polls((100, 390), until=500), at=505),
    "its input folder is gone again and again, for some minutes each",
    idle(folder_polls((100, 300), (310, 500), until=500), at=505),
    "its input folder was gone, then its storage did not answer",
    idle(folder_polls((100, 9999), until=200).idle(at=890), at=900),
    "its input folder is there",
    idle(folder_polls(until=900), at=905),
    "its input folder was gone before a restart, and is there",
    idle(
        folder_polls(
            until=900, begin=520, run=2, story=gone_until(390).ended(at=400).started(at=510)
        ),
        at=905,
    ),
    "its input folder is gone, and it was stopped on purpose",
    stopped(gone_until(500).seen(at=501).expect_stop().ended(at=502), at=505),
)

CASES = joined(WHERE_ROWS_ARE_EXPECTED, WITHOUT_EXPECTATION)
