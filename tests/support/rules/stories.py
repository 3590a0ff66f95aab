"""Stories of the rows of several rules."""

from __future__ import annotations

from functools import cache, partial, wraps

from support.story import Story, processing, run, source

from querypulse.listener.failure import SESSION_ENDED
from querypulse.listener.probe_report import Context, JobCounts

STOPPED = Context.STOPPED_BY_APPLICATION
ONCE = "OneTimeTrigger"
AVAILABLE_NOW = "AvailableNowTrigger"
HOURLY = "ProcessingTimeTrigger(3600000)"
TEN_MINUTES = "ProcessingTimeTrigger(600000)"
SESSION_CLOSED = (
    "the Spark Connect server has closed the session (it expired, or was released elsewhere)"
)
SHUTDOWN = "org.apache.spark.SparkException: Job 1 cancelled because SparkContext was shut down"


QUESTIONS = {"evaluate", "snapshot", "query", "state", "ends_at"}


class Later:
    """A story that is made when a test asks it something: the tables have a thousand of them."""

    def __init__(self, make):
        self._make = cache(make)
        self._steps = []

    def __getattr__(self, name):
        if name in QUESTIONS:
            return getattr(self._made(), name)
        if name.startswith("_"):
            raise AttributeError(name)
        return partial(self._add, name)

    def _add(self, name, *args, **how):
        self._steps.append((name, args, how))
        return self

    def _made(self):
        story = self._make()
        for name, args, how in self._steps:
            getattr(story, name)(*args, **how)
        self._steps.clear()
        return story


def later(make):
    """A function that begins a story, which is made later, or that goes on with a story at once."""

    @wraps(make)
    def begin(*args, **how):
        goes_on = any(isinstance(value, Story) for value in (*args, *how.values()))
        return make(*args, **how) if goes_on else Later(partial(make, *args, **how))

    return begin


@later
def steady(story=None, *, until=100):
    """Query a commits every 10 s up to ``until``; its events arrive."""
    story = story or Story().started(at=0)
    for number, at in enumerate(range(10, until + 1, 10)):
        story.commit(batch=number, at=at)
    return story


def available_now():
    """A finite run of query a begins."""
    return Story().seen(trigger=AVAILABLE_NOW, at=0)


@later
def watched(story, *polls, **how):
    """The probe polls every 5 s: (from, to, run)."""
    for begin, end, seen in polls:
        for at in range(begin, end + 1, 5):
            story.probe(seen, at=at, **how)
        story.until(end)
    return story


