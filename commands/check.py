"""``querypulse check``: the settings in force and where each came from."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from ..alerting.alert import problem_of
from ..alerting.spool import try_folder
from ..core.guard import Guard
from ..settings import wiring
from ..settings.loading import load_strictly
from ..settings.receivers import configured, find_gap, receivers_text
from ..settings.settings import TYPES, Settings, SettingsError, mask
from ..settings.silencing import read_silences
from ..settings.wiring import make_components

UNNAMED_APP = (
    "app_name is not set, so Spark's application name is used; if that is generic (pyspark-shell, "
    "Databricks Shell), alerts that an earlier process left open are not resolved at the start"
)


def check(environment: Mapping[str, str]) -> int:
    """Print every setting, secrets masked, and a summary; 0 when all can be used. Sends nothing.

    Settings come from environment and file: the Spark conf is known only inside a job.

    Raises:
        SettingsError: a setting is unknown, not allowed, or refers to something unusable.

    """
    loaded = load_strictly({}, environment)
    require_usable(loaded.settings)
    width = max(map(len, TYPES))
    for name in TYPES:
        value = _text(mask(name, getattr(loaded.settings, name)))
        origin = loaded.origins.get(name, "default")
        sys.stdout.write(f"{name:<{width}}  {value:<34}  {origin}\n")
    app_name = loaded.settings.app_name
    note = UNNAMED_APP if app_name is None else problem_of(app_name)
    sys.stdout.write(f"note: {note}\n" if note else "")
    sys.stdout.write(f"\n{_summary(loaded.settings)}\n")
    return 0


def _summary(settings: Settings) -> str:
    """One last line: the settings can be used, and who is notified."""
    problem = find_gap(settings, settings.app_name or "")
    if problem:
        return f"These settings can be used, but {problem}."
    names = [entry.given.name for entry in configured(settings)]
    return f"These settings can be used: {receivers_text(names)}. querypulse test-alert tries them."


def require_usable(settings: Settings) -> None:
    """Try everything that can be tried without sending anything.

    Raises:
        SettingsError: something cannot be used.

    """
    make_components(settings, Guard())
    if settings.silence_file is not None:
        try:
            read_silences(Path(settings.silence_file))
        except (OSError, ValueError) as error:
            raise SettingsError(f"setting 'silence_file': {error}") from None
    require_spool(settings)
    refused = wiring.refused_address(settings)
    if refused:
        raise SettingsError(refused)


def require_spool(settings: Settings) -> None:
    """Try the spool folder as a driver uses it, with the rights of the current user.

    Raises:
        SettingsError: it cannot be made, locked or written; the message has the system's reason.

    """
    if settings.spool_dir is None:
        return
    try:
        try_folder(Path(settings.spool_dir))
    except OSError as error:
        reason = error.strerror or str(error)
        raise SettingsError(f"setting 'spool_dir': {settings.spool_dir}: {reason}") from None


def _text(value: object) -> str:
    """A value as JSON; a dash where there is none."""
    return "-" if value is None else msgspec.json.encode(value).decode()
