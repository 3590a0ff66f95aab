"""A real SMTP server (aiosmtpd) on loopback: STARTTLS, login, and refusals of every kind."""

from __future__ import annotations

import asyncio
import email
import email.policy
import ssl
import threading
from collections.abc import Callable
from email.message import EmailMessage

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

USER, PASSWORD = "pulse@example.com", "s3cr3t-word"


class MailServer(Controller):
    """Keeps accepted messages in ``messages``; ``refusals`` maps commands to answers.

    ``arrived`` is set when a text has come. Without ``answers``, it is never answered.
    """

    def __init__(
        self,
        tls: ssl.SSLContext | None = None,
        *,
        login: bool = False,
        login_without_tls: bool = False,
        implicit: bool = False,
    ) -> None:
        self.messages: list[EmailMessage] = []
        self.recipients: list[list[str]] = []
        self.refusals: dict[str, str | Callable[[str], str]] = {}
        self.answers = True
        self.arrived = threading.Event()
        self.logins: list[str] = []
        options = {"tls_context": tls, "require_starttls": True} if tls and not implicit else {}
        if implicit:
            options |= {"ssl_context": tls}
        if login:
            required = not login_without_tls
            options |= {"authenticator": self._login, "auth_required": True}
            options |= {"auth_require_tls": required}
        super().__init__(self, hostname="127.0.0.1", port=0, server_hostname="mail.test", **options)

    def __enter__(self) -> MailServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _trigger_server(self) -> None:
        """Learn the free port that was chosen, then connect once, as aiosmtpd does."""
        self.port = self.server.sockets[0].getsockname()[1]
        super()._trigger_server()

    def _login(
        self,
        server: SMTP,
        session: Session,
        envelope: Envelope,
        mechanism: str,
        data: LoginPassword,
    ) -> AuthResult:
        self.logins.append(data.login.decode())
        right = (data.login.decode(), data.password.decode()) == (USER, PASSWORD)
        return AuthResult(success=right, handled=False)

    async def handle_RCPT(
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        answer = self.refusals.get("RCPT")
        text = answer(address) if callable(answer) else answer
        if text:
            return text
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        self.arrived.set()
        if not self.answers:
            await asyncio.Event().wait()
        answer = self.refusals.get("DATA")
        if callable(answer):
            answer = answer((envelope.content or b"").decode())
        if answer:
            return answer
        parsed = email.message_from_bytes(envelope.content or b"", policy=email.policy.default)
        self.messages.append(parsed)
        self.recipients.append(list(envelope.rcpt_tos))
        return "250 OK"
