"""The source of a query: what it holds, how far it was read, and what goes wrong with it."""

from __future__ import annotations

import msgspec

from .clock import Time
from .truth import Health

ROWS = 10
LAG_ALLOWED = 1000
FLOOD = 3000
"""What comes between two batches while a query lags."""
BACK = 5000
"""By how much offsets go back."""


class Position(msgspec.Struct, frozen=True):
    """Where a batch ended, and where the source ended when it was planned."""

    end: int = 0
    latest: int = 0


class SimSource:
    """A topic of one partition. Times ``..._until`` are until when something is so."""

    def __init__(self, time: Time) -> None:
        self.now = Position()
        self.lag_until = 0.0
        self.stall_until = 0.0
        self.rewind_until = 0.0
        self._logged = Position()
        self._highest = 0
        self._is_back = False
        self._time = time

    def begin(self) -> None:
        """A run begins where the log says; the last one had left off further ahead, perhaps."""
        self._highest = self.now.end
        self.now = msgspec.structs.replace(self._logged, latest=self.now.latest)

    def written(self) -> None:
        """The log says how far the query has come."""
        self._logged = self.now

    def restart(self) -> None:
        """A new checkpoint: nothing was read before."""
        self.now = self._logged = Position()
        self._highest, self._is_back = 0, False

    def read(self) -> None:
        """A batch reads what there is, or what it may."""
        time, end, latest = self._time.now, self.now.end, self.now.latest
        if time < self.stall_until:
            # Nothing moves, back neither.
            self.now = Position(end, latest + ROWS)
            return
        if time < self.rewind_until and not self._is_back:
            self._is_back = True
            end = max(0, end - BACK)
            latest = end
        elif time >= self.rewind_until and self._is_back:
            self._is_back = False
            latest = max(latest, self._highest)
        if time < self.lag_until:
            self.now = Position(end + ROWS, max(end, latest) + FLOOD)
        else:
            latest = max(end, latest) + ROWS
            self.now = Position(latest, latest)
        self._highest = max(self._highest, self.now.end)

    @property
    def has_more(self) -> bool:
        """Whether data waits for the next batch, or will."""
        held = max(self.lag_until, self.stall_until) > self._time.now
        return held or self.now.latest > self.now.end

    @property
    def health(self) -> Health:
        """How the query fares that has just committed."""
        if self._time.now < self.stall_until:
            return Health.STALE
        if self.now.end < self._highest:
            return Health.REWOUND
        return Health.LAGGING if self.now.latest - self.now.end > LAG_ALLOWED else Health.HEALTHY

    @property
    def progress(self) -> dict[str, object]:
        """As Spark reports it in a progress event."""
        return {
            "description": "KafkaV2[Subscribe[t]]",
            "endOffset": {"t": {"0": self.now.end}},
            "latestOffset": {"t": {"0": self.now.latest}},
            "numInputRows": ROWS,
        }
