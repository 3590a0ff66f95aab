"""What is written of a setting, and of settings that belong together."""

from __future__ import annotations

from typing import NamedTuple


class Setting(NamedTuple):
    """One row: what the record itself does not say; the example is a TOML value."""

    name: str
    meaning: str
    example: str


class Group(NamedTuple):
    """Settings that belong together."""

    title: str
    settings: tuple[Setting, ...]
