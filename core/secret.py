"""Secrets: a key, token or secret URL, as a value or in a file that may change; which settings hold
one; and which parts of it are hidden.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from contextlib import suppress
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints
from urllib.parse import unquote

import msgspec
from msgspec import Meta

from .files import Signature, signature_of
from .redaction import is_random, names_secret, secrets_of_url

MOST_BYTES = 64 * 1024
"""Of a file of a secret; ``/dev/zero`` has no end."""
_ALLOWED = "allowed: the path of a file that holds the secret and nothing else"
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
        self.setting = ""
        """The setting that names its file."""
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
        secret.setting = setting
        try:
            secret._read()
        except (OSError, ValueError) as error:
            raise ValueError(
                f"{setting}: cannot read {shown_path(path)}: {_reason(error)}; {_ALLOWED}"
            ) from None
        if not secret._value:
            raise ValueError(f"{setting}: {shown_path(path)} is empty; {_ALLOWED}")
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

    def authorization(self) -> str:
        """The header ``Authorization`` of a bearer token, or of ``user:password``; reads the file.

        They differ by a colon, which neither a token (RFC 6750) nor a user (RFC 7617) has.

        Raises:
            ValueError: it is something else; the message names the setting.

        """
        text = self.reveal()
        user, colon, password = text.partition(":")
        if user and password and text.isprintable():
            return f"Basic {b64encode(text.encode()).decode('ascii')}"
        if text.isascii() and text.isprintable() and not colon and " " not in text:
            return f"Bearer {text}"
        what = "a bearer token, without the word Bearer, or user:password"
        raise ValueError(f"{self.setting} must hold {what}")

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
        with self._path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise TooLargeError
        self._value = content.decode("utf-8-sig").strip() or self._value
        self._seen = seen


def shown_path(path: str | Path) -> str:
    """The path, unless it may be the secret itself, given where its file belongs."""
    place = Path(path)
    # A key may begin with a slash.
    is_place = place.is_absolute() and place.parent.is_dir() and len(place.name) <= LONGEST_NAME
    return str(path) if is_place else "a file with this name (not shown)"


class TooLargeError(ValueError):
    """A file is too large for a secret."""


def _reason(error: Exception) -> str:
    if isinstance(error, TooLargeError):
        return f"it has more than {MOST_BYTES} bytes, and a secret has fewer"
    return getattr(error, "strerror", None) or "it is not UTF-8"


# -- what texts in the settings hold ------------------------------------------------------------


class Holds(str, Enum):
    """What a text in the settings holds; it decides where the text may be shown."""

    NOTHING = "nothing"
    """No secret: it is shown."""
    KEY = "key"
    """A key or password: it is hidden."""
    PATTERN = "pattern"
    """A pattern of secrets, which may contain the words that it hides: it is hidden."""
    URL = "url"
    """A URL whose path is a password, as a webhook's: only scheme and host are shown."""
    ADDRESS = "address"
    """A URL that may hold a user name and password: only scheme and host are shown."""
    SECRET_FILE = "secret_file"  # noqa: S105 - a kind of setting
    """The path of a file that holds a key, a password or a secret URL: the path is shown."""


Text = Annotated[str, Meta(extra={"holds": Holds.NOTHING})]
Key = Annotated[str, Meta(extra={"holds": Holds.KEY})]
Pattern = Annotated[str, Meta(extra={"holds": Holds.PATTERN})]
SecretUrl = Annotated[str, Meta(extra={"holds": Holds.URL})]
Address = Annotated[str, Meta(extra={"holds": Holds.ADDRESS})]
SecretFile = Annotated[str, Meta(extra={"holds": Holds.SECRET_FILE})]


@cache
def holds(record: type[msgspec.Struct]) -> Mapping[str, Holds]:
    """What each text field of a settings record holds, as far as its type declares it."""
    hints = get_type_hints(record, include_extras=True)
    declared = {name: declared_in(hints[name]) for name in record.__struct_fields__}
    return {name: kind for name, kind in declared.items() if kind is not None}


def declared_in(kind: Any) -> Holds | None:
    """What the first declaration anywhere in a type says; literal words are no secret."""
    if get_origin(kind) is Literal:
        return Holds.NOTHING
    for part in getattr(kind, "__metadata__", ()):
        if isinstance(part, Meta) and part.extra is not None and "holds" in part.extra:
            return Holds(part.extra["holds"])
    inner = (declared_in(part) for part in get_args(kind))
    return next((declared for declared in inner if declared is not None), None)


# -- the parts of a secret that are hidden ------------------------------------------------------


def secret_parts(value: str) -> set[str]:
    """The texts to hide: a key itself; the secret parts of a URL, also decoded.

    Of headers the values that their names call secret, or that are random, as written and decoded,
    with and without a scheme such as ``Bearer``. Of ``user:password`` the password, too.
    """
    with suppress(ValueError):
        parse_headers(value)
        # It may also be a key that only looks like a header.
        return {value}.union(*map(_secret_of_header, value.replace("\n", ",").split(",")))
    if "://" not in value:
        return {value, value.partition(":")[2]} - {""}
    return _secret_of_url(value)


def _secret_of_header(header: str) -> set[str]:
    name, _, value = map(str.strip, header.partition("="))
    texts = {value, unquote(value)}
    if names_secret(name) or any(map(is_random, texts)):
        return {form for text in texts for form in (text, text.partition(" ")[2]) if form}
    return _secret_of_url(unquote(value)) if "://" in unquote(value) else set()


def _secret_of_url(url: str) -> set[str]:
    try:
        parts = secrets_of_url(url)
    except ValueError:
        return {url}
    return {form for part in parts for form in (part, unquote(part))}


def parse_headers(text: str) -> dict[str, str]:
    """Headers as ``OTEL_EXPORTER_OTLP_HEADERS`` has them: ``api-key=abc,other=d%20e``.

    Raises:
        ValueError: it is something else; the message does not quote it.

    """
    pairs = [part.partition("=") for part in text.replace("\n", ",").split(",") if part.strip()]
    headers = {name.strip(): unquote(value.strip()) for name, _, value in pairs}
    if not headers or not all(map(_is_header, headers.items())):
        raise ValueError("write headers as name=value, separated by commas")
    return headers


def _is_header(header: tuple[str, str]) -> bool:
    name, value = header
    plain = name.isascii() and name.replace("-", "").replace("_", "").isalnum()
    return plain and value.isascii() and value.isprintable() and bool(value)
