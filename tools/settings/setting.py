"""The row of a setting on the page, and a group of rows."""

from __future__ import annotations

from typing import NamedTuple


class Setting(NamedTuple):
    """One row: what the record itself does not say; the example is a TOML value."""

    name: str
    meaning: str
    example: str


class SettingGroup(NamedTuple):
    """Settings that belong together."""

    title: str
    settings: tuple[Setting, ...]
