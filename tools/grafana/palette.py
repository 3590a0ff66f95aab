"""What colours mean: the same on the status page, in Grafana and in the documents.

Okabe and Ito's palette, which colour-blind people can distinguish. The state's word is always
shown beside its colour.
"""

from __future__ import annotations

VERMILLION = "#D55E00"
PURPLE = "#CC79A7"
ORANGE = "#E69F00"
SKY = "#56B4E9"
GREEN = "#009E73"
BLUE = "#0072B2"
GREY = "#999999"

STATES = {
    "failed": VERMILLION,
    "missing": VERMILLION,
    "stopped_unexpectedly": VERMILLION,
    "stalled": PURPLE,
    "flapping": PURPLE,
    "rewound": ORANGE,
    "slow": ORANGE,
    "lagging": ORANGE,
    "watermark_stuck": ORANGE,
    "waiting": SKY,
    "idle": SKY,
    "running": GREEN,
    "starting": BLUE,
    "stopped": GREY,
    "completed": GREY,
}
"""Every state a query can be in, worst first, and its colour."""

SEVERITIES = {"critical": VERMILLION, "warning": ORANGE, "info": SKY}

PHASES = {
    "addBatch": GREEN,
    "latestOffset": SKY,
    "getBatch": BLUE,
    "queryPlanning": PURPLE,
    "walCommit": ORANGE,
    "commitOffsets": VERMILLION,
}
"""Where a batch spends its time, by Spark's names; a phase not named here gets a colour of
Grafana's choice."""
