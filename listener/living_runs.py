"""What all living runs say of themselves, as ``LivingRuns.java`` writes it."""

from __future__ import annotations

import msgspec

FIELD = "\x1f"
RUN = "\x1e"


class Status(msgspec.Struct, frozen=True, rename="camel"):
    """``StreamingQueryStatus``."""

    message: str
    is_data_available: bool
    is_trigger_active: bool


class LivingRun(msgspec.Struct, frozen=True):
    """One run at one moment.

    ``batch_id`` is the batch in flight, or the next one; None under Continuous. ``offsets``, as
    Spark prints them, and ``idle_progress``, the newest one without a batch as JSON, are empty
    where they are as they were.
    """

    run_id: str
    active: bool
    status: Status
    batch_id: int | None
    offsets: str = ""
    idle_progress: str = ""


def parse_living_runs(text: str) -> dict[str, LivingRun]:
    """Read the answer; the runs by their query's id.

    Raises:
        ValueError: it is no such answer.

    """
    return dict(_parsed(line.split(FIELD)) for line in text.split(RUN)[:-1])


def parse_status(text: str) -> Status:
    """Read ``StreamingQueryStatus.json``.

    Raises:
        ValueError: it is no status.

    """
    return msgspec.json.decode(text, type=Status)


def _parsed(fields: list[str]) -> tuple[str, LivingRun]:
    query_id, run_id, active, status, batch_id, offsets, idle_progress = fields
    return query_id, LivingRun(
        run_id=run_id,
        active=active == "true",
        status=parse_status(status),
        batch_id=int(batch_id) if batch_id else None,
        offsets=offsets,
        idle_progress=idle_progress,
    )
