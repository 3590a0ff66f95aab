"""A key, token or secret URL: given as a value, or stored in a file that may change."""

from __future__ import annotations

from pathlib import Path

from .files import Signature, signature_of

LONGEST_NAME = 28
"""Longer names, of 32 characters and more, may be keys."""


class Secret:
    """A secret that is never shown: ``repr`` and ``str`` are masked; only ``reveal`` returns it.

    A secret from a file is read again when the file changes, so that a rotated key needs no
    restart. While the file is absent, empty or not UTF-8, the last good value stays: a rotation
    may be in progress.
    """

    def __init__(self, value: str) -> None:
        self._value = value.strip()
        self._path: Path | None = None
        self._seen: Signature | None = None
        self.problem = ""
        """Why the file could not be read the last time; it never holds its content."""

    @classmethod
    def from_file(cls, path: str | Path, *, setting: str) -> Secret:
        """The secret that is the file's content, without the white space around it.

        Raises:
            ValueError: the file cannot be read or is empty; the message names ``setting``.

        """
        secret = cls("")
        secret._path = Path(path)
        try:
            secret._read()
        except (OSError, ValueError) as error:
            raise ValueError(f"{setting}: cannot read {_shown(path)}: {_reason(error)}") from None
        if not secret._value:
            raise ValueError(f"{setting}: {path} is empty")
        return secret

    def reveal(self) -> str:
        """The current value; reads the file, so do not call it in Spark's threads."""
        if self._path is not None:
            try:
                self._read()
                self.problem = ""
            except (OSError, ValueError) as error:
                self.problem = f"cannot read {self._path}: {_reason(error)}"
        return self._value

    @property
    def is_from_file(self) -> bool:
        """Whether it may change."""
        return self._path is not None

    @property
    def known(self) -> str:
        """The value that was read last; reads no file, so any thread may call it."""
        return self._value

    def __repr__(self) -> str:
        return "Secret('********')"

    def _read(self) -> None:
        """Read the file if it has changed since it was last read."""
        if self._path is None:
            return
        seen = signature_of(self._path)
        if seen == self._seen:
            return
        self._value = self._path.read_text(encoding="utf-8").strip() or self._value
        self._seen = seen


def _shown(path: str | Path) -> str:
    """The path, unless it may be the secret itself, given where its file belongs."""
    place = Path(path)
    # A key may begin with a slash.
    is_place = place.is_absolute() and place.parent.is_dir() and len(place.name) <= LONGEST_NAME
    return str(path) if is_place else "a file with this name (not shown)"


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or "it is not UTF-8"
