"""The one list of known findings that random plans leave out, and why.

Once a finding is fixed, remove it here; nothing else has to change: the generator then makes such
plans, and the properties require what they excused.
"""

from __future__ import annotations

NEW: dict[str, str] = {}
"""Findings of the simulator itself; `docs/simulation.md` describes each."""

EXCLUDED = NEW
