"""One rule, one file, one alert name, one runbook. Worst first: the first that fires wins."""

from __future__ import annotations

from . import (
    batch_slow,
    commit_stalled,
    data_loss_risk,
    offset_rewound,
    offset_stalled,
    query_failed,
    query_flapping,
    query_gone,
    query_lagging,
    query_missing,
    streaming_input_missing,
    watermark_stuck,
)

ORDER = (
    query_failed.check,
    query_gone.check,
    query_missing.check,
    commit_stalled.check,
    offset_stalled.check,
    query_flapping.check,
    offset_rewound.check,
    batch_slow.check,
    data_loss_risk.check,
    query_lagging.check,
    watermark_stuck.check,
    streaming_input_missing.check,
)

__all__ = ["ORDER"]
