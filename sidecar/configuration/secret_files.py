"""Files that hold one secret each."""

from __future__ import annotations

from pathlib import Path

from .settings import SettingsError


def read_secret(name: str, path: str | None) -> str | None:
    """The secret in a file, without the white space around it.

    Raises:
        SettingsError: the file cannot be read, or is empty.

    """
    if path is None:
        return None
    try:
        secret = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise SettingsError(f"setting {name!r}: cannot read {path}: {error}") from None
    if not secret:
        raise SettingsError(f"setting {name!r}: {path} is empty")
    return secret
