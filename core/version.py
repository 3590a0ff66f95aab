"""The installed version of querypulse."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def installed_version() -> str:
    """The version in the metadata; "unknown" without metadata, for example with --py-files."""
    try:
        return version("querypulse")
    except PackageNotFoundError:
        return "unknown"


VERSION = installed_version()
