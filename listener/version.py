"""Which querypulse this is."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def installed_version() -> str:
    """The version in the metadata; "unknown" where that was not shipped, as by --py-files."""
    try:
        return version("querypulse")
    except PackageNotFoundError:
        return "unknown"


VERSION = installed_version()
