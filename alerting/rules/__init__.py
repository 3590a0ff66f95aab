"""The rules, most severe first: the first that fires wins. Each has a file, an alert, a runbook."""

from __future__ import annotations

from . import (
    batch_slow,
    data_loss_risk,
    offsets_rewound,
    offsets_stalled,
    query_failed,
    query_flapping,
    query_lagging,
    query_missing,
    query_stalled,
    query_stopped,
    streaming_input_missing,
    watermark_stuck,
)

ORDER = (
    query_failed.check,
    query_stopped.check,
    query_missing.check,
    query_stalled.check,
    offsets_stalled.check,
    query_flapping.check,
    offsets_rewound.check,
    batch_slow.check,
    data_loss_risk.check,
    query_lagging.check,
    watermark_stuck.check,
    streaming_input_missing.check,
)

__all__ = ["ORDER"]
