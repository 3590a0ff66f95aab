"""Texts that cannot be encoded: Python reads bytes of the environment that are not UTF-8 as lone
surrogates, and so does JSON. Such a text in a label or a log line would fail much later. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping


def encodable(text: str) -> str:
    """The text with an escape in place of each lone surrogate."""
    return text.encode("utf-8", "backslashreplace").decode()


def is_encodable(value: object) -> bool:
    """Whether every text in a value, its lists and its tables can be encoded."""
    pending = [value]
    while pending:
        one = pending.pop()
        if isinstance(one, str) and encodable(one) != one:
            return False
        if isinstance(one, Mapping):
            pending += [*one.keys(), *one.values()]
        elif isinstance(one, (list, tuple, set, frozenset)):
            pending += one
    return True
