"""What each receiver declares: its settings, which of them hold secrets, and how it is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import cache
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from ...core.secret import Secret
from .http_options import HttpOptions
from .receiver import Receiver


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
Severity = Literal["critical", "warning"]
_Name = Annotated[
    str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$", extra={"holds": Holds.NOTHING})
]


@cache
def holds(record: type[msgspec.Struct]) -> Mapping[str, Holds]:
    """What each text field of a settings record holds, as far as its type declares it."""
    hints = get_type_hints(record, include_extras=True)
    found = {name: _declared(hints[name]) for name in record.__struct_fields__}
    return {name: kind for name, kind in found.items() if kind is not None}


def _declared(kind: Any) -> Holds | None:
    """The first declaration anywhere in a type; literal words are no secret."""
    if get_origin(kind) is Literal:
        return Holds.NOTHING
    for part in getattr(kind, "__metadata__", ()):
        if isinstance(part, Meta) and part.extra is not None and "holds" in part.extra:
            return Holds(part.extra["holds"])
    inner = (_declared(part) for part in get_args(kind))
    return next((one for one in inner if one is not None), None)


class ReceiverSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings that every receiver has."""

    name: _Name
    severities: tuple[Severity, ...] = ("critical", "warning")
    """Empty if it is only the fallback of other receivers."""
    queries: tuple[Text, ...] = ("*",)
    """Name patterns of its queries. Alerts about the whole driver are always sent."""
    fallback: Text | None = None
    """The receiver that gets an alert when this one has not accepted it in time."""
    fallback_after_seconds: Annotated[float, Meta(ge=0)] = 60.0


class HttpReceiverSettings(ReceiverSettings, frozen=True, kw_only=True):
    """The settings of receivers over HTTP; None takes the top-level setting of the same name."""

    allow_http: bool | None = None
    proxy_url: Address | None = None
    proxy_from_environment: bool | None = None
    ca_file: Text | None = None
    client_cert_file: Text | None = None
    client_key_file: Text | None = None


class UrlReceiverSettings(HttpReceiverSettings, frozen=True, kw_only=True):
    """The settings of receivers at one secret URL, given itself or in a file."""

    url: SecretUrl | None = None
    url_file: SecretFile | None = None


class ReceiverContext(msgspec.Struct, frozen=True):
    """What a receiver is made with beside its settings.

    ``secret`` returns the secret of a field, from the field itself or from the file that
    ``<field>_file`` names; ``secret_files`` those of a field that lists files. Both raise
    ``ValueError`` if a file cannot be read.
    """

    http: HttpOptions
    external_url: str
    secret: Callable[[str], Secret]
    secret_files: Callable[[str], list[Secret]]


def secret_url(given: UrlReceiverSettings) -> Sequence[str]:
    """The URL of a receiver that has one; empty if its file is unreadable."""
    if given.url is not None:
        return (given.url,)
    try:
        return (Secret.from_file(given.url_file or "", setting="url_file").reveal(),)
    except ValueError:
        return ()


class ReceiverType(msgspec.Struct, frozen=True):
    """One kind of receiver.

    ``settings`` is its table in the setting ``receivers``, ``make`` makes it from that table.
    Exactly one of the fields ``one_of`` must be given. ``short_form`` maps fields to top-level
    settings, which define a receiver of this kind without a table. ``urls`` returns where its
    alerts go.
    """

    settings: type[ReceiverSettings]
    make: Callable[[Any, ReceiverContext], Receiver]
    one_of: tuple[str, ...] = ()
    short_form: Mapping[str, str] = {}
    urls: Callable[[Any], Sequence[str]] = secret_url

    @property
    def name(self) -> str:
        """The value of ``type`` in its table."""
        return str(self.settings.__struct_config__.tag)
