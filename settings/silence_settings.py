"""A silence, as a table of the setting ``silences`` and as an entry of a ``silence_file``."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta


class SilenceSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Suppresses matching alerts until a required end."""

    queries: str
    """Name pattern."""
    until: Annotated[datetime, Meta(tz=True)]
    """With its time zone, such as ``2026-11-21T18:00:00Z``."""
    alertname: str = "*"
    reason: str = ""
    app: str | None = None
    """Name pattern of the label ``app``; None is every app that reads the silence.

    Required in a ``silence_file``, because drivers of several apps may read it.
    """
