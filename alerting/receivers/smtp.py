"""Sends incidents as e-mail, through an SMTP server with STARTTLS."""

from __future__ import annotations

import logging
import smtplib
import ssl
import time
from collections.abc import Sequence
from email.message import EmailMessage
from email.utils import getaddresses
from typing import Annotated, Literal

from msgspec import Meta
from requests.utils import DEFAULT_CA_BUNDLE_PATH

from ...core.outcomes import DeliveryOutcome
from ...core.secret import Secret
from ..alert import Incident
from .address import is_loopback
from .declaration import Key, ReceiverContext, ReceiverSettings, ReceiverType, SecretFile, Text
from .email_message import email_message
from .receiver import DeliveryError, ReceiverCapabilities
from .smtp_connection import SmtpConnection
from .smtp_failure import PERMANENT, diagnose_smtp

log = logging.getLogger("querypulse")

TOTAL_SECONDS = 10.0
PORTS = {"starttls": 587, "implicit": 465, "none": 25}


class EmailSettings(ReceiverSettings, tag_field="type", tag="email", frozen=True, kw_only=True):
    """``tls``: after STARTTLS, from the start (``implicit``), or not at all on this machine."""

    host: Annotated[
        Text, Meta(pattern=r"^([A-Za-z0-9_]([A-Za-z0-9_-]*\.?)*|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*)$")
    ]
    port: Annotated[int, Meta(ge=1, le=65535)] | None = None
    """By default 587, 465 or 25, by ``tls``."""
    sender: Text
    to: Annotated[tuple[Text, ...], Meta(min_length=1)]
    tls: Literal["starttls", "implicit", "none"] = "starttls"
    user: Text | None = None
    password: Key | None = None
    password_file: SecretFile | None = None
    ca_file: Text | None = None


class Email:
    """One message per incident; the messages of an incident are one thread.

    A new connection for each message: servers close idle ones.
    """

    capabilities = ReceiverCapabilities(per_minute=30.0)

    def __init__(
        self,
        given: EmailSettings,
        password: Secret | None = None,
        ca_file: str | None = None,
        external_url: str = "",
    ) -> None:
        """Check the settings; ``external_url`` is the link to more information.

        Raises:
            ValueError: an address, ``tls`` or the login cannot be used; the message names the
                setting.

        """
        self.name = given.name
        self._sender = _address("sender", given.sender)
        self._to = [_address("to", one) for one in given.to]
        if given.tls == "none" and not is_loopback(given.host):
            raise ValueError("tls = 'none' is allowed only if host is this machine")
        word = password.reveal() if password is not None else ""
        for setting, text in (("user", given.user or ""), ("password", word)):
            if not text.isascii():
                raise ValueError(f"{setting} must be ASCII: SMTP allows nothing else")
        self._given = given
        self._password = password
        self._ca_file = ca_file
        self._external_url = external_url
        self._place = _place(given)
        self._server: SmtpConnection | None = None
        self._closed = False

    def send(self, incident: Incident, wall: float) -> None:
        """Send one incident; see ``Receiver.send``.

        A message that is refused after its text is sent again with its headline only: filters
        dislike links and long texts.
        """
        deadline = time.monotonic() + TOTAL_SECONDS
        given = self._given
        for minimal in (False, True):
            message = email_message(
                incident, given.sender, given.to, wall, self._external_url, minimal=minimal
            )
            try:
                self._deliver(message, deadline)
            except smtplib.SMTPDataError as error:
                if minimal or error.smtp_code < PERMANENT:
                    raise self._failure(error) from None
            else:
                return

    def close(self) -> None:
        """End the message being sent; it may be sent again."""
        self._closed = True
        if (server := self._server) is not None:
            server.cut()

    def _deliver(self, message: EmailMessage, deadline: float) -> None:
        """Send one message.

        Raises:
            SMTPDataError: the server refused the text.
            DeliveryError: it was not accepted for another reason.

        """
        if self._closed:
            raise DeliveryError(f"{self._place}: closed", DeliveryOutcome.TRANSIENT)
        server = self._server = SmtpConnection(deadline)
        try:
            self._converse(server, message)
        except smtplib.SMTPDataError:
            raise
        except (smtplib.SMTPException, OSError, ValueError) as error:
            raise self._failure(error, has_data=server.has_data) from None
        finally:
            server.close()
            self._server = None

    def _converse(self, server: SmtpConnection, message: EmailMessage) -> None:
        given = self._given
        implicit = self._context() if given.tls == "implicit" else None
        server.connect_to(given.host, given.port or PORTS[given.tls], implicit)
        if given.tls == "starttls":
            server.starttls(context=self._context())
        if given.user is not None and self._password is not None:
            server.login(given.user, self._password.reveal())
        refused = server.send_message(message, self._sender, self._to)
        for address, (code, _) in refused.items():
            log.warning("querypulse: %s refused the recipient %s: %d", self._place, address, code)
        server.leave()

    def _context(self) -> ssl.SSLContext:
        # The authorities that all other receivers trust.
        return ssl.create_default_context(cafile=self._ca_file or DEFAULT_CA_BUNDLE_PATH)

    def _failure(self, error: Exception, *, has_data: bool = False) -> DeliveryError:
        text, outcome = diagnose_smtp(error)
        # A server that answers has not accepted the message (RFC 5321, 4.2.5).
        answered = isinstance(error, smtplib.SMTPResponseException) and error.smtp_code > 0
        return DeliveryError(
            f"{self._place} {text}", outcome, may_have_arrived=has_data and not answered
        )


def _address(setting: str, text: str) -> str:
    """The bare address in ``Name <address>``; exactly one, in ASCII."""
    found = [address for _, address in getaddresses([text])]
    bare = found[0] if len(found) == 1 else ""
    name, domain = bare.rpartition("@")[::2]
    odd = bare not in text or not bare.isascii() or not text.isprintable()
    if not name or not domain or odd or any(one in bare for one in " ,;<>") or ";" in text:
        raise ValueError(f"{setting} must be one e-mail address in ASCII (given: {text!r})")
    return bare


def _place(given: EmailSettings) -> str:
    host = f"[{given.host}]" if ":" in given.host else given.host
    return f"smtp://{host}:{given.port or PORTS[given.tls]}"


def make(given: EmailSettings, context: ReceiverContext) -> Email:
    """Make an e-mail receiver from its settings."""
    has_password = given.password is not None or given.password_file is not None
    if given.password is not None and given.password_file is not None:
        raise ValueError("give 'password' or 'password_file', not both")
    if has_password != (given.user is not None):
        raise ValueError("'user' and 'password' or 'password_file' go together")
    password = context.secret("password") if has_password else None
    return Email(given, password, context.http.ca_file, context.external_url)


def urls(given: EmailSettings) -> Sequence[str]:
    """The server."""
    return (_place(given),)


TYPE = ReceiverType(EmailSettings, make, urls=urls)
