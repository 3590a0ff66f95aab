"""StreamingQueryMissing of finite runs: none has completed by ``complete_by``.

Second 0 is midnight of a Monday, in UTC; the process begins then.
"""

from __future__ import annotations

from support.rules.case import (
    case,
    completed,
    limits,
    query_failed,
    query_missing,
    running,
    stopped,
    table,
)
from support.rules.stories import AVAILABLE_NOW, ONCE, STOPPED, steady
from support.story import Story

HOUR = 3600.0
DAY = 24 * HOUR
SIX = 6 * HOUR
AT_SIX = {"complete_by": "06:00"}
B_AT_SIX = limits("b*", **AT_SIX)
AT_SUNDAY = {"complete_by": "sun 23:00"}
WORKDAYS = {"complete_by": "mon-fri 06:00"}


def begun(story=None, *, number=1, at=3 * HOUR, busy=None, trigger=AVAILABLE_NOW):
    """A finite run of query a begins; the batch that it commits at ``busy`` is its newest."""
    story = (
        (story or Story()).started(run=number, at=at).seen(number=number, trigger=trigger, at=at)
    )
    return story if busy is None else story.commit(run=number, batch=number, at=busy)


def done(story=None, *, number=1, at=4 * HOUR, **how):
    """A finite run has completed."""
    return begun(story, number=number, at=at - HOUR / 2, **how).ended(run=number, at=at)


def working(story=None, *, batch):
    """A finite run was last seen in a batch."""
    return (story or begun()).works(trigger=AVAILABLE_NOW, batch=batch, at=4 * HOUR - 10)


def endless(until):
    return steady(until=100).seen(at=until).idle(at=until)


