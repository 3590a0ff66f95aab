"""The status of all active runs, parsed from the text that ``LivingRuns.java`` writes."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

FIELD = "\x1f"
RUN = "\x1e"


class RunStatus(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """``StreamingQueryStatus``."""

    message: str
    is_data_available: bool
    is_trigger_active: bool


class LivingRun(msgspec.Struct, frozen=True, gc=False):
    """One run at one moment.

    ``batch_id`` is the batch in flight, or the next one; None for a continuous query. ``session``
    is the identity hash of the session that its batches run in, None if unknown. ``offsets``, as
    Spark prints them, and ``idle_progress``, the newest progress without a batch as JSON, are
    empty when they have not changed.
    """

    run_id: str
    active: bool
    status: RunStatus
    batch_id: int | None
    session: int | None = None
    offsets: str = ""
    idle_progress: str = ""


class UnreadRun(msgspec.Struct, frozen=True, gc=False):
    """A run that must be polled on its own; ``run_id`` is empty if unknown."""

    run_id: str = ""
    reason: str = ""
    """What went wrong; empty if the run was not polled yet."""


class LivingRuns(msgspec.Struct, frozen=True):
    """All active runs by query id.

    ``context_stopped`` is None when nobody checked whether the SparkContext is stopped.
    """

    runs: Mapping[str, LivingRun | UnreadRun]
    context_stopped: bool | None = None


def parse_living_runs(text: str) -> LivingRuns:
    """Read the answer; a run whose line cannot be parsed must be polled on its own.

    Raises:
        ValueError: a line names no run, or the last line is missing.

    """
    *lines, stopped, _ = text.split(RUN)
    return LivingRuns(dict(_parsed(line.split(FIELD)) for line in lines), _flag(stopped))


def parse_status(text: str) -> RunStatus:
    """Read ``StreamingQueryStatus.json``.

    Raises:
        ValueError: the text is not a status.

    """
    return msgspec.json.decode(text, type=RunStatus)


def _parsed(fields: list[str]) -> tuple[str, LivingRun | UnreadRun]:
    query_id, run_id, *rest = fields
    try:
        return query_id, _described(run_id, rest)
    except ValueError as error:
        return query_id, UnreadRun(run_id, rest[0] if len(rest) == 1 else str(error))


def _described(run_id: str, fields: list[str]) -> LivingRun:
    active, message, has_data, triggered, batch_id, session, offsets, idle_progress = fields
    return LivingRun(
        run_id=run_id,
        active=_flag(active),
        status=RunStatus(message, _flag(has_data), _flag(triggered)),
        batch_id=int(batch_id) if batch_id else None,
        session=int(session) if session else None,
        offsets=offsets,
        idle_progress=idle_progress,
    )


def _flag(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(f"neither true nor false: {text!r}")
    return text == "true"
