"""Why something cannot be replayed."""

from __future__ import annotations


class ReplayError(Exception):
    """An input that cannot be read, or an output that cannot be written; the message says which."""
