"""Timelines as the page gets them: a hang that ends in a failure and a restart, and variations of it."""

from __future__ import annotations

import math

from msgspec.structs import replace

from querypulse.recording.timeline import Batch, Moment, Span, Summary, Timeline, What

BEGAN = 1_795_943_670.0
"""2026-11-29 09:14:30 UTC."""
STACK = "\n".join(
    f"org.apache.spark.sql.execution.streaming.Step{n}.run(Step.scala:{n})" for n in range(14)
)
QUERIES = tuple(f"q{n}" for n in range(1, 8))


def summary(**changes) -> Summary:
    usual = Summary(
        id="20261129T091430Z-telemetry-orders-abc123",
        app="telemetry",
        query="orders",
        since=BEGAN,
        until=BEGAN + 1200,
        headline="[telemetry] orders is stalled: batch 412 has been in flight for 6 min",
        alertname="StreamingQueryStalled",
        severity="critical",
        cause="jobs_running",
        how="resolved: the query works again",
        notifications=4,
        receivers=("pagerduty", "team-chat"),
    )
    return replace(usual, **changes)


def batches(count=240, *, every=10.0, until=BEGAN - 30, first=100, seconds=1.2, rows=5000):
    """Regular batches that end at ``until``, of durations and rows that differ a little."""
    return tuple(
        Batch(
            at=until - (count - 1 - n) * every,
            batch_id=first + n,
            seconds=seconds * (1 + 0.4 * math.sin(n * 1.7) + 0.2 * math.sin(n / 9)),
            input_rows=int(rows * (1 + 0.3 * math.sin(n / 7))),
            lag_offsets=rows * (2 + math.sin(n / 13)),
            state_memory_bytes=200_000_000 + 400_000 * n,
        )
        for n in range(count)
    )


def hang() -> Timeline:
    """A query hangs, dies, is restarted by somebody, and catches up."""
    before = batches(160)
    late = Batch(
        at=BEGAN + 840,
        batch_id=260,
        seconds=95.0,
        input_rows=410_000,
        lag_offsets=390_000,
        state_memory_bytes=290_000_000,
    )
    after = batches(35, until=BEGAN + 1190, first=261)
    moments = (
        _moment(-1650, What.RECORDING, "the recording begins with 28 min of what came before"),
        _moment(0, What.ALERT, "StreamingQueryStalled opens", severity="critical"),
        _moment(0.2, What.NOTIFICATION, "pagerduty is notified: firing, accepted"),
        _moment(0.4, What.NOTIFICATION, "team-chat is notified: firing, accepted"),
        _moment(15, What.BATCH, "batch 260 waits in stage 1204 for 3 tasks", detail=STACK),
        _moment(120, What.ALERT, "StreamingQueryLagging opens", severity="warning"),
        _moment(310, What.SILENCE, "orders is silenced until 09:40 UTC, by kim: looking at it"),
        _moment(640, What.REQUEST, "expect_stop was announced for orders"),
        _moment(
            660, What.RUN, "the run failed: SparkException: Job aborted", detail="Caused by: x"
        ),
        _moment(735, What.RUN, "the query was started again, from batch 260"),
        _moment(845, What.ALERT, "StreamingQueryStalled ended: the query works again"),
        _moment(846, What.NOTIFICATION, "pagerduty is notified: resolved, accepted"),
        _moment(1200, What.ALERT, "StreamingQueryLagging ended: it has caught up"),
        _moment(1201, What.NOTIFICATION, "team-chat is notified: resolved, accepted"),
    )
    spans = (
        _span(What.ALERT, 0, 845, "StreamingQueryStalled", severity="critical"),
        _span(What.ALERT, 120, 1200, "StreamingQueryLagging", severity="warning"),
        _span(What.RUN, -1650, 660, "run 7f3c9a01"),
        _span(What.RUN, 735, None, "run 1b22d9e4"),
        _span(What.BATCH, -20, 660, "batch 260"),
        _span(What.SILENCE, 310, 1530, "orders*"),
    )
    answers = {
        "first": "At 09:14:10 UTC batch 260 began; three of its tasks did not end.",
        "held_by": "Stage 1204 waited for 3 of 200 tasks, in org.postgresql.core.v3.QueryExecutorImpl.",
        "notified": "pagerduty and team-chat, within 0.4 s after the alert opened.",
        "done": "kim silenced it at 09:19:40 UTC; the query was restarted at 09:26:45 UTC.",
        "ended": "Batch 260 completed in the new run after 95 s, and the lag was gone at 09:34:30 UTC.",
    }
    shown = {"orders": (*before, late, *after)}
    for number, query in enumerate(QUERIES):
        shown[query] = batches(
            70, every=40, until=BEGAN + 1190, seconds=0.3 * (number + 1), rows=900
        )
    return Timeline(
        summary=summary(), answers=answers, moments=moments, spans=spans, batches=shown, unread=1
    )


def _moment(after: float, what: What, text: str, **more: str) -> Moment:
    return Moment(at=BEGAN + after, what=what, text=text, query="orders", **more)


def _span(what: What, since: float, until: float | None, label: str, severity: str = "") -> Span:
    end = None if until is None else BEGAN + until
    return Span(
        what=what, since=BEGAN + since, until=end, label=label, query="orders", severity=severity
    )


def bare(**changes) -> Timeline:
    """An incident of which only the summary is known."""
    return Timeline(summary=summary(**changes), answers={}, moments=())


def later(timeline: Timeline, seconds: float, **changes) -> Timeline:
    """The same at another time; ``changes`` are those of its summary."""
    old = timeline.summary
    until = None if old.until is None else old.until + seconds
    return replace(
        timeline,
        summary=replace(old, **{"since": old.since + seconds, "until": until, **changes}),
        moments=tuple(replace(moment, at=moment.at + seconds) for moment in timeline.moments),
        spans=tuple(
            replace(
                span,
                since=span.since + seconds,
                until=None if span.until is None else span.until + seconds,
            )
            for span in timeline.spans
        ),
        batches={
            query: tuple(replace(batch, at=batch.at + seconds) for batch in shown)
            for query, shown in timeline.batches.items()
        },
    )
