"""StreamingQueryLagging: the lag rises, or is over its limit."""

from __future__ import annotations

from support.rules.case import (
    completed,
    idle,
    joined,
    limits,
    offsets_rewound,
    query_lagging,
    query_lagging_critical,
    query_stalled,
    running,
    stopped,
    table,
)
from support.rules.stories import (
    AVAILABLE_NOW,
    HOURLY,
    LAG_IS_FINE,
    asked,
    available_now,
    end,
    hung_batch,
    kafka,
    later,
    looping,
    steady,
    topic,
    unread,
)
from support.story import Story, source


@later
def lagging(*lags, every=60, rows=10, **fields):
    """Query a commits every minute, with these lags, until two seconds after the last."""
    ends = range(0, 1000 * len(lags), 1000)
    latest = [topic(end + lag) for end, lag in zip(ends, lags, strict=True)]
    story = kafka(*map(topic, ends), latest=latest, every=every, input_rows=rows, **fields)
    return story.until(story.ends_at + 2)


@later
def reporting(unit, *figures, every=60, kafka="", unread=0, story=None):
    """Query a commits every minute; its source reports its own backlog, and no latest offset.

    With ``kafka`` it joins a topic of which ``unread`` records are always unread, as Spark
    ("reported") or the broker ("polled") says.
    """
    story = story or Story().started(at=0)
    for number, figure in enumerate(figures):
        at, end = 10 + number * every, 10 * number
        behind = source({"seqNum": number, "path": "/in"}, None, **{unit: figure})
        first = (source(topic(end), topic(end + unread)),) if kafka else ()
        if kafka == "polled":
            story.ask(at=at - 1, committed=end, latest=end + unread)
        story.commit(batch=number, at=at, sources=(*first, behind))
    return story.until(at + 2)


@later
def transacted(stable, log_end, *, until=400, **polls):
    """An idle read_committed query whose broker is polled every 15 s."""
    idle = steady().idle(at=until)
    return asked(idle, 15, until, committed=stable, latest=stable, log_end=log_end, **polls)


