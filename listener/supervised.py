"""What is known about a query that the application lets querypulse restart."""

from __future__ import annotations

import msgspec


class SupervisedQuery(msgspec.Struct, frozen=True, gc=False):
    """One supervised query; times are monotonic seconds, texts are redacted."""

    restarts: int = 0
    """How often it was started again."""
    due_at: float | None = None
    """When its next start is due; None while it runs, and once no start is due any more.

    While starts before it in the queue advance, that is when the last of them began or ended.
    """
    failure: str = ""
    """Why it is to be started again; empty before the first failure."""
    given_up: str = ""
    """Why it is not restarted any more; empty while it is."""
    started_at: float | None = None
    """When its start function last returned; None before that."""

    def waits_since(self, gone_at: float | None) -> float | None:
        """Since when it should run again, which may be later than now; None while it runs.

        ``gone_at`` is when its last run ended, None while that is active or unknown.
        """
        times = [at for at in (gone_at, self.due_at) if at is not None]
        return max(times, default=None)
