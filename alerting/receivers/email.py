"""Sends incidents as e-mail, through an SMTP server with STARTTLS."""

from __future__ import annotations

import logging
import smtplib
import socket
import ssl
from collections.abc import Sequence
from contextlib import suppress
from email.message import EmailMessage
from email.utils import formatdate, getaddresses
from hashlib import sha256
from typing import Annotated, Literal

from msgspec import Meta
from requests.utils import DEFAULT_CA_BUNDLE_PATH

from ...core.secret import Key, Secret, SecretFile, Text
from ...core.socket_deadline import SocketDeadline
from ...core.states import DeliveryOutcome
from ...core.text import HOST, HOST_WORDS, shorten, utc
from ..alert import Incident
from ..words.headlines import headline_of, status
from ..words.messages import as_lines, incident_details, line, links, more_labels, others
from .http import diagnose
from .receiver import (
    DeliveryError,
    ReceiverCapabilities,
    ReceiverContext,
    ReceiverSettings,
    is_loopback,
)

log = logging.getLogger("querypulse")


# -- message ----------------------------------------------------------------------------------

MAX_SUBJECT_CHARACTERS = 200
MAX_TEXT_CHARACTERS = 20_000


def email_message(
    incident: Incident,
    sender: str,
    to: Sequence[str],
    wall: float,
    external_url: str = "",
    *,
    minimal: bool = False,
) -> EmailMessage:
    """The message: the headline as subject, and the details as plain text unless ``minimal``."""
    message = EmailMessage()
    headline = _clean(" ".join(headline_of(incident).split()))
    firing = incident.ends_at is None
    subject = f"{incident.severity}: {headline}" if firing else headline
    # Before Python 3.13, a header decodes such words, line ends included.
    message["Subject"] = shorten(subject.replace("=?", "= ?"), MAX_SUBJECT_CHARACTERS)
    message["From"], message["To"] = sender, ", ".join(to)
    message["Date"] = formatdate(wall)
    thread = _message_id(incident, "")
    message["Message-ID"] = _message_id(incident, f"{status(incident)} {incident.revision}")
    message["In-Reply-To"] = message["References"] = thread
    message["Auto-Submitted"] = "auto-generated"
    if firing and incident.severity == "critical":
        message["Importance"] = "high"
    text = headline if minimal else _text(incident, headline, external_url)
    message.set_content(shorten(_clean(text), MAX_TEXT_CHARACTERS) + "\n")
    return message


def _text(incident: Incident, headline: str, external_url: str) -> str:
    own = ", ".join(f"{name}={value}" for name, value in more_labels(incident).items())
    since = f"{incident.alerts[0].name} since {utc(incident.starts_at)}"
    urls = links(incident.alerts[0], external_url) if incident.ends_at is None else {}
    details = [line(name, reason) for name, reason in others(incident).items()]
    details.append(as_lines(incident_details(incident)))
    parts = [headline, "\n".join(filter(None, details)), as_lines(urls)]
    return "\n\n".join(filter(None, [*parts, f"{since} ({own})" if own else since]))


def _clean(text: str) -> str:
    """Without control characters, and without lone surrogates of a broken exception."""
    plain = text.encode("utf-8", "replace").decode()
    return "".join(letter for letter in plain if letter in "\n\t" or letter.isprintable())


def _message_id(incident: Incident, which: str) -> str:
    """The same for every attempt to send the same message, also after a restart."""
    what = f"{incident.key}\n{incident.starts_at!r}\n{which}"
    return f"<{sha256(what.encode('utf-8', 'replace')).hexdigest()[:32]}@querypulse.invalid>"


# -- connection -------------------------------------------------------------------------------

GO_AHEAD = 354
"""The server waits for the message (RFC 5321, 4.2.3)."""
PERMANENT = 500
"""From this code on a refusal is permanent, from 400 on temporary (RFC 5321, 4.2.1)."""


class SmtpConnection(smtplib.SMTP):
    """``smtplib`` within the time of an exchange; ``implicit``: TLS from the start."""

    def __init__(
        self, host: str, port: int, wire: SocketDeadline, implicit: ssl.SSLContext | None
    ) -> None:
        self._wire = wire
        self._implicit = implicit
        self.has_data = False
        """Whether the message was sent, at least in part."""
        # Without a name, smtplib asks DNS for one, which may take longer than the deadline.
        name = socket.gethostname()
        is_full = "." in name and name.isascii()
        super().__init__(host, port, local_hostname=name if is_full else "[127.0.0.1]")

    def getreply(self) -> tuple[int, bytes]:
        """Read an answer."""
        if self.file is None:
            self.file = self._wire.reader(self.sock)
        code, text = super().getreply()
        self.has_data = self.has_data or code == GO_AHEAD
        return code, text

    def _get_socket(self, host: str, port: int, _timeout: float) -> socket.socket:
        made = self._wire.connect(host, port)
        if self._implicit is None:
            return made
        return self._implicit.wrap_socket(made, server_hostname=host)


def diagnose_smtp(error: Exception) -> tuple[str, DeliveryOutcome]:
    """What happened, without the server's own words, and what that means for the alert.

    A refusal for good may be a wrong login, sender or recipient: the alert is kept.
    """
    if isinstance(error, smtplib.SMTPNotSupportedError):
        text = "offers no STARTTLS, or no login that we know"
        return text, DeliveryOutcome.MISCONFIGURED
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        code, does = min(code for code, _ in error.recipients.values()), "refused every recipient:"
    elif isinstance(error, smtplib.SMTPResponseException):
        is_of_the_text = isinstance(error, smtplib.SMTPDataError)
        code, does = error.smtp_code, "refused the message:" if is_of_the_text else "answered"
    else:
        return diagnose(error)[:2]
    permanent, temporary = DeliveryOutcome.MISCONFIGURED, DeliveryOutcome.TRANSIENT
    return f"{does} {code}", permanent if code >= PERMANENT else temporary


