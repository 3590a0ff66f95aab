"""Stories of query ``a`` on topic ``t``: runs under one or several checkpoints, and what they read."""

from __future__ import annotations

from msgspec.structs import replace
from support.story import IdStory, poll, polled, source

from querypulse.listener.commit_log import LogReport, StartingPoint, Written
from querypulse.listener.source_polls import SourceReport

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

    def goes_on(self, batch):
        """The checkpoint has committed batches."""
        point = StartingPoint(committed=Written(batch))
        self.state.apply_commit_log(LogReport(self.now, starts={self.run_id: point}))
        return self

    def reads(self, end, *, start=None, rows=10, after=1):
        """A batch commits, and its event arrives."""
        self.now += after
        done = source(offsets(end), rows=rows, start=offsets(start))
        name = self.name
        self.commits(
            self.checkpoint, self.run_id, name, at=self.now, batch=self.batch, sources=(done,)
        )
        self.batch += 1
        self.end = end
        return self

    def asks(self, committed=None, *, after=1, **answers):
        """The broker is polled; the query is where its last batch ended."""
        self.now += after
        committed = self.end if committed is None else committed
        by_partition = {
            name: {f"t/{number}": end for number, end in value.items()}
            if isinstance(value, dict)
            else value
            for name, value in {"committed": committed, **answers}.items()
        }
        polls = {self.run_id: {0: poll(at=self.now, **by_partition)}}
        self.state.apply_sources(SourceReport(self.now, polls))
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
        done = source(offsets(end))
        self.commits(query_id, run_id, self.name, at=self.now, batch=batch, sources=(done,))
        self.ends(query_id, run_id, at=self.now)
        return self

    def waits(self, seconds):
        """Nothing happens; the query is idle at the end."""
        self.now += seconds
        self.idles(self.checkpoint, self.run_id, at=self.now)
        return self


def read_to(end=100, *, session="", place="/cp", **answers):
    """A run has read the topic up to an offset, and was stopped as planned."""
    story = Reads().run(begins=0, session=session, place=place).asks(committed={}, latest={})
    return story.reads(end).asks(**answers).stops()
