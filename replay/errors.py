"""The error of a replay."""

from __future__ import annotations


class ReplayError(Exception):
    """An input cannot be read or an output cannot be written; the message says which."""
