"""Stories of query ``a`` on topic ``t``: runs under one or several checkpoints, and what they read."""

from __future__ import annotations

from msgspec.structs import replace
from support.story import IdStory, poll, polled, source

from querypulse.listener.commit_log import LogReport, StartingPoint, Written
from querypulse.listener.offsets import WHOLE
from querypulse.listener.source_polls import SourcePoll, SourceReport

TEMPORARY = "file:/tmp/temporary-00000000-1111-2222-3333-444444444444"
OTHER = "other"
"""Another checkpoint."""


def offsets(value):
    """Kafka's offsets; a number is that of partition 0."""
    return None if value is None else {"t": value if isinstance(value, dict) else {"0": value}}


class Reads(IdStory):
    """Runs of query ``a``, each under the ``checkpoint`` it names, which is its query id, too."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.runs = 0
        self.batch = 0
        self.checkpoint = ""
        self.end = None

    def run(
        self, checkpoint="cp", *, after=10, begins=None, session="", place="/cp", name="a", **shown
    ):
        """A run begins, ``after`` seconds later; ``begins``: where its new checkpoint does."""
        self.now += after
        self.runs += 1
        self.batch = self.batch + 1 if checkpoint == self.checkpoint else 0
        self.checkpoint, self.name = checkpoint, name
        self.start(checkpoint, self.run_id, name, at=self.now, session=session)
        run = polled(checkpoint, self.run_id, name, session=session, **shown)
        self.probe(replace(run, facts=replace(run.facts, checkpoint=place)), at=self.now + 0.1)
        if begins is not None:
            self.began(begins)
        return self

    @property
    def run_id(self):
        return f"run-{self.runs}"

    def began(self, begins):
        """The checkpoint shows where it begins."""
        positions = {f"t/{number}": end for number, end in offsets(begins)["t"].items()}
        point = StartingPoint(begins={0: positions})
        self.state.apply_commit_log(LogReport(self.now, starts={self.run_id: point}))
        return self

    def offsets(self, value):
        """A position as Spark reports it."""
        return offsets(value)

    def goes_on(self, batch):
        """The checkpoint has committed batches."""
        point = StartingPoint(committed=Written(batch))
        self.state.apply_commit_log(LogReport(self.now, starts={self.run_id: point}))
        return self

    def reads(self, end, *, start=None, rows=10, after=1):
        """A batch commits, and its event arrives."""
        self.now += after
        done = source(self.offsets(end), rows=rows, start=self.offsets(start))
        name = self.name
        self.commits(
            self.checkpoint, self.run_id, name, at=self.now, batch=self.batch, sources=(done,)
        )
        self.batch += 1
        self.end = end
        return self

    def asks(self, committed=None, *, after=1, **answers):
        """The broker is polled; the query is where its last batch ended."""
        committed = self.end if committed is None else committed
        by_partition = {
            name: {f"t/{number}": end for number, end in value.items()}
            if isinstance(value, dict)
            else value
            for name, value in {"committed": committed, **answers}.items()
        }
        return self.polled(poll(at=self.now + after, **by_partition))

    def polled(self, answer):
        """The answer of the source arrives."""
        self.now = answer.at
        self.state.apply_sources(SourceReport(self.now, {self.run_id: {0: answer}}))
        return self

    def stops(self, *, after=1, planned=True, exception=None):
        self.now += after
        if planned:
            self.state.expect_stop(self.name)
        self.ends(self.checkpoint, self.run_id, at=self.now, exception=exception)
        return self

    def overtaken(self, end):
        """The run reads on and ends, but its events come later."""
        self.late_run = self.checkpoint, self.run_id, self.batch
        self.end = end
        return self

    def late(self, *, end):
        """The events of the run before arrive: its last batch, and its end."""
        query_id, run_id, batch = self.late_run
        done = source(self.offsets(end))
        self.commits(query_id, run_id, self.name, at=self.now, batch=batch, sources=(done,))
        self.ends(query_id, run_id, at=self.now)
        return self

    def waits(self, seconds):
        """Nothing happens; the query is idle at the end."""
        self.now += seconds
        self.idles(self.checkpoint, self.run_id, at=self.now)
        return self


class TableReads(Reads):
    """The same on the Delta table ``/t``; numbers are versions."""

    def offsets(self, value):
        index = {"index": -1, "isStartingVersion": False}
        return None if value is None else {"reservoirId": "T", "reservoirVersion": value, **index}

    def began(self, _begins):
        """The checkpoint is new, and does not show where it begins: the source does."""
        report = LogReport(self.now, starts={self.run_id: StartingPoint()})
        self.state.apply_commit_log(report)
        return self

    def asks(self, committed=None, *, after=1, table="T", at_rest=False, latest=20, **answers):
        """The log is polled; the query is where its last batch ended, or nowhere (``{}``)."""
        committed = self.end if committed is None else committed
        positions = {"committed": committed, "latest": latest, "earliest": committed, **answers}
        by_partition = {
            name: value if isinstance(value, dict) else {WHOLE: value}
            for name, value in positions.items()
        }
        answer = SourcePoll(
            "DeltaSource[/t]",
            **by_partition,
            at=self.now + after,
            wall=self.now + after,
            unit="version",
            system=table,
            at_rest=at_rest,
        )
        return self.polled(answer)


def table_read_to(end=7):
    """A run has read a table up to a version, and was stopped as planned."""
    return TableReads().run(begins=0).reads(end).asks(latest=end).stops()


def read_to(end=100, *, session="", place="/cp", **answers):
    """A run has read the topic up to an offset, and was stopped as planned."""
    story = Reads().run(begins=0, session=session, place=place).asks(committed={}, latest={})
    return story.reads(end).asks(**answers).stops()
