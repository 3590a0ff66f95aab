"""The alerting of querypulse: snapshot -> findings -> alerts -> receivers."""

from __future__ import annotations

from .alert import Alert
from .evaluate import Evaluation, evaluate
from .policy import Limits, Policy

__all__ = ["Alert", "Evaluation", "Limits", "Policy", "evaluate"]
