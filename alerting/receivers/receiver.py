"""The contract between deliveries and receivers, and what each receiver declares."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from ipaddress import ip_address
from typing import Annotated, ClassVar, Literal, Protocol
from urllib.parse import urlsplit

import msgspec
import requests
import requests.utils
from msgspec import Meta

from ...core.certificates import load_authorities, load_own
from ...core.secret import Address, Holds, Secret, SecretFile, SecretUrl, Text
from ...core.states import DeliveryOutcome
from ..alert import Incident
from ..finding import WHOLE_DRIVER


class DeliveryError(Exception):
    """An incident was not accepted; the message never holds a secret.

    ``answer`` decides what happens next. ``retry_after`` is what the receiver asked for, in
    seconds. ``may_have_arrived``: the request was sent but no answer came, so the receiver may
    still act on it. ``status`` is the HTTP status, None without one, and ``body`` the beginning of
    the answer: for a decision, not to be shown.
    """

    def __init__(
        self,
        message: str,
        answer: DeliveryOutcome,
        *,
        retry_after: float | None = None,
        may_have_arrived: bool = False,
        status: int | None = None,
        body: bytes = b"",
    ) -> None:
        super().__init__(message)
        self.answer = answer
        self.retry_after = retry_after
        self.may_have_arrived = may_have_arrived
        self.status = status
        self.body = body


class ReceiverCapabilities(msgspec.Struct, frozen=True):
    """What a kind of receiver needs beyond getting each change once.

    ``per_minute``: how many requests it accepts. ``resend_seconds``: how often firing alerts must
    be repeated. ``resend_resolved_seconds``: how long resolves must be repeated.
    ``orphan_after_seconds``: it takes orphans, this long after they were offered; None if
    it keeps no state. ``groups_itself``: it knows alerts but no incidents, so every change of the
    alerts is sent, not only a new revision.
    """

    per_minute: float | None = None
    resend_seconds: float | None = None
    resend_resolved_seconds: float = 0.0
    orphan_after_seconds: float | None = None
    groups_itself: bool = False


class Receiver(Protocol):
    """Sends incidents to one place; only one thread calls ``send``."""

    name: str
    capabilities: ReceiverCapabilities

    def send(self, incident: Incident, wall: float, /) -> None:
        """Send a firing, resolved or orphan incident; ``wall`` is Unix time.

        Raises:
            DeliveryError: it was not accepted.

        """
        ...

    def close(self) -> None:
        """Close the connections; any thread may call it, and a ``send`` in flight ends soon."""
        ...


# -- where alerts are posted, and how -----------------------------------------------------------


_ALLOWED = (
    "must be an https:// URL with a host; http:// is allowed for this machine; "
    "example: https://example.com/x"
)


def public_part(url: str, *, setting: str, allow_http: bool = False) -> str:
    """Check ``url`` and return what of it may be shown: scheme, host and port.

    Userinfo, path and query stay hidden: the path of a Slack-like webhook is its secret.

    Raises:
        ValueError: no such URL can be posted to; the message names ``setting``.

    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
        posted_to = requests.Request("POST", url).prepare().url
        (urlsplit(posted_to or "").hostname or "").encode("idna")
    except ValueError:
        # The original message can quote a password that was taken for a port.
        raise ValueError(f"{setting} {_ALLOWED}") from None
    if parts.scheme not in {"http", "https"} or not host:
        raise ValueError(f"{setting} {_ALLOWED}")
    shown = f"{parts.scheme}://{f'[{host}]' if ':' in host else host}{f':{port}' if port else ''}"
    if is_readable(url) and not allow_http:
        raise ValueError(
            f"{setting} must be https:// for another machine ({shown}); "
            "allow_http permits plain http:// where the network is trusted"
        )
    return shown


def is_readable(url: str) -> bool:
    """Whether the network can read what is sent to ``url``: another machine, without TLS."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme == "http" and not is_loopback(parts.hostname or "")


def is_loopback(host: str) -> bool:
    """Whether ``host`` is this machine, by name or address."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


