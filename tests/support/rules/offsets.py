"""StreamingOffsetsStalled and StreamingOffsetsRewound: the offsets of one source."""

from __future__ import annotations

from support.rules.case import (
    idle,
    joined,
    offsets_rewound,
    offsets_stalled,
    running,
    table,
    waiting,
)
from support.rules.stories import AVAILABLE_NOW, available_now, kafka, later, steady, topic, watched
from support.story import Story, progress, run, source


def delta(version, index=-1, table="r"):
    """The end offset of a batch that reads from Delta."""
    return {"reservoirId": table, "reservoirVersion": version, "index": index}


@later
def on_table(*ends, reads, newest, trigger=None):
    """Query a commits a batch each 10 s from a Delta table, which is polled every 5 s."""
    story = Story().started(at=0)
    for number, end in enumerate(ends):
        at = 10 + number * 10
        if trigger is not None:
            story.seen(trigger=trigger, batch=number, at=at - 6)
        for poll in (at - 5, at):
            here, there = (
                value[number] if isinstance(value, list) else value for value in (reads, newest)
            )
            story.table(at=poll, read=here, end=there)
        story.commit(batch=number, at=at, sources=(source(end, rows=0),), input_rows=5)
    return story


@later
def polled_at(idle_at, *polls):
    """Polls of the Delta table of query a, which is idle: (at, read, end)."""
    story = steady().idle(at=idle_at)
    for at, read, end in polls:
        story.table(at=at, read=read, end=end)
    return story


def python_parts():
    return ({"part-0": n, "part-1": 5} for n in range(10))


def commit_time(second):
    """An offset that is text."""
    return {"lsn": "2a", "commit_time": f"10:00:{second:02}"}


def ten_batches():
    return kafka(*map(topic, range(10)), latest=None)


LATER_EACH_TIME = [{"offset": 60 + 10 * n} for n in range(10)]
HELD_BACK = progress(batch=2, committed=False, sources=(source(topic(1), topic(5)),))
HOLDS_BACK = run(batch=2, idle_progress=HELD_BACK)


AFTER_TEN_BATCHES = table(
    # StreamingOffsetsStalled
    "one partition is stuck with unread data, the other advances (Burrow rule 4)",
    offsets_stalled(kafka(*(topic(5, 100 + n) for n in range(10)), latest=topic(9, 999))),
    "a Delta source is stuck while stateful batches run",
    offsets_stalled(kafka(*[delta(4)] * 10, latest=delta(9), rows=0, input_rows=0)),
    "one of a Python source's numbered partitions is stuck with unread data",
    offsets_stalled(kafka(*python_parts(), latest={"part-0": 10, "part-1": 9})),
    "offsets that are text differ from the latest at every poll (commit time, cursor)",
    running(kafka(*[commit_time(0)] * 10, latest=[commit_time(n) for n in range(10)])),
    "offsets that are text fall behind the latest",
    running(kafka(*["tok-1"] * 10, latest="tok-7")),
    "numbers that are no partitions stay behind (a time, a version)",
    running(kafka(*[{"offset": 3, "timestamp": 7}] * 10, latest={"offset": 4, "timestamp": 9})),
    "availableNow has read one source to its target; Spark reports later data, another source continues (Python sources since 4.2)",
    running(kafka(*[{"offset": 50}] * 10, latest=LATER_EACH_TIME, story=available_now())),
    "an idle topic under no-data batches (Burrow #38, #94, #140)",
    running(kafka(*[topic(5)] * 10, latest=topic(5), rows=0, input_rows=0)),
    "the first message after long idleness (Burrow #303)",
    running(kafka(*[topic(5)] * 10, latest=[topic(5)] * 9 + [topic(6)])),
    "unread data remains after every batch, but offsets advance (maxOffsetsPerTrigger)",
    running(kafka(*(topic(n) for n in range(10)), latest=topic(10_000))),
    "offsets advance without rows (transaction markers, compaction: Burrow #570)",
    running(kafka(*(topic(n) for n in range(10)), latest=topic(10_000), rows=0, input_rows=0)),
    "a new partition: known to the source, not to the query yet (kafka_exporter #28)",
    running(kafka(*[topic(5)] * 10, latest=topic(5, 1000))),
    "the latest offset is older than the end offset (read at different times: kafka_exporter #76; RealTime)",
    running(kafka(*[topic(9)] * 10, latest=topic(5))),
    "the source does not report its latest offset (file source)",
    running(kafka(*[{"logOffset": 3}] * 10, latest=None)),
    "stuck, then it advanced",
    running(kafka(*[topic(5)] * 9, topic(9), latest=topic(9))),
    "its Delta table grows, it is stuck while another source drives its batches",
    offsets_stalled(on_table(*[delta(4)] * 10, reads=4, newest=list(range(5, 15)))),
    "its Delta table grows, and it follows",
    running(on_table(*map(delta, range(1, 11)), reads=list(range(10)), newest=list(range(1, 11)))),
    "its Delta table is far ahead, and it reads file by file (maxFilesPerTrigger)",
    running(on_table(*(delta(4, n) for n in range(10)), reads=4, newest=900)),
    "its Delta table is quiet while another source drives its batches",
    running(on_table(*[delta(4)] * 10, reads=4, newest=4)),
    "availableNow has read its Delta table as of its start; another source continues, and the table grows",
    running(on_table(*[delta(4)] * 10, reads=4, newest=list(range(5, 15)), trigger=AVAILABLE_NOW)),
    "the first version after long quietness",
    running(on_table(*[delta(4)] * 10, reads=4, newest=[4] * 9 + [5])),
    "an end offset went down and stays down (Burrow rule 2; a recreated topic)",
    offsets_rewound(kafka(topic(900), *(topic(n) for n in range(10)), latest=None)),
    "a Delta table was restored to an older version, and stays there",
    offsets_rewound(kafka(delta(9, 3), *[delta(4, 3)] * 9, latest=None)),
    "the topic was recreated with little data: one batch there, then idle",
    offsets_rewound(kafka(topic(900), topic(1), latest=None).idle(at=30).idle(at=100)),
    "an end offset went down, and newer data is held back (minOffsetsPerTrigger)",
    waiting(watched(kafka(topic(900), topic(1), latest=None), (25, 100, HOLDS_BACK))),
    "an end offset went down for one batch, then beyond",
    running(kafka(topic(9), topic(5), *(topic(10 + n) for n in range(8)), latest=None)),
    "a partition is gone",
    running(kafka(topic(5, 5), *[topic(6)] * 9, latest=None)),
    "the query reads another table (Delta's reservoirId)",
    running(kafka(delta(9, 3), *[delta(1, 3, table="s")] * 9, latest=None)),
    "a change of its Delta table's schema (Delta writes the base index -100 as -1)",
    idle(kafka(delta(8), delta(8, -20), delta(8, -19), latest=None).idle(at=100)),
    "offsets of unknown shape change",
    running(kafka(*(f"tok-{9 - n}" for n in range(10)), latest=None)),
    at=105,
)

