"""One rule, one file, one alert name, one runbook. Worst first: the first that fires wins."""

from __future__ import annotations

from . import commit_stalled, query_failed, query_gone, query_missing

ORDER = (query_failed.check, query_gone.check, query_missing.check, commit_stalled.check)

__all__ = ["ORDER"]