def bursts(rows):
    """The end offset where so many rows arrive in the first minute of each ten."""
    return lambda t: rows * (t // 600) + rows * min(t % 600, 60) / 60


@later
def topic_deleted(*, until):
    """Query a reads two topics; one is deleted, then the other one grows faster than it is read."""
    story = Story().started(at=0)
    for number, at in enumerate(range(20, until, 20), 1):
        committed, latest = {"new/0": 1000 * number}, {"new/0": 1000 * number}
        if number < 30:
            committed["old/0"] = latest["old/0"] = 10**9
        else:
            latest["new/0"] += 3000 * (number - 30)
        story.commit(batch=number, at=at).ask(at=at + 1, committed=committed, latest=latest)
    return story


@later
def at_broker(latest, committed, *, seconds=420, poll_every=15, asked_until=9999, spark_says=0):
    """Query a commits every minute; its broker is polled more often.

    ``latest`` and ``committed`` give the end and the committed offset at a time. The lag that Spark
    itself reports grows by ``spark_says`` each second.
    """
    story = Story().started(at=0)
    commits = [(float(at), "commit") for at in range(10, seconds, 60)]
    polls = [
        (at, "poll")
        for n in range(seconds)
        if (at := 11 + n * poll_every) < min(seconds, asked_until)
    ]
    done = None
    for number, (at, what) in enumerate(sorted(commits + polls)):
        if what == "poll":
            if done is not None:
                story.ask(at=at, committed=done, latest=int(latest(at)))
            continue
        done = int(committed(at))
        behind = source(topic(done), topic(done + int(spark_says * at)))
        story.commit(batch=number, at=at, sources=(behind,))
    return story.until(seconds + 2)


@later
def beside_transaction():
    """The first unread record of t/1 waits ever longer; one transaction of t/0 is open since 390 s."""
    story = Story().started(at=0)
    for batch in range(1, 790 // 15 + 1):
        at, stable = 15 * batch, 10 * min(batch, 26)
        story.commit(batch=batch, at=at).ask(
            at=at + 1,
            committed={"t/0": stable, "t/1": batch},
            latest={"t/0": stable, "t/1": 50 * batch},
            log_end={"t/0": 10 * batch + 5, "t/1": 50 * batch},
            since={"t/1": at / 50},
        )
    return story


def gone_back(batch):
    """The only source of a batch; batches after the first end below its end offset."""
    return (source(topic(900 if batch == 0 else batch), None),)


ALLOWED = {"lag_allowed_offsets": 1e9, "lag_allowed_seconds": 60.0}
ALLOWED_200 = ALLOWED | {"lag_allowed_seconds": 200.0}
"""Ten minutes of lag are three times as much, and critical."""

REWOUND = {"besides": ["StreamingOffsetsRewound"]}
MORNING = (2000, 2000, 5000, 8000, 12_000)


def hourly():
    return Story().seen(trigger=HOURLY, data=True, at=0)


def frozen_wait(at):
    return 5 if at < 400 else max(5, 1600 - at)


def recreated_at_600(at):
    return int(end(at)) if at < 600 else int(10 * (at - 600))


def in_bursts(rows):
    """Bursts of so many rows; the query processes 1,000 a second."""
    arrived = bursts(rows)
    return at_broker(arrived, lambda t: min(arrived(t - 20), 1000 * t), seconds=7200)


def fast(at):
    return 1000 * at


def burst(at):
    return 100 * at + (90_000 if at > 150 else 0)


def open_since_240(at):
    """Transactions of seconds; one is open since then."""
    return min(at, 240) * 4 - 40


WITH_ALLOWED_SECONDS = table(
    "a source is always 100 s late, 60 s are allowed",
    query_lagging(reporting("behind_seconds", *[100] * 8)),
    "a source is always 200 s late, 60 s are allowed",
    query_lagging_critical(reporting("behind_seconds", *[200] * 8)),
    "a source is always 200 s late beside a topic whose broker is polled, 60 s are allowed",
    query_lagging_critical(reporting("behind_seconds", *[200] * 8, kafka="polled")),
    "a source is always 20 s late beside a topic whose broker is polled, 60 s are allowed",
    running(reporting("behind_seconds", *[20] * 8, kafka="polled")),
    "a source catches up beside a topic whose broker is polled",
    running(reporting("behind_seconds", *range(3600, 400, -400), kafka="polled")),
    "a source is an hour late and catches up",
    running(reporting("behind_seconds", *range(3600, 400, -400))),
    "a source is always 20 s late, 60 s are allowed",
    running(reporting("behind_seconds", *[20] * 8)),
    "a transaction hangs for an hour, 60 s are allowed",
    query_lagging_critical(transacted(200, 203, until=3600)),
    "a transaction of four minutes, 60 s are allowed",
    idle(transacted(200, 900, until=255)),
    "transactions of seconds, one after another, 60 s are allowed",
    idle(transacted(lambda at: 4 * at - 40, lambda at: 4 * at)),
    "a transaction hangs for an hour, 60 s are allowed, and the query was stopped",
    stopped(transacted(200, 203, until=3600).expect_stop().ended(at=3601), at=3602),
    # lag in seconds, where it is limited
    "the first unread record always waits for 100 s, 60 s are allowed",
    query_lagging(unread(lambda _: 100), at=900),
    "the first unread record waits longer and longer",
    query_lagging(unread(lambda t: t / 4, seconds=700), at=700),
    "the first unread record waits longer and longer, three times the limit",
    query_lagging_critical(unread(lambda t: t / 4), at=900),
    "the first unread record had waited for an hour at the start, and the query does not catch up",
    query_lagging_critical(unread(lambda _: 3600), at=900),
    "the first unread record waits for 100 s, and its timestamp is in 1970",
    query_lagging(unread(lambda _: 100, written=lambda _: 0), at=900),
    "the first unread record waits for 100 s, and its timestamp is tomorrow",
    query_lagging(unread(lambda _: 100, written=lambda t: t + 86_400), at=900),
    "the first unread record waits for three times the limit; rewound offsets are only a warning",
    query_lagging_critical(unread(lambda t: t / 4, sources=gone_back), at=900, **REWOUND),
    "the first unread record waits for twice the limit; the rule for rewound offsets comes first",
    offsets_rewound(
        unread(lambda t: t / 6, sources=gone_back), at=900, besides=["StreamingQueryLagging"]
    ),
    "the first unread record waits for 50 s, 60 s are allowed",
    running(unread(lambda _: 50), at=900),
    "the first unread record waits for 100 s, more is allowed by pattern",
    running(unread(lambda _: 100), at=900, **limits("a", lag_allowed_seconds=600.0)),
    "the first unread record waits for too long, not for the window yet",
    running(unread(lambda t: 30 if t < 650 else 100), at=900),
    "the first unread record waited for too long for four minutes (a burst)",
    running(unread(lambda t: 200 if 500 < t < 740 else 5), at=790),
    "the query catches up after an outage",
    running(unread(lambda t: max(20, 1500 - t)), at=900),
    "the query catches up slowly",
    running(unread(lambda t: 1500 - t / 3), at=900),
    "records have old timestamps and are read at once (a replayed log)",
    running(unread(lambda _: 5, written=lambda t: t - 86_400), at=900),
    "records have no timestamp",
    running(unread(lambda _: 100, written=lambda _: None), at=900),
    "the topic is idle",
    idle(asked(steady().idle(at=890), 15, 900, committed=500, latest=500)),
    "one record every ten minutes, read at once",
    running(unread(lambda _: 0, ends=lambda t: 100 + int(t) // 600), at=900),
    "the producer pauses, and the query has read everything",
    running(
        asked(steady(unread(lambda _: 5, seconds=400), until=900), 400, 900, end(400), end(400))
    ),
    "only transaction markers are unread",
    running(asked(steady(until=900), 15, 900, committed=499, latest=500, first_waiting=500)),
    "an hourly trigger: each commit reads all there is",
    running(unread(lambda _: 0, seconds=14_400, every=3600, story=hourly()), at=14_000),
    "the source holds data back (minOffsetsPerTrigger)",
    idle(asked(steady().idle(at=890), 15, 900, committed=0, latest=500, since=20)),
    "the first unread record waited for 100 s, then the broker stopped answering",
    running(unread(lambda _: 100, asked_until=500), at=900),
    "the query hangs: another rule reports it",
    query_stalled(asked(hung_batch(until=900), 15, 900, latest=end, committed=end(100), since=100)),
    "the driver was frozen for ten minutes, and the query catches up",
    running(
        unread(frozen_wait, seconds=1090, story=Story().started(at=0).paused(at=1000, seconds=600)),
        at=1090,
    ),
    "the topic was recreated, and is read at once",
    running(unread(lambda _: 3, ends=recreated_at_600), at=900),
    **ALLOWED,
)

WITH_ALLOWED_OFFSETS = table(
    # StreamingQueryLagging
    "lag rises for the whole window",
    query_lagging(lagging(*(2000 + 100 * n for n in range(7)))),
    "lag rises from nothing, with a batch every two seconds",
    query_lagging(lagging(*(60 * n for n in range(200)), every=2)),
    "lag rises from nothing, with a batch every two seconds, not for the window yet",
    running(lagging(*(60 * n for n in range(160)), every=2)),
    "lag rises, the window is shorter by pattern",
    query_lagging(lagging(2000, 2100, 2200, 2300), **limits("a", trend_window_seconds=120.0)),
    "lag is huge and falls: catching up after an outage (Burrow rule 5)",
    running(lagging(*(90_000 - 100 * n for n in range(7)))),
    "lag is steady (transaction markers: Burrow #461)",
    running(lagging(*[5000] * 7)),
    "lag is steady, then rises a little",
    running(lagging(*[5000] * 6, 5050)),
    "lag rises a little in each window, on and on",
    query_lagging(lagging(*(5000 + 10 * n for n in range(40)))),
    "lag rises a little in each window and has not risen by much yet",
    running(lagging(*(5000 + 10 * n for n in range(20)))),
    "lag rises, but is small (DBR: small non-zero lag is healthy)",
    running(lagging(*(10 + n for n in range(7)))),
    "lag crossed the limit within the window",
    running(lagging(500, 700, 900, 1100, 1300, 1500, 1700)),
    "lag rose, fell once, rises again",
    running(lagging(2000, 2100, 2200, 2150, 2250, 2350, 2450)),
    "lag rises for four minutes (a burst)",
    running(lagging(2000, 3000, 4000, 5000, 6000)),
    "lag rises without input: not falling behind",
    running(lagging(*(2000 + 100 * n for n in range(7)), rows=0)),
    "more arrives than is processed, seen at the broker between commits",
    query_lagging(at_broker(lambda t: 2000 + 100 * t, lambda t: 85 * t, seconds=720)),
    "more arrives than is processed, in bursts of a minute each ten minutes",
    query_lagging(in_bursts(660_000)),
    "bursts of a minute each ten minutes are read before the next one",
    running(in_bursts(540_000)),
    "every batch reads all there is; the rate rises all morning",
    running(at_broker(lambda t: t * t / 10, lambda t: (t - 30) ** 2 / 10, seconds=7200)),
    "one of its topics was deleted, then more arrives than is processed",
    query_lagging(topic_deleted(until=1600), at=1602),
    "more arrives than is processed, says Spark; the broker has stopped answering",
    query_lagging(at_broker(fast, fast, seconds=1500, asked_until=120, spark_says=200)),
    "more arrives than is processed while Spark reports no lag, the window is shorter by pattern",
    query_lagging(
        at_broker(lambda t: 4000 + 100 * t, lambda t: 70 * t, seconds=240),
        **limits("a", trend_window_seconds=120.0),
    ),
    "every batch reads all there is; as much arrives between commits",
    running(at_broker(lambda t: 1000 * t, lambda t: 1000 * (t - 30))),
    "polls drift against the batches: the lag only seems to rise",
    running(at_broker(lambda t: 1000 * t, lambda t: 1000 * (t - 30), poll_every=15.2)),
    "the lag at the broker rose once, when batches found their pace, and is steady since",
    running(at_broker(lambda t: 1000 * t, lambda t: 1000 * (t - min(t / 5, 30)))),
    "polls drift against the batches, one poll per batch",
    running(at_broker(lambda t: 1000 * t, lambda t: 1000 * (t - 30), poll_every=60.5)),
    "lag rises by no more than what arrives between two polls",
    running(at_broker(lambda t: 100 * t, lambda t: 97 * t - 2000)),
    "the lag at the broker is huge and falls: catching up",
    running(at_broker(lambda t: 900_000 + 100 * t, lambda t: 300 * t)),
    "the lag at the broker rises, but is small",
    running(at_broker(lambda t: 100 + t, lambda t: 0.5 * t)),
    "a burst at the broker, processed since",
    running(at_broker(burst, lambda t: 100 * t + max(0, t - 160) * 300 - 1500)),
    "the lag at the broker is tiny, whatever Spark reports",
    running(at_broker(lambda t: 10 * t, lambda t: 10 * t, spark_says=5000)),
    "the lag at the broker rose, then the broker does not answer for long",
    running(at_broker(lambda t: 2000 + 100 * t, lambda t: 85 * t, asked_until=200)),
    "lag is not known",
    running(kafka(*(topic(n) for n in range(8)), latest=None, every=50), at=362),
    "lag rises, but stays below the limit",
    running(lagging(*(2000 + 100 * n for n in range(7))), lag_allowed_offsets=50_000.0),
    # what a source reports by itself, an open transaction, runs in a loop
    "files outstanding grow from 100 to 3,050 (Auto Loader)",
    query_lagging(reporting("backlog_files", *range(100, 3100, 400))),
    "files outstanding only grow, a hundred in each batch",
    query_lagging(reporting("backlog_files", *range(100, 900, 100))),
    "the records of a source grow late by minutes (Kinesis)",
    query_lagging(reporting("behind_seconds", *range(310, 710, 50))),
    "files outstanding grow beside a topic that is read to its end",
    query_lagging(reporting("backlog_files", *range(100, 3100, 400), kafka="reported")),
    "files outstanding grow beside a topic whose broker is polled",
    query_lagging(reporting("backlog_files", *range(100, 3100, 400), kafka="polled")),
    "records are ever later by minutes beside a topic with a steady lag",
    query_lagging(reporting("behind_seconds", *range(310, 710, 50), kafka="reported", unread=5000)),
    "files outstanding fall beside a topic whose broker is polled",
    running(reporting("backlog_files", *range(3100, 100, -400), kafka="polled")),
    "files outstanding are steady beside a topic with a steady lag",
    running(reporting("backlog_files", *[2000] * 8, kafka="reported", unread=5000)),
    "files outstanding are few and grow beside a topic with a steady lag",
    running(reporting("backlog_files", *range(10, 90, 10), kafka="polled", unread=5000)),
    "files outstanding fall: catching up",
    running(reporting("backlog_files", *range(3100, 100, -400))),
    "files outstanding are steady",
    running(reporting("backlog_files", *[2000] * 8)),
    "files outstanding grow, but are few",
    running(reporting("backlog_files", *range(10, 90, 10))),
    "files outstanding grow for four minutes (a burst)",
    running(reporting("backlog_files", *range(100, 2100, 400))),
    "files outstanding grow, but more are allowed",
    running(reporting("backlog_files", *range(100, 3100, 400)), **LAG_IS_FINE),
    "files outstanding grew, then fell once",
    running(reporting("backlog_files", 100, 500, 900, 1300, 1700, 2100, 2500, 2400)),
    "unread bytes alone have no limit",
    running(reporting("backlog_bytes", *range(10**6, 9 * 10**6, 10**6))),
    "a source is a few seconds late, and ever later",
    running(reporting("behind_seconds", *range(8))),
    "a source is always 400 s late, and no limit is set",
    running(reporting("behind_seconds", *[400] * 8)),
    "the log grows behind an open transaction; Spark says idle, the lag is 0",
    query_lagging(transacted(200, lambda at: 200 + 4 * at, until=930)),
    "transactions of ten minutes (Flink), and the first one since the driver started has been open for nine",
    idle(transacted(200, lambda at: 200 + 4 * at, until=555)),
    "transactions of ten minutes (Flink), and the driver started within one",
    idle(transacted(lambda at: (at + 100) // 600 * 6000, lambda at: 10 * at + 1000, until=1085)),
    "transactions of ten minutes (Flink), and the driver started at the end of one",
    idle(transacted(lambda at: (at + 550) // 600 * 6000, lambda at: 10 * at + 5500, until=640)),
    "a few records wait behind an open transaction, for an hour",
    query_lagging(transacted(200, 203, until=3600)),
    "transactions of seconds, one after another",
    idle(transacted(lambda at: 4 * at - 40, lambda at: 4 * at)),
    "transactions of ten minutes, one after another (Flink)",
    idle(transacted(lambda at: at // 600 * 6000, lambda at: 10 * at, until=7190)),
    "transactions of ten minutes, then one has been open for 25",
    idle(transacted(lambda at: min(at // 600, 6) * 6000, lambda at: 10 * at, until=5100)),
    "transactions of ten minutes, then one has been open for 35",
    query_lagging(transacted(lambda at: min(at // 600, 6) * 6000, lambda at: 10 * at, until=5700)),
    "transactions of seconds, then one has been open for six minutes",
    query_lagging(transacted(open_since_240, lambda at: 4 * at, until=600)),
    "a transaction was open for an hour; the one since is for half an hour",
    idle(transacted(lambda at: at // 3600, 9000, until=5400)),
    "a transaction was open for an hour once, others since for seconds; now one is for six minutes",
    query_lagging(transacted(lambda at: min(at, 3900) if at > 3600 else 0, 9000, until=4280)),
    "a record has waited for thirteen minutes, and in another partition a transaction has been open for seven",
    query_lagging_critical(beside_transaction(), at=790, **ALLOWED_200),
    "transactions of seconds, then one has been open for nine minutes, 200 s are allowed",
    query_lagging(transacted(open_since_240, lambda at: 4 * at, until=780), **ALLOWED_200),
    "transactions of ten minutes, one after another, 200 s are allowed",
    idle(transacted(lambda at: at // 600 * 6000, lambda at: 10 * at, until=7190), **ALLOWED_200),
    "a transaction of four minutes",
    idle(transacted(lambda at: 200 if at < 250 else 1200, 1200)),
    "nothing is open",
    idle(transacted(200, 200)),
    "uncommitted records are read, too",
    idle(asked(steady().idle(at=400), 15, 400, committed=200, latest=200)),
    "an open transaction was seen by one poll only; the broker has not answered since",
    idle(transacted(200, 900, until=15).idle(at=400)),
    "an open transaction, and the query was stopped",
    stopped(transacted(200, 900).expect_stop().ended(at=401), at=402),
    "availableNow in a loop: the lag after each run grows",
    query_lagging(looping(*range(2000, 9000, 1000))),
    "availableNow in a loop: several batches in each run, and the lag after each run grows",
    query_lagging(looping(*range(2000, 9000, 1000), batches=3), at=366),
    "availableNow in a loop, hourly: the lag after each run grows, and no run reads what the one before left",
    query_lagging(looping(*range(2000, 9000, 1000), every=3600, lasts=60), at=21_665),
    "availableNow in a loop: each run reads all that was there, and more arrives each time",
    completed(looping(*range(2000, 9000, 1000), reads=9000)),
    "availableNow in a loop, hourly: each run reads all that was there, and more arrives each time (a morning)",
    completed(looping(*MORNING, every=3600, lasts=120, reads=100_000), at=14_525),
    "availableNow in a loop, hourly: the same of files",
    completed(looping(200, 200, 500, 800, 1200, every=3600, lasts=120, files=True), at=14_525),
    "availableNow in a loop: the next run begins far behind",
    running(
        looping(*[2000] * 7)
        .started(run=8, at=420)
        .seen(number=8, trigger=AVAILABLE_NOW, batch=7, at=421)
        .commit(run=8, batch=7, at=424, sources=(source(topic(7500), topic(90_000)),)),
        at=425,
    ),
    "availableNow in a loop: the lag falls",
    completed(looping(*range(9000, 2000, -1000))),
    "availableNow in a loop: each run begins far behind and ends as the one before",
    completed(looping(*[2000] * 7, batches=3), at=366),
    "availableNow in a loop: four runs",
    completed(looping(*range(2000, 6000, 1000)), at=186),
    "availableNow in a loop that has ended",
    completed(looping(*range(2000, 9000, 1000)), at=700),
    "availableNow, once, with many batches that read less than arrives",
    running(lagging(*range(2000, 2700, 100), story=available_now())),
    "the first unread record waits for 100 s, the limit is set by pattern",
    query_lagging(
        unread(lambda _: 100), at=900, **LAG_IS_FINE, **limits("a", lag_allowed_seconds=60.0)
    ),
    "the first unread record waits for 100 s, and no limit is set",
    running(unread(lambda _: 100), at=900, **LAG_IS_FINE),
)

CASES = joined(WITH_ALLOWED_SECONDS, WITH_ALLOWED_OFFSETS)
