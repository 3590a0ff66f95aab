"""A connection to an SMTP server whose whole dialogue has one deadline."""

from __future__ import annotations

import smtplib
import socket
import ssl
from typing import Any

from .socket_deadline import SocketDeadline

STEP_SECONDS = 5.0
READY = 220
"""The server's greeting (RFC 5321, 4.2.3)."""


class SmtpConnection(SocketDeadline, smtplib.SMTP):
    """``smtplib`` with a deadline; another thread may ``cut`` it."""

    def __init__(self, deadline: float) -> None:
        SocketDeadline.__init__(self)
        smtplib.SMTP.__init__(self, timeout=STEP_SECONDS)
        self.deadline = deadline
        self.has_data = False
        """Whether the message was sent, at least in part."""
        self._tls: ssl.SSLContext | None = None

    def connect_to(self, host: str, port: int, tls: ssl.SSLContext | None) -> None:
        """Connect, with TLS from the start if a context is given."""
        self._tls = tls
        # The name that a certificate must be for; smtplib sets it only in its own constructor.
        self._host = host
        code, answer = self.connect(host, port)
        if code != READY:
            raise smtplib.SMTPConnectError(code, answer)

    def leave(self) -> None:
        """Say goodbye; the message has been accepted, so nothing that happens now matters."""
        try:
            self.quit()
        except (smtplib.SMTPException, OSError):
            return

    def send(self, s: Any) -> None:
        """Send within the time that is left."""
        if self.sock is not None:
            self.limit(self.sock)
        super().send(s)

    def getreply(self) -> tuple[int, bytes]:
        """Read an answer within the time that is left."""
        if self.file is None and self.sock is not None:
            self.file = self.reader(self.sock)
        return super().getreply()

    def data(self, msg: Any) -> tuple[int, bytes]:
        """Send the message; from now on it may have arrived."""
        self.has_data = True
        return super().data(msg)

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        left = max(0.001, min(timeout, self.seconds_left()))
        made = socket.create_connection((host, port), left)
        return made if self._tls is None else self._tls.wrap_socket(made, server_hostname=host)
