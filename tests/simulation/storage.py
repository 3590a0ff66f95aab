"""The checkpoints of a driver's queries, for the product's own reader."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from querypulse.listener.checkpoints import LogReader
from querypulse.listener.commit_log import OFFSETS, StorageError
from querypulse.listener.probe import ProbeReport

from .clock import WALL, Time
from .run import Run
from .signals import Faults


class SimLogs:
    """The checkpoint of one query: the batches in its two logs."""

    def __init__(self, query_id: str, newest: Mapping[str, Run], faults: Faults) -> None:
        self._query_id = query_id
        self._newest_runs = newest
        self._faults = faults

    def ids(self, log: str) -> list[int]:
        """The newest hundred batches of a log; Spark removes older ones."""
        newest = self._newest(log)
        return list(range(max(0, newest - 99), newest + 1))

    def times(self, log: str) -> dict[int, float | None]:
        """When the files of a log were written, by the clock of the storage."""
        written = self._run().query.checkpoint.written[log]
        return {batch_id: WALL + at for batch_id, at in written.items()}

    def _newest(self, log: str) -> int:
        run = self._run()
        return run.planned if log == OFFSETS else run.logged

    def _run(self) -> Run:
        """The newest run with this checkpoint."""
        run = self._newest_runs.get(self._query_id)
        if run is None or self._faults.holds("unreadable", run.spec.key):
            raise StorageError("AccessControlException: Permission denied")
        return run


class SimLogReader(LogReader):
    """The product's reader, without pauses."""

    def __init__(
        self,
        newest: Mapping[str, Run],
        faults: Faults,
        latest_probe: Callable[[], ProbeReport | None],
        time: Time,
    ) -> None:
        super().__init__(
            lambda _, query_id: SimLogs(query_id, newest, faults),
            latest_probe, lambda: None, clock=time, wall=time.wall,
        )  # fmt: skip

    def step(self) -> None:
        """Read at once."""
        self.poke()
        super().step()
