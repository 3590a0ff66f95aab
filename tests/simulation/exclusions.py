"""What random plans leave out, by finding, and why: the one list of it.

A finding that is fixed is taken out of here, and nothing else has to change: the generator then
makes such plans, and the properties ask for what they forgave.
"""

from __future__ import annotations

ALERTING = {
    "A8": "two drivers of one app name",
    "A18": "a receiver that answers 410 once",
    "A21": "warnings and groups that a driver without a spool has left open",
    "B1": "resolves of what was never open",
}
"""Issue 16."""

NEW = {
    "N2": "watch that begins, or beside Alertmanager: its start-up resolves end what the driver itself reports",
}
"""What the simulator has found itself; `docs/simulation.md` tells each."""

EXCLUDED = ALERTING | NEW
