"""The rules about a query, the most severe first; see ``kinds.py``."""

from __future__ import annotations

from collections.abc import Callable

from .. import kinds
from ..finding import Finding
from . import data, losses, progress, query_ends, state_growth
from .context import RuleContext

RULES: dict[str, Callable[[RuleContext], Finding | None]] = {
    kinds.QUERY_GIVEN_UP: query_ends.query_given_up,
    kinds.QUERY_FAILED: query_ends.query_failed,
    kinds.QUERY_STOPPED: query_ends.query_stopped,
    kinds.QUERY_MISSING: query_ends.query_missing,
    kinds.QUERY_STALLED: progress.query_stalled,
    kinds.OFFSETS_STALLED: progress.offsets_stalled,
    kinds.QUERY_FLAPPING: query_ends.query_flapping,
    kinds.OFFSETS_REWOUND: progress.offsets_rewound,
    kinds.BATCH_SLOW: progress.batch_slow,
    kinds.DATA_LOSS_RISK: losses.data_loss_risk,
    kinds.QUERY_LAGGING: data.query_lagging,
    kinds.QUERY_FALLING_BEHIND: data.query_falling_behind,
    kinds.WATERMARK_STUCK: data.watermark_stuck,
    kinds.ROWS_DROPPED: data.rows_dropped,
    kinds.STATE_GROWING: state_growth.state_growing,
    kinds.INPUT_MISSING: losses.input_missing,
}
assert RULES.keys() <= kinds.KINDS.keys(), "each rule has a row in KINDS"
ORDER = tuple(RULES[name] for name in kinds.KINDS if name in RULES)