CASES = table(
    # What must not fire.
    "a run completed before the deadline",
    completed(done(), at=SIX + 60, **AT_SIX),
    "a run of once completed before the deadline",
    completed(done(trigger=ONCE), at=SIX + 60, **AT_SIX),
    "a run completed at the very deadline",
    completed(done(at=SIX), at=SIX + 60, **AT_SIX),
    "the deadline has not come, and a run is in flight",
    running(begun(busy=SIX - 10), at=SIX - 1, **AT_SIX),
    "the deadline has not come, and nothing has run today",
    completed(done(at=DAY - HOUR), at=DAY + SIX - 1, **AT_SIX),
    "a run completed in the evening before a deadline in the night",
    completed(done(at=DAY - HOUR), at=DAY + 2 * HOUR, complete_by="01:00"),
    "a run completed in the evening before, for the deadline in the morning",
    completed(done(at=DAY - HOUR), at=DAY + SIX + 60, **AT_SIX),
    "an earlier process has kept that a run completed before the deadline",
    running(begun(busy=SIX).completed_before(at=-HOUR), at=SIX + 60, **AT_SIX),
    "the checkpoint shows that an earlier process has committed all before the deadline",
    running(begun(busy=SIX).began(at=5 * HOUR, committed=(7, -HOUR)), at=SIX + 60, **AT_SIX),
    "expected, not seen, and an earlier process has kept that it completed",
    case(
        Story().completed_before("b", at=-HOUR).until(SIX + 60),
        at=SIX + 60,
        state=None,
        expected=["b"],
        **B_AT_SIX,
    ),
    "expected, not seen, and the deadline has not come",
    case(Story().until(5 * HOUR), at=5 * HOUR, state=None, expected=["b"], **B_AT_SIX),
    "a query that runs forever has a deadline",
    case(endless(SIX + 60), at=SIX + 60, state="idle", **AT_SIX),
    "trigger unknown, as in a replay or on Spark Connect",
    stopped(Story().started(at=0).commit(batch=1, at=9).ended(at=10), at=SIX + 60, **AT_SIX),
    "the process began after the deadline",
    running(begun(busy=4 * HOUR), at=4 * HOUR, complete_by="sun 23:00"),
    "the process began after the deadline, and the checkpoint shows an old commit: no data since",
    running(
        begun(busy=4 * HOUR).began(at=3 * HOUR, committed=(7, -9 * DAY)), at=4 * HOUR, **AT_SUNDAY
    ),
    "the process began after the deadline, and an earlier one has kept that a run completed for it",
    running(begun(busy=4 * HOUR).completed_before(at=-HOUR / 2), at=4 * HOUR, **AT_SUNDAY),
    "the process began after the deadline, and its run completed late for it",
    completed(done().completed_before(at=-9 * DAY), at=4 * HOUR, **AT_SUNDAY),
    "the process began just at the deadline",
    running(begun(at=60, busy=90), at=120, complete_by="00:00"),
    "a failed run was started again and completed",
    completed(
        done(begun().failed(run=1, at=4 * HOUR), number=2, at=5 * HOUR), at=SIX + 60, **AT_SIX
    ),
    "a loop completes each minute",
    completed(done(done(at=SIX - HOUR), number=2, at=SIX + 30), at=SIX + 60, **AT_SIX),
    "the next run of a loop is in flight at the deadline",
    running(begun(done(at=SIX - 30), number=2, at=SIX - 1, busy=SIX), at=SIX + 5, **AT_SIX),
    "Sunday has no deadline",
    completed(done(at=4 * DAY + 4 * HOUR), at=6 * DAY + 12 * HOUR, **WORKDAYS),
    "a run on Sunday is in time for Monday",
    completed(done(at=6 * DAY + 20 * HOUR), at=7 * DAY + SIX + 60, **WORKDAYS),
    "in its own zone, the deadline has not come",
    running(begun(busy=10.9 * HOUR), at=10.9 * HOUR, complete_by="06:00 America/New_York"),
    "it is ignored",
    running(begun(busy=SIX), at=SIX + 60, **AT_SIX, overrides=[("a", {"ignore": True})]),
    "only another query has a deadline",
    running(begun(busy=SIX), at=SIX + 60, **limits("b", complete_by="06:00")),
    "the application stopped Spark before the deadline",
    stopped(begun().probe(at=5 * HOUR, context=STOPPED), at=SIX + 60, **AT_SIX),
    "a run that was late yesterday completed, and today's did, too",
    completed(done(done(at=7 * HOUR), number=2, at=DAY + 4 * HOUR), at=DAY + SIX + 60, **AT_SIX),
    "a run completes after the deadline",
    completed(begun().ended(at=SIX + HOUR), at=SIX + HOUR + 1, **AT_SIX),
    "a run completes a day after the deadline",
    completed(done(done(), number=2, at=DAY + 11 * HOUR), at=DAY + 11 * HOUR + 1, **AT_SIX),
    "a poll saw the last batch of a run work, and its event came after the end",
    completed(
        working(batch=1).ended(at=HOUR * 4).commit(batch=1, at=HOUR * 4 + 1), at=SIX + 60, **AT_SIX
    ),
    "a poll saw the last batch of a run work, and no event came: the next poll shows its commit",
    completed(
        working(batch=1).seen(trigger=AVAILABLE_NOW, active=False, batch=2, at=4 * HOUR),
        at=SIX + 60,
        **AT_SIX,
    ),
    "a run was stopped before the deadline, and the next one completed",
    completed(
        done(working(batch=1).ended(at=HOUR * 4), number=2, at=5 * HOUR), at=SIX + 60, **AT_SIX
    ),
    # What fires.
    "a run was stopped in a batch",
    query_missing(working(batch=1).ended(at=4 * HOUR), at=SIX + 60, **AT_SIX),
    "a run was stopped in its second batch",
    query_missing(
        working(begun(busy=3 * HOUR + 5), batch=2).ended(at=4 * HOUR), at=SIX + 60, **AT_SIX
    ),
    "a run was stopped as announced",
    query_missing(begun(busy=SIX - 60).expect_stop().ended(at=SIX - 30), at=SIX + 60, **AT_SIX),
    "the stop of a run was announced when it had ended",
    query_missing(begun(busy=SIX - 60).ended(at=SIX - 30).expect_stop(), at=SIX + 60, **AT_SIX),
    "a poll saw that a run was being stopped",
    query_missing(
        begun(busy=3 * HOUR + 5)
        .seen(trigger=AVAILABLE_NOW, stopping=True, at=4 * HOUR)
        .seen(trigger=AVAILABLE_NOW, active=False, at=4 * HOUR + 1),
        at=SIX + 60,
        **AT_SIX,
    ),
    "a run was stopped in a batch, and the next one failed",
    query_failed(
        begun(working(batch=1).ended(at=4 * HOUR), number=2, at=4.5 * HOUR).failed(
            run=2, at=5 * HOUR
        ),
        at=SIX + 60,
        **AT_SIX,
        besides=["StreamingQueryMissing"],
    ),
    "a run is in flight at the deadline",
    query_missing(begun(busy=SIX + 30), at=SIX + 60, **AT_SIX),
    "nothing has run since yesterday",
    query_missing(done(), at=DAY + SIX + 60, **AT_SIX),
    "the run that was late yesterday is not in time for today",
    query_missing(done(at=7 * HOUR), at=DAY + SIX + 60, **AT_SIX),
    "expected and not seen for five minutes, which may run forever: the time is that of all queries",
    case(
        Story().until(301),
        at=301,
        alerts=("StreamingQueryMissing", "b"),
        state=None,
        expected=["b"],
        **AT_SIX,
    ),
    "the same, and only another query has a time of its own",
    case(
        Story().until(301),
        at=301,
        alerts=("StreamingQueryMissing", "b"),
        state=None,
        expected=["b"],
        **limits("a", **AT_SIX),
    ),
    "expected, and never seen until the deadline",
    case(
        Story().until(SIX + 60),
        at=SIX + 60,
        alerts=("StreamingQueryMissing", "b"),
        state=None,
        expected=["b"],
        **B_AT_SIX,
    ),
    "expected, not seen, and the last completion that an earlier process has kept is old",
    case(
        Story().completed_before("b", at=-DAY).until(SIX + 60),
        at=SIX + 60,
        alerts=("StreamingQueryMissing", "b"),
        state=None,
        expected=["b"],
        **B_AT_SIX,
    ),
    "an earlier process has kept only an old completion",
    query_missing(begun(busy=SIX).completed_before(at=-DAY), at=SIX + 60, **AT_SIX),
    "the process began after the deadline, and an earlier one has kept only an old completion",
    query_missing(begun(busy=4 * HOUR).completed_before(at=-9 * DAY), at=4 * HOUR, **AT_SUNDAY),
    "the same of an expected query that is not seen",
    case(
        Story().completed_before("b", at=-9 * DAY).until(60),
        at=60,
        alerts=("StreamingQueryMissing", "b"),
        state=None,
        expected=["b"],
        **limits("b*", **AT_SUNDAY),
    ),
    "an earlier process left a batch that is planned and not committed",
    query_missing(
        begun(busy=SIX).began(at=3 * HOUR, committed=(7, -HOUR), unfinished=(8, -HOUR)),
        at=SIX + 60,
        **AT_SIX,
    ),
    "nothing has run on Monday since Friday",
    query_missing(done(at=4 * DAY + 4 * HOUR), at=7 * DAY + SIX + 60, **WORKDAYS),
    "in its own zone, the deadline has come",
    query_missing(begun(busy=11.1 * HOUR), at=11.1 * HOUR, complete_by="06:00 America/New_York"),
    "the run failed, which is reported alone",
    query_failed(
        begun().failed(at=4 * HOUR), at=SIX + 60, **AT_SIX, besides=["StreamingQueryMissing"]
    ),
)
