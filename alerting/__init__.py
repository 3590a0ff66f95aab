"""querypulse judges: snapshot -> findings -> alerts -> receivers."""

from __future__ import annotations

from .alert import Alert
from .evaluate import Judgement, evaluate
from .policy import Limits, Policy

__all__ = ["Alert", "Judgement", "Limits", "Policy", "evaluate"]