class HttpOptions(msgspec.Struct, frozen=True):
    """Settings of one receiver's connections; every name is also a setting's.

    ``allow_http``: plain http to other hosts. ``proxy_url``: ``http://`` or ``https://``, never
    used for loopback; without it, ``HTTPS_PROXY``, ``HTTP_PROXY`` and ``NO_PROXY`` hold.
    ``ca_file``: a PEM bundle in place of the public authorities that ``certifi`` lists.
    ``client_cert_file``, ``client_key_file``: who we are; the certificate's file may hold both.
    The files are read again for each connection.
    """

    allow_http: bool = False
    proxy_url: str | None = None
    ca_file: str | None = None
    client_cert_file: str | None = None
    client_key_file: str | None = None

    @property
    def verify(self) -> bool | str:
        """What requests takes for ``verify``: there is no way to switch it off."""
        return self.ca_file or True

    @property
    def cert(self) -> str | tuple[str, str] | None:
        """What requests takes for ``cert``."""
        if self.client_cert_file is not None and self.client_key_file is not None:
            return self.client_cert_file, self.client_key_file
        return self.client_cert_file

    def proxies(self, url: str) -> dict[str, str]:
        """The proxies on the way to ``url``, by its scheme."""
        if is_loopback(urlsplit(url).hostname or ""):
            return {}
        if self.proxy_url is not None:
            return {"http": self.proxy_url, "https": self.proxy_url}
        return dict(requests.utils.get_environ_proxies(url))

    def __repr__(self) -> str:
        return f"HttpOptions(ca_file={self.ca_file!r}, ...)"  # the proxy's URL holds its password

    def check(self) -> None:
        """Try all that can be tried without a connection.

        Raises:
            ValueError: something cannot be used; the message names the setting.

        """
        if self.proxy_url is not None and not _is_proxy(self.proxy_url):
            # The URL is not shown: it may hold the proxy's password.
            raise ValueError(
                "proxy_url must be an http:// or https:// URL with a host; "
                "example: http://proxy.example.com:3128"
            )
        cert, key = self.client_cert_file, self.client_key_file
        if key is not None and cert is None:
            raise ValueError("client_key_file needs client_cert_file")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if self.ca_file is not None:
            load_authorities(context, self.ca_file, "ca_file")
        if cert is not None:
            load_own(context, cert, key, ("client_cert_file", "client_key_file"))


def _is_proxy(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


# -- settings ---------------------------------------------------------------------------------

SeverityName = Literal["critical", "warning"]
_Name = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$",
        description="at most 64 ASCII letters, digits, _, . and -; the first a letter or digit",
        extra={"holds": Holds.NOTHING},
    ),
]
_MatchName = Annotated[
    str,
    Meta(
        pattern="^(?!(alertname|query|severity)$)[A-Za-z_][A-Za-z0-9_]*$",
        description="the name of a label, and not alertname, query or severity",
    ),
]
"""A label of incidents; their queries and severities have fields of their own."""


class Route(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The incidents that a receiver gets, and its fallback."""

    severities: tuple[SeverityName, ...] = ("critical", "warning")
    """Empty if it is only the fallback of other receivers."""
    queries: tuple[Text, ...] = ("*",)
    """Name patterns of its queries. Alerts about the whole driver are always sent."""
    match: dict[_MatchName, Text] = msgspec.field(default_factory=dict)
    """A pattern for each label that an incident must have. Example: `{team = "payments"}`"""
    fallback: Text | None = None
    """The receiver that also gets an incident which this one has not accepted in time."""
    fallback_after_seconds: Annotated[float, Meta(ge=0)] = 60.0

    def takes(self, incident: Incident) -> bool:
        """Whether the route matches the incident or one of its alerts."""
        labels = incident.labels
        fits = incident.severity in self.severities and all(
            name in labels and fnmatchcase(labels[name], pattern)
            for name, pattern in self.match.items()
        )
        queries = {alert.query for alert in incident.alerts} or {incident.query}
        return fits and (
            WHOLE_DRIVER in queries
            or any(fnmatchcase(query, pattern) for query in queries for pattern in self.queries)
        )


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


class ReceiverSettings(Route, frozen=True, kw_only=True):
    """The settings that every receiver has: its table in the setting ``receivers``.

    Exactly one of the fields ``one_of`` must be given. ``short_form`` maps fields to top-level
    settings, which define a receiver of this kind without a table.
    """

    one_of: ClassVar[tuple[str, ...]] = ()
    short_form: ClassVar[Mapping[str, str]] = {}
    makes: ClassVar[Callable[..., Receiver]]
    """Makes the receiver of its settings and a ``ReceiverContext``.

    Raises:
        ValueError: a setting cannot be used; the message names it.

    """
    name: _Name

    @classmethod
    def type_name(cls) -> str:
        """The value of ``type`` in its table."""
        return str(cls.__struct_config__.tag)

    def targets(self) -> Sequence[str]:
        """The URLs where its alerts go, as far as they can be read."""
        raise NotImplementedError


class HttpReceiverSettings(ReceiverSettings, frozen=True, kw_only=True):
    """The settings of receivers over HTTP; None takes the top-level setting of the same name."""

    allow_http: bool | None = None
    proxy_url: Address | None = None
    ca_file: Text | None = None
    client_cert_file: Text | None = None
    client_key_file: Text | None = None


class UrlReceiverSettings(HttpReceiverSettings, frozen=True, kw_only=True):
    """The settings of receivers at one secret URL, given itself or in a file."""

    one_of: ClassVar[tuple[str, ...]] = ("url", "url_file")
    url: SecretUrl | None = None
    url_file: SecretFile | None = None

    def targets(self) -> Sequence[str]:
        """The URL; none if its file is unreadable."""
        if self.url is not None:
            return (self.url,)
        try:
            return (Secret.from_file(self.url_file or "", setting="url_file").reveal(),)
        except ValueError:
            return ()
