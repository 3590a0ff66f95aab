"""What random plans leave out, by finding, and why: the one list of it.

A finding that is fixed is taken out of here, and nothing else has to change: the generator then
makes such plans, and the properties ask for what they forgave.
"""

from __future__ import annotations

NEW: dict[str, str] = {}
"""What the simulator has found itself; `docs/simulation.md` tells each."""

EXCLUDED = NEW
