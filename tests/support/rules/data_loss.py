"""StreamingDataLossRisk: unread records and versions are near the end of their retention."""

from __future__ import annotations

from support.rules.case import (
    alert,
    case,
    completed,
    data_loss_critical,
    data_loss_risk,
    idle,
    limits,
    offsets_rewound,
    query_failed,
    query_stalled,
    running,
    stopped,
    table,
)
from support.rules.stories import (
    LAG_IS_FINE,
    STOPPED,
    asked,
    available_now,
    dying,
    end,
    hung_batch,
    later,
    steady,
)


def edge(at):
    """The topic keeps a thousand seconds; retention deletes a hundred seconds at a time."""
    return end((at - 1000) // 100 * 100)


def reader(*, begins, speed=1.0, since=100):
    """The position of a query that began ``begins`` seconds behind: offset, time of the record."""

    def position(at):
        return min(at, since - begins + (at - since) * speed)

    return {"committed": lambda at: int(end(position(at))), "since": position}


STUCK = {"committed": end(100), "since": 100}
BY_TIME = {"latest": end, "earliest": edge, "keeps": 1000}
BY_SIZE = {"latest": end, "earliest": edge, "keeps": 604_800, "sized": True}
UNKNOWN_RETENTION = {"latest": end, "earliest": edge}
BOUNDED_AND_NEW = {"latest": end, "earliest": 100_000, "sized": True}
BEHIND = {"committed": lambda at: end(at - 20), "since": lambda at: at - 20}
"""Twenty seconds, as usual in a busy topic."""
HEALTHY = {"committed": end, "since": None}


@later
def near_the_edge(until, *, kept=BY_TIME, story=None, begin=15, **answers):
    """Polls of the broker of a query that stays where it was at 100 s by default."""
    return asked(story or hung_batch(until=until), begin, until, **{**kept, **STUCK, **answers})


@later
def alive_at(until, *, behind, kept=BY_TIME, **how):
    """Polls of the broker of a query that commits and is ``behind`` seconds late at 100 s."""
    story = steady(until=until)
    return asked(story, 100, until, **{**kept, **reader(begins=behind, **how)})


@later
def dead_at(until, **says):
    return near_the_edge(until, story=steady().failed(at=101), **says)


@later
def restarted(*, read):
    """Dead for long, restarted at 900 s; its first batch reads all but the last minute."""
    story = dead_at(890).started(run=2, at=900)
    if not read:
        return near_the_edge(990, story=story.works(number=2, batch=10, at=985), run=2, begin=905)
    at_work = {"run": 2, "committed": lambda at: end(at - 60), "since": lambda at: at - 60}
    story.commit(run=2, batch=10, at=940).commit(run=2, batch=11, at=980)
    return asked(story, 945, 990, **BY_TIME, **at_work)


@later
def on_delta(story, until, *, begin=100, every=15, **answers):
    """Polls of the Delta table of query a; the answers may be functions of the time."""
    for at in range(begin, until + 1, every):
        story.table(
            at=at, **{name: said(at) if callable(said) else said for name, said in answers.items()}
        )
    return story.until(until)


@later
def unread_table(until, *, story=None, **answers):
    """The same of a query that hangs since 100 s, or of another: it leaves version 7 of 9 unread."""
    usual = {"read": 7, "kept_from": 7, "end": 10, "since": 100, "keeps": 1000}
    return on_delta(story or hung_batch(until=until), until, **{**usual, **answers})


@later
def failed_reader():
    return steady().failed(at=101)


TENTH_OF_RETENTION = {"overrides": [("a", {"data_loss_warning_ratio": 0.1})]}
EXPIRED = {"unit": "snapshot", "gone": "the snapshot 7, up to which it has read, has expired"}


def one_stuck(at):
    return {"t/0": end(100), "t/1": end(at)}


def both(position):
    """The same position in both partitions of a topic."""
    return lambda at: {"t/0": position(at), "t/1": position(at)}


IN_BOTH = {"latest": both(end), "earliest": both(edge), "keeps": 1000}


def too_slow(at):
    return reader(begins=750, speed=0.9)["committed"](at)


def known_since_380(at):
    return None if at < 380 else at - 780


def in_steps(at):
    """Old records are deleted each five minutes."""
    return at // 300 * 10


def read_until_300():
    return asked(steady(until=900), 15, 300, **BY_TIME, **HEALTHY)


def reading_all_with(*, since):
    """A query reads a topic that keeps everything; its first unread record has this timestamp."""
    behind = lambda at: end(at - 10)
    return asked(steady(until=900), 15, 900, behind, end, 0, keeps=1000, since=since)


def idle_at(second):
    return steady().idle(at=second)


def emptied_until(second):
    """All records are read and expire, those of one minute after another."""
    return asked(idle_at(890), 15, second, 500, 500, lambda at: min(500, at // 60 * 50), sized=True)


def fast_until_400():
    """A query catches up that began near the edge."""
    return asked(steady(until=700), 100, 400, **BY_TIME, **reader(begins=990, speed=2.0))


def frozen_until_800():
    return asked(steady(until=190), 15, 195, **BY_TIME, **BEHIND).paused(at=800, seconds=605)


def reading_its_table(**answers):
    """A query reads a version each ten seconds."""
    read = lambda at: at // 10
    return unread_table(400, story=steady(until=400), read=read, kept_from=1, **answers)


stalled_at_risk = alert("StreamingQueryStalled", "StreamingDataLossRisk", state="stalled")
stalled_and_lost = alert(
    "StreamingQueryStalled", ("StreamingDataLossRisk", "a", "critical"), state="stalled"
)
failed_at_risk = alert("StreamingQueryFailed", "StreamingDataLossRisk", state="failed")
failed_and_lost = alert(
    "StreamingQueryFailed", ("StreamingDataLossRisk", "a", "critical"), state="failed"
)

CASES = table(
    # StreamingDataLossRisk
    "hangs, the first unread record has used up 3/4 of its retention time",
    stalled_at_risk(near_the_edge(850)),
    "failed, and not restarted",
    failed_at_risk(dead_at(850)),
    "failed, and its broker does not answer: records still expire",
    failed_at_risk(dead_at(300), at=950),
    "flaps and stays failed: the danger is reported, the third failure is not",
    case(
        near_the_edge(1000, story=dying(50, 75, 101), run=3),
        alerts=["StreamingQueryFlapping", ("StreamingDataLossRisk", "a", "critical")],
        state="failed",
        besides=["StreamingQueryFailed"],
    ),
    "vanished",
    case(
        near_the_edge(850, story=steady().seen(at=100).probe(at=101).probe(at=102)),
        alerts=["StreamingQueryStopped", "StreamingDataLossRisk"],
        state="stopped_unexpectedly",
    ),
    "hangs, and the topic is bounded by size (retention.bytes strikes first)",
    stalled_at_risk(near_the_edge(850, kept=BY_SIZE)),
    "hangs, and the topic's retention may not be read",
    stalled_at_risk(near_the_edge(850, kept=UNKNOWN_RETENTION)),
    "hangs until retention has passed it",
    stalled_and_lost(near_the_edge(1300)),
    "hangs, 69.9% of the retention time are used up",
    query_stalled(near_the_edge(799)),
    "hangs, 70.1% of the retention time are used up",
    stalled_at_risk(near_the_edge(801)),
    "hangs, 89.9% of the retention time are used up",
    stalled_at_risk(near_the_edge(999)),
    "hangs, 90.1% of the retention time are used up",
    stalled_and_lost(near_the_edge(1001)),
    "failed, 15% of the retention time are used up, and a tenth is the limit by pattern",
    failed_at_risk(dead_at(250), **TENTH_OF_RETENTION),
    "failed, 69% of the retention time are used up, and a tenth is the limit by pattern",
    failed_at_risk(dead_at(790), **TENTH_OF_RETENTION),
    "failed, 71% of the retention time are used up, and a tenth is the limit by pattern",
    failed_and_lost(dead_at(810), **TENTH_OF_RETENTION),
    "failed, 25% of the retention time are used up, and a tenth is the limit of another query",
    query_failed(dead_at(350), **limits("b", data_loss_warning_ratio=0.1)),
    "commits, but retention has passed it (restarted after a long outage)",
    data_loss_critical(asked(steady(until=200), 195, 200, end(-950), since=None, **BY_TIME)),
    "commits, but too slowly: 3/4 of the retention time, and growing",
    data_loss_risk(alive_at(400, behind=650, speed=0.5), **LAG_IS_FINE),
    "commits, but too slowly for a topic that is bounded by size",
    data_loss_risk(alive_at(700, behind=650, speed=0.7, kept=BY_SIZE), **LAG_IS_FINE),
    "read as fast as data arrived, 3/4 of the retention behind, and has just failed",
    failed_at_risk(alive_at(400, behind=750).failed(at=401), at=402),
    "hangs, and its broker answers only since lately",
    stalled_at_risk(near_the_edge(850, begin=830)),
    "caught up for a while, and now falls behind again",
    data_loss_risk(
        asked(fast_until_400(), 415, 700, **BY_TIME, **reader(begins=690, speed=0.5, since=400)),
        **LAG_IS_FINE,
    ),
    "reads on, but one partition is stuck and near its retention limit",
    data_loss_risk(
        asked(steady(until=850), 100, 850, one_stuck, **IN_BOTH, since={"t/0": 100}), **LAG_IS_FINE
    ),
    "catches up from the beginning of the topic",
    running(alive_at(400, behind=990, speed=2.0)),
    "catches up, and the topic is bounded by size",
    running(alive_at(700, behind=990, speed=1.3, kept=BY_SIZE)),
    "catches up faster than retention deletes, which happens in steps",
    running(alive_at(407, behind=900, speed=1.2, kept=UNKNOWN_RETENTION)),
    "is near the retention limit and gains on it slowly",
    running(alive_at(400, behind=900, speed=1.05)),
    "everything is read, while old records expire",
    running(asked(steady(until=900), 15, 900, **BY_TIME, **HEALTHY)),
    "everything is read, and the topic is empty (kafka-lag-exporter #37: idle topic and retention)",
    idle(asked(idle_at(890), 15, 900, 500, 500, lambda at: 500 if at > 300 else 0, keeps=200)),
    "the first record after long idleness, in an otherwise empty topic",
    idle(asked(emptied_until(840), 855, 900, 500, 501, 500, sized=True, since=850)),
    "holds back the whole topic for less than the window (minOffsetsPerTrigger)",
    idle(asked(steady().idle(at=890), 870, 900, committed=0, latest=500, keeps=1000, since=100)),
    "records wait for a while, as usual in a busy topic",
    running(asked(steady(until=900), 15, 900, **BY_TIME, **BEHIND)),
    "reads as fast as data arrives, half of the retention behind",
    running(alive_at(400, behind=500)),
    "failed, with half of the retention time left",
    query_failed(dead_at(600)),
    "failed, in a compacted topic: nothing expires by age",
    query_failed(dead_at(2000, kept={"latest": end, "earliest": 0})),
    "hangs, in a topic that keeps everything",
    query_stalled(near_the_edge(2000, kept={"latest": end, "earliest": 7})),
    "hangs from the beginning of a new topic, bounded by size: nothing has expired yet",
    query_stalled(near_the_edge(400, kept=BOUNDED_AND_NEW, committed=100_000)),
    "the topic was recreated: the old offset is beyond its end",
    offsets_rewound(asked(read_until_300(), 315, 900, end(300), lambda at: at, 0, keeps=1000)),
    "failed, and the broker was polled only once",
    query_failed(near_the_edge(850, begin=850, story=steady().failed(at=101))),
    "unread records grew old while the driver was frozen",
    running(asked(frozen_until_800(), 801, 801, end(175), end, keeps=800, since=175), at=802),
    "the broker was polled only once",
    running(asked(steady(until=200), 200, 200, **BY_TIME, **reader(begins=950))),
    "the broker has been polled for less than the window",
    running(asked(steady(until=200), 155, 200, **BY_TIME, **reader(begins=880, speed=0.1))),
    "near the retention limit at the last poll, and commits since: the position is unknown",
    running(steady(alive_at(400, behind=650, speed=0.5), until=900)),
    "its broker has not answered for long, it committed, then it failed: the position is unknown",
    query_failed(steady(alive_at(400, behind=650, speed=0.5), until=900).failed(at=901), at=905),
    "the age of the unread records is known only since lately",
    running(
        asked(steady(until=400), 100, 400, too_slow, since=known_since_380, **BY_TIME),
        **LAG_IS_FINE,
    ),
    "records without sensible timestamps, of a query that commits",
    running(reading_all_with(since=0)),
    "records with timestamps in the future",
    running(reading_all_with(since=9e9)),
    "a partition that the topic has and the query does not know yet",
    running(asked(steady(until=900), 15, 900, end, **IN_BOTH, since={"t/1": 100})),
    "the broker does not report where the partition begins",
    running(asked(steady(until=900), 15, 900, end(-900), end, None, keeps=1000, since=-900)),
    "only transaction markers are unread, and they are as old as the topic",
    idle(
        asked(idle_at(990), 15, 1000, 499, 500, in_steps, first_waiting=500, keeps=100, sized=True)
    ),
    "stopped, and the stop was announced",
    stopped(near_the_edge(900, story=steady().seen(at=100).expect_stop().ended(at=101))),
    "the application has stopped",
    stopped(near_the_edge(900, story=steady().seen(at=100).probe(at=101, context=STOPPED))),
    "availableNow, finished, and old records expire",
    completed(near_the_edge(900, story=available_now().commit(batch=0, at=1).ended(at=2))),
    "in danger, but ignored",
    case(dead_at(850), state="failed", **limits("a", ignore=True)),
    "a larger ratio is set",
    running(alive_at(400, behind=650, speed=0.5), **LAG_IS_FINE, data_loss_warning_ratio=0.95),
    "restarted after a long outage, and it has read nothing yet",
    failed_at_risk(restarted(read=False)),
    "restarted after a long outage, and it reads on",
    running(restarted(read=True)),
    "hangs, and the next version of its table has used up 3/4 of the log's retention",
    stalled_at_risk(unread_table(850)),
    "failed, and the next version of its table is older than the log is kept",
    failed_and_lost(unread_table(1200, story=failed_reader())),
    "hangs, and the log of its table was cleaned up past the next version",
    stalled_and_lost(unread_table(400, kept_from=8)),
    "failed, and the snapshot of its offset has expired",
    failed_and_lost(unread_table(400, story=failed_reader(), since=None, keeps=None, **EXPIRED)),
    "hangs, all rows are read, and the snapshot of its offset has expired after a compaction",
    stalled_and_lost(unread_table(400, read=10, since=None, keeps=None, **EXPIRED)),
    "reads its table too slowly: 3/4 of the log's retention, and growing",
    data_loss_risk(reading_its_table(end=1000, since=lambda at: at / 2 - 550)),
    "failed, has read all of a table that nobody writes",
    query_failed(unread_table(9000, story=failed_reader(), read=10, kept_from=10, since=None)),
    "failed, and the newest version is unread, however old: it is always kept",
    query_failed(unread_table(9000, story=failed_reader(), read=9, kept_from=9, keeps=None)),
    "failed, and the log of its table is never cleaned up, or its settings are not known",
    query_failed(unread_table(9000, story=failed_reader(), keeps=None)),
    "hangs, and the log of its table was cleaned up to what it has read",
    query_stalled(unread_table(400, kept_from=lambda at: min(7, at // 50))),
    "hangs, the settings of its table are not known, and old versions are deleted",
    query_stalled(unread_table(400, keeps=None, kept_from=lambda at: min(6, at // 50))),
    "failed, and half of the log's retention is left",
    query_failed(unread_table(600, story=failed_reader())),
    "failed, and its table was polled once",
    query_failed(unread_table(1000, begin=990, story=failed_reader())),
    "begins at the oldest version on purpose, and catches up",
    running(reading_its_table(end=100, since=lambda at: 2 * at - 1000)),
    "reads one large version file by file, which has used up the log's retention",
    running(unread_table(400, story=steady(until=400), since=-900, within=lambda at: at)),
    "reads on while the snapshot of its last offset has expired: the batch in flight is beyond it",
    running(unread_table(400, story=steady(until=400), since=None, keeps=None, **EXPIRED)),
    "idle, and its table was compacted (Iceberg) or optimized (Delta): newer versions have no rows",
    idle(
        unread_table(
            900, story=idle_at(890), read=7, end=7, kept_from=0, since=None, unit="snapshot"
        )
    ),
    "idle, and old versions that it has read are deleted",
    idle(
        unread_table(900, story=idle_at(890), read=10, kept_from=lambda at: at // 100, since=None)
    ),
    "a version is unread for less than the window, in a table that is rarely written",
    idle(unread_table(890, begin=880, every=5, story=steady().idle(at=885), since=880)),
    "stopped as planned, with an expired snapshot",
    stopped(unread_table(400, story=steady().expect_stop().ended(at=101), **EXPIRED)),
    "in danger on its table, but ignored",
    case(unread_table(850, story=failed_reader()), state="failed", **limits("a", ignore=True)),
)