@later
def commits_unseen(*, until):
    """Each ten seconds the probe sees another batch; no events arrive."""
    polls = range(101, until, 10)
    runs = ((at, at + 5, processing(batch=11 + at // 10)) for at in polls)
    return watched(steady(), *runs).until(until)


@later
def hung_batch(*, until, tasks=None, batch=10):
    return watched(steady(), (101, until, processing(batch=batch, tasks=tasks)))


@later
def polled(seen, *, until, since=101, story=None, every=5):
    """Polls of query a: ``seen`` gives its run, by the number and the time of the poll."""
    story = story or steady()
    for number, at in enumerate(range(since, until + 1, every)):
        story.probe(seen(number, at), at=at)
    return story.until(until)


@later
def counted(story=None, *, until, own=False, active=0, unowned=False):
    """Batch 10 from 101 s on; its own tasks, or those of jobs that name no query, may finish."""

    def seen(number, _):
        jobs = JobCounts(4, active, number if own else 0, active)
        others = JobCounts(9, 1, number if unowned else 0, 1)
        return processing(batch=10, own=jobs, unowned=others)

    return polled(seen, until=until, story=story)


IN_FLIGHT = {"message": "Processing new data", "busy": True, "data": True, "batch": 10}


@later
def working(
    *,
    until,
    python=0.0,
    driver=0.0,
    line="/jobs/sync.py:12 in call_api",
    story=None,
    since=101,
    every=5,
    **fields,
):
    """Batch 10 has no job; its threads use this many seconds of CPU time from poll to poll."""

    def seen(number, _):
        used = {"python_cpu": number * python, "jvm_cpu": number * driver, "line": line}
        return run(**{**IN_FLIGHT, "own": JobCounts(4), **used, **fields})

    return polled(seen, until=until, since=since, story=story, every=every)


@later
def batches(*seconds, story=None, begin=0, query="a"):
    """A query commits batches of these lengths, one after another."""
    story, at = story or Story().started(at=begin), begin
    for number, taken in enumerate(seconds):
        at += taken
        story.commit(query, batch=number, at=at, seconds=taken)
    return story


@later
def one_task(*, since=101, until, story=None, running=1, active=1, slots=None, **fields):
    """A batch (10 by default) whose own job has ``running`` running tasks; none of them finishes."""
    own = JobCounts(4, active, 40, running)
    seen = processing(**{"batch": 10, **fields}, own=own, slots=slots)
    return watched(story or steady(), (since, until, seen))


@later
def in_a_pool(*, until, running, active=1):
    """Batch 10 has no job of its own; a job that names no query has running tasks."""
    unowned = JobCounts(9, active, 7, running)
    return watched(steady(), (101, until, processing(batch=10, own=JobCounts(4), unowned=unowned)))


@later
def triggered(*, begins, until, **fields):
    """Commits at 10 s and waits for its ten-minute trigger; then its batch is in flight."""
    waiting = run(trigger=TEN_MINUTES, message="Waiting for next trigger", data=True, batch=1)
    story = watched(Story().started(at=0).commit(batch=0, at=10), (15, begins - 5, waiting))
    return watched(story, (begins, until, processing(trigger=TEN_MINUTES, batch=1, **fields)))


@later
def kafka(*ends, latest, every=10, first=10, batch=0, story=None, rows=10, **fields):
    """Query a commits one batch after another, ending at ``ends``; ``latest`` per batch or for all."""
    story = story or Story().started(at=0)
    for number, end in enumerate(ends):
        newest = latest[number] if isinstance(latest, list) else latest
        at = first + number * every
        story.commit(
            batch=batch + number, at=at, sources=(source(end, newest, rows=rows),), **fields
        )
    return story


def topic(*offsets):
    return {"t": {str(partition): offset for partition, offset in enumerate(offsets)}}


@later
def with_b():
    """Query b runs beside a."""
    return steady(Story().started(at=0).started("b", at=0).commit("b", batch=0, at=99))


@later
def three_queries():
    """Queries a, b and c run; the probe sees them at 100 s."""
    story = steady()
    for other in "bc":
        story.started(other, at=0).commit(other, batch=0, at=90)
    return story.probe(run(batch=10), run("b"), run("c"), at=100)


def lost(query="a", **fields):
    """The last poll of a run that has ended with its Spark Connect session."""
    return run(query, active=False, exception=SESSION_CLOSED, error_class=SESSION_ENDED, **fields)


@later
def looping(*lags, every=60, lasts=5, rows=10, batches=1, reads=1000, files=False):
    """Query a runs for five seconds of each minute (availableNow), with these lags after each run.

    Each of its ``batches`` in a run halves the lag that it found, and the run ``reads`` so many
    offsets. With ``files`` its source reports files instead.
    """
    story, number = Story(), 0
    for count, lag in enumerate(lags, 1):
        began = (count - 1) * every
        story.started(run=count, at=began)
        story.seen(number=count, trigger=AVAILABLE_NOW, batch=number, at=began + 1)
        for left in range(batches - 1, -1, -1):
            end, unread = number * reads // batches, lag * 2**left
            seen = source(topic(end), topic(end + unread), rows=rows)
            if files:
                seen = source({"seqNum": number, "path": "/in"}, rows=rows, backlog_files=unread)
            at = began + lasts - 1 - left / 2
            story.commit(run=count, batch=number, at=at, sources=(seen,), input_rows=rows)
            number += 1
        story.ended(run=count, at=began + lasts)
    return story


@later
def dying(*times, batch=None, alive_after=False):
    """Query a fails at each time, always in ``batch`` or after a commit, and restarts."""
    story = Story()
    for number, at in enumerate(times, 1):
        story.started(at=at - 8)
        if batch is None:
            story.commit(batch=number, at=at - 5)
        else:
            story.works(batch=batch, at=at - 5)
        story.failed(at=at)
    if alive_after:
        story.started(at=times[-1] + 2).commit(batch=len(times) + 1, at=times[-1] + 5)
    return story


@later
def epochs(*, until, log_until, unreadable=False):
    """A Continuous query: the probe sees it run, its log gets an epoch per second."""
    story = Story()
    seen = run(trigger="ContinuousTrigger(1000)", message="Running", busy=True)
    for at in range(0, until + 1, 5):
        story.probe(seen, at=at)
        if unreadable:
            story.log(at=at, unreadable="FileNotFoundException")
        else:
            epoch = min(at, log_until)
            story.log(at=at, planned=epoch + 1, committed=epoch)
    return story.until(until)


@later
def asked(story, begin, until, *offsets, every=15, **says):
    """The broker is polled every 15 s; its answers may be functions of the time.

    ``offsets``: what is committed, where the topic ends, and where it begins.
    """
    says |= zip(("committed", "latest", "earliest"), offsets, strict=False)
    for at in range(begin, until + 1, every):
        reported = {name: said(at) if callable(said) else said for name, said in says.items()}
        story.ask(at=at, **reported)
    return story.until(until)


def end(at):
    """The end offset of a topic that receives ten records per second."""
    return 100_000 + 10 * at


LAG_IS_FINE = {"lag_allowed_offsets": 1e9}


@later
def unread(
    wait, *, seconds=900, every=30, written=None, ends=end, asked_until=9999, story=None, sources=()
):
    """Query a commits every 30 s; its broker is polled after each commit and in between.

    ``wait`` gives for a time how many seconds ago the first unread record arrived; ``written``
    gives another timestamp for that record.
    """
    story = story or Story().started(at=0)
    for batch, at in enumerate(range(10, seconds, every)):
        began = at - wait(at)
        said = began if written is None else written(at)
        story.commit(batch=batch, at=at, sources=sources(batch) if sources else ())
        for asked_at in (at + 1, at + 16):
            if asked_at < min(asked_until, seconds):
                story.ask(
                    at=asked_at, committed=int(ends(began)), latest=ends(asked_at), since=said
                )
    return story
