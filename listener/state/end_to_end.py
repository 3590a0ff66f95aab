"""How new the data is that has passed through a chain of queries. Pure, but it remembers commits.

Each commit that read rows gets the moment ``passed``: data that was at the first sources then has
reached the query's table.

* A query that no other feeds: ``passed`` is when its committed batch began, because it then asked
  its sources for data.
* A query that others feed: the ``passed`` of the writer's newest commit before its own batch began.
  Of several writers of one place the newest counts, and retired ones only if no other is left. Of
  several places the oldest counts, so that one dead branch of a join shows.

The end-to-end age of a query is the time since ``passed`` of its newest commit; it grows while no
new data arrives. It is unknown until a commit of each place was seen before the query's own batch,
and while a batch left data unread that its source reports (``latestOffset``). Commits are seen at
most once per evaluation, so the age may be too large by one (0.6 s), and by the delay of an event.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from operator import itemgetter
from typing import NamedTuple

from ..events import Progress
from ..offsets import may_be_behind
from .flow import Flow
from .query import Query

KEPT_COMMITS = 64
"""For each query: enough for the writers' commits during one batch of a reader."""


class Passing(NamedTuple):
    """A commit at ``at`` and its ``passed`` (monotonic seconds); None if unknown."""

    at: float
    passed: float | None


class EndToEnd:
    """Remembers the last commits that read rows, of all queries; used by one thread."""

    def __init__(self) -> None:
        self._commits: dict[str, deque[Passing]] = {}

    def update(
        self, queries: Mapping[str, Query], flow: Flow, retired: Collection[str]
    ) -> dict[str, float]:
        """By label: ``passed`` of each query's newest commit, where it is known.

        ``retired`` are the labels of queries that ended as intended; they have no age of their own.
        """
        for label in self._commits.keys() - queries.keys():
            del self._commits[label]
        new = [
            (at, label, progress)
            for label, query in queries.items()
            if (progress := query.run.progress) is not None
            and (at := query.run.progress_at) is not None
            and progress.committed
            and progress.input_rows > 0
            and (label not in self._commits or self._commits[label][-1].at < at)
        ]
        for at, label, progress in sorted(new, key=itemgetter(0)):
            passing = Passing(at, self._passed(label, progress, at, flow, retired))
            self._commits.setdefault(label, deque(maxlen=KEPT_COMMITS)).append(passing)
        return {
            label: passed
            for label, commits in self._commits.items()
            if (passed := commits[-1].passed) is not None and label not in retired
        }

    def _passed(
        self, label: str, progress: Progress, at: float, flow: Flow, retired: Collection[str]
    ) -> float | None:
        is_behind = any(may_be_behind(source.end, source.latest) for source in progress.sources)
        if progress.batch_seconds is None or is_behind:
            return None
        oldest = began = at - progress.batch_seconds
        for writers in flow.feeds.get(label, ()):
            living = [writer for writer in writers if writer not in retired] or writers
            seen = [commits for writer in living if (commits := self._commits.get(writer))]
            passed = [_before(commits, began) for commits in seen]
            if not passed or None in passed:
                return None
            oldest = min(oldest, max(at for at in passed if at is not None))
        return oldest


def _before(commits: deque[Passing], at: float) -> float | None:
    """``passed`` of the newest commit at or before ``at``."""
    return next((commit.passed for commit in reversed(commits) if commit.at <= at), None)