# -- receiver ---------------------------------------------------------------------------------

TOTAL_SECONDS = 10.0
PORTS = {"starttls": 587, "implicit": 465, "none": 25}


class Email:
    """One message per incident; the messages of an incident are one thread.

    A new connection for each message: servers close idle ones.
    """

    capabilities = ReceiverCapabilities(per_minute=30.0)

    def __init__(self, given: EmailSettings, context: ReceiverContext) -> None:
        """Check addresses, ``tls`` and the login; see ``ReceiverSettings.makes``."""
        self.name = given.name
        self._given = given
        for setting, address in [("sender", given.sender), *(("to", to) for to in given.to)]:
            _check_address(setting, address)
        if given.tls == "none" and not is_loopback(given.host):
            raise ValueError("tls = 'none' is allowed only if host is this machine")
        self._password = _password(given, context)
        self._ca_file = context.http.ca_file
        self._external_url = context.external_url
        (self._place,) = given.targets()
        self._wire = SocketDeadline()

    def send(self, incident: Incident, wall: float) -> None:
        """Send one incident; see ``Receiver.send``.

        A message that is refused after its text is sent again with its headline only: filters
        dislike links and long texts.
        """
        with self._wire.within(TOTAL_SECONDS):
            try:
                self._deliver(incident, wall)
            except DeliveryError as error:
                if error.status is None or error.status < PERMANENT:
                    raise
                self._deliver(incident, wall, minimal=True)

    def close(self) -> None:
        """End the message being sent; it may be sent again."""
        self._wire.cut()

    def _deliver(self, incident: Incident, wall: float, *, minimal: bool = False) -> None:
        """Send one message.

        Raises:
            DeliveryError: it was not accepted; with a status if the server refused the text.

        """
        given, server = self._given, None
        message = email_message(
            incident, given.sender, given.to, wall, self._external_url, minimal=minimal
        )
        try:
            # The authorities that all other receivers trust.
            context = ssl.create_default_context(cafile=self._ca_file or DEFAULT_CA_BUNDLE_PATH)
            implicit = context if given.tls == "implicit" else None
            server = SmtpConnection(given.host, given.server_port, self._wire, implicit)
            if given.tls == "starttls":
                server.starttls(context=context)
            if self._password is not None:
                server.login(given.user or "", self._password.reveal())
            refused = server.send_message(message)
            # The message has been accepted, so nothing that happens now matters.
            with suppress(smtplib.SMTPException, OSError):
                server.quit()
        except (smtplib.SMTPException, OSError, ValueError) as error:
            text, outcome = diagnose_smtp(error)
            # A server that answers has not accepted the message (RFC 5321, 4.2.5).
            answered = isinstance(error, smtplib.SMTPResponseException) and error.smtp_code > 0
            raise DeliveryError(
                f"{self._place} {text}",
                outcome,
                may_have_arrived=server is not None and server.has_data and not answered,
                status=error.smtp_code if isinstance(error, smtplib.SMTPDataError) else None,
            ) from None
        finally:
            if server is not None:
                server.close()
        for address, (code, _) in refused.items():
            log.warning("querypulse: %s refused the recipient %s: %d", self._place, address, code)


def _password(given: EmailSettings, context: ReceiverContext) -> Secret | None:
    passwords = [given.password, given.password_file]
    if None not in passwords:
        raise ValueError("give 'password' or 'password_file', not both")
    if (passwords == [None, None]) != (given.user is None):
        raise ValueError("'user' and 'password' or 'password_file' go together")
    if given.user is None:
        return None
    password = context.secret("password")
    for setting, text in (("user", given.user), ("password", password.reveal())):
        if not text.isascii():
            raise ValueError(f"{setting} must be ASCII: SMTP allows nothing else")
    return password


def _check_address(setting: str, text: str) -> None:
    """Exactly one address in ASCII, bare or as ``Name <address>``."""
    addresses = [address for _, address in getaddresses([text])]
    bare = addresses[0] if len(addresses) == 1 else ""
    name, domain = bare.rpartition("@")[::2]
    is_odd = bare not in text or not bare.isascii() or not text.isprintable()
    if not name or not domain or is_odd or not set(" ,;<>").isdisjoint(bare) or ";" in text:
        raise ValueError(f"{setting} must be one e-mail address in ASCII (given: {text!r})")


class EmailSettings(ReceiverSettings, tag_field="type", tag="email", frozen=True, kw_only=True):
    """``tls``: after STARTTLS, from the start (``implicit``), or not at all on this machine."""

    makes = Email

    host: Annotated[Text, Meta(pattern=HOST, description=HOST_WORDS)]
    port: Annotated[int, Meta(ge=1, le=65535)] | None = None
    """By default 587, 465 or 25, by ``tls``."""
    sender: Text
    to: Annotated[tuple[Text, ...], Meta(min_length=1)]
    tls: Literal["starttls", "implicit", "none"] = "starttls"
    user: Text | None = None
    password: Key | None = None
    password_file: SecretFile | None = None
    ca_file: Text | None = None

    @property
    def server_port(self) -> int:
        """The port to connect to."""
        return self.port or PORTS[self.tls]

    def targets(self) -> Sequence[str]:
        """The server."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return (f"smtp://{host}:{self.server_port}",)
