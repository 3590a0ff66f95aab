"""The alerting of querypulse: snapshot -> findings -> alerts -> receivers."""

from __future__ import annotations

from .evaluate import Evaluation, evaluate
from .incidents.alert import Alert
from .policy import Limits, Policy

__all__ = ["Alert", "Evaluation", "Limits", "Policy", "evaluate"]
