"""The source of a query: its end, the read position, and its faults."""

from __future__ import annotations

import msgspec

from .clock import Time
from .truth import Health

ROWS = 10
LAG_ALLOWED = 1000
FLOOD = 3000
"""Rows that arrive between two batches while a query lags."""
BACK = 5000
"""By how much offsets go back."""


class Position(msgspec.Struct, frozen=True):
    """Where a batch ended, and where the source ended when it was planned."""

    end: int = 0
    latest: int = 0


class SimSource:
    """A topic of one partition. A condition lasts until its time ``..._until``."""

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
        """Begin a run at the logged position; the last run may have read further."""
        self._highest = self.now.end
        self.now = msgspec.structs.replace(self._logged, latest=self.now.latest)

    def written(self) -> None:
        """Log the present position."""
        self._logged = self.now

    def restart(self) -> None:
        """Reset the position for a new checkpoint."""
        self.now = self._logged = Position()
        self._highest, self._is_back = 0, False

    def read(self) -> None:
        """Read one batch: all new data, or less during a fault."""
        time, end, latest = self._time.now, self.now.end, self.now.latest
        if time < self.stall_until:
            # Nothing moves, not even backwards.
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
    def is_back(self) -> bool:
        """Whether its offsets are before those that were read once."""
        return self.now.end < self._highest

    @property
    def has_more(self) -> bool:
        """Whether the next batch has unread data, or will have."""
        held = max(self.lag_until, self.stall_until) > self._time.now
        return held or self.now.latest > self.now.end

    @property
    def health(self) -> Health:
        """The health of the query right after a commit."""
        if self._time.now < self.stall_until:
            return Health.STALE
        if self.is_back:
            return Health.REWOUND
        return Health.LAGGING if self.now.latest - self.now.end > LAG_ALLOWED else Health.HEALTHY

    @property
    def progress(self) -> dict[str, object]:
        """The source in the format of a progress event."""
        return {
            "description": "KafkaV2[Subscribe[t]]",
            "endOffset": {"t": {"0": self.now.end}},
            "latestOffset": {"t": {"0": self.now.latest}},
            "numInputRows": ROWS,
        }