OTHERS = table(
    "stuck for only two batches: too few samples",
    running(kafka(*[topic(5)] * 2, latest=topic(9), every=80), at=95),
    "stuck, but not for the window yet",
    running(kafka(*[topic(5)] * 5, latest=topic(9)), at=60),
    "stuck for some batches, then idle: the source holds back (minOffsetsPerTrigger)",
    idle(kafka(*[topic(5)] * 5, latest=topic(9)).idle(at=290), at=300),
    # StreamingOffsetsRewound
    "its Delta table was replaced by a shorter one, so it idles for ever (seen on Delta 4.4.0)",
    offsets_rewound(polled_at(300, (110, 5, 5), (125, 5, 2), (190, 5, 2), (200, 5, 3)), at=301),
    "its Delta table ends before it, but not for the window yet",
    idle(polled_at(300, (240, 5, 2), (300, 5, 2)), at=301),
    "its Delta table ended before it at the only poll (later polls fail)",
    idle(polled_at(300, (125, 5, 2)), at=301),
    "its Delta table ended before it at one poll, then no more (a late listing)",
    idle(polled_at(300, (110, 5, 2), (125, 5, 5), (290, 5, 2), (300, 5, 2)), at=301),
    "its Delta table ends where the query has read up to",
    idle(polled_at(300, (110, 5, 5), (300, 5, 5)), at=301),
    "restarted on the table that replaced its own",
    idle(
        polled_at(200, (110, 5, 2), (190, 5, 2)).ended(at=200).started(at=201).idle(at=300), at=301
    ),
    "the topic was recreated with little data, not for the window yet",
    idle(kafka(topic(900), topic(1), latest=None).idle(at=30), at=75),
    "an end offset went down, not for the window yet",
    running(kafka(topic(900), *(topic(n) for n in range(5)), latest=None), at=65),
    "a restart repeats its last batches (async tracking), then passes them",
    running(
        kafka(*map(topic, range(8, 16)), latest=None, first=110, batch=8, story=ten_batches()),
        at=185,
    ),
)

CASES = joined(AFTER_TEN_BATCHES, OTHERS)
