"""A connection to an SMTP server whose whole dialogue has one deadline."""

from __future__ import annotations

import smtplib
import socket
import ssl
from typing import Any

from ...core.socket_deadline import SocketDeadline

STEP_SECONDS = 5.0
READY = 220
"""The server's greeting (RFC 5321, 4.2.3)."""
GO_AHEAD = 354
"""The server waits for the message."""
PIECE_BYTES = 16 * 1024
"""A TLS record: the limit of a whole SSL socket counts for each."""


class SmtpConnection(SocketDeadline, smtplib.SMTP):
    """``smtplib`` with a deadline; another thread may ``cut`` it."""

    def __init__(self, deadline: float) -> None:
        SocketDeadline.__init__(self)
        # Without a name, smtplib asks DNS for one, which may take longer than the deadline.
        smtplib.SMTP.__init__(self, local_hostname=_own_name(), timeout=STEP_SECONDS)
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

    def starttls(self, *args: Any, **kwargs: Any) -> tuple[int, bytes]:
        """Switch to TLS within the time that is left."""
        if self.sock is not None:
            self.limit(self.sock)
        answer = super().starttls(*args, **kwargs)
        # The old socket object is detached.
        self._socket = self.sock
        return answer

    def send(self, s: Any) -> None:
        """Send within the time that is left."""
        data = s.encode(self.command_encoding) if isinstance(s, str) else s
        for start in range(0, len(data), PIECE_BYTES):
            if self.sock is not None:
                self.limit(self.sock)
            super().send(data[start : start + PIECE_BYTES])

    def getreply(self) -> tuple[int, bytes]:
        """Read an answer within the time that is left."""
        if self.file is None and self.sock is not None:
            self.file = self.reader(self.sock)
        code, text = super().getreply()
        self.has_data = self.has_data or code == GO_AHEAD
        return code, text

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        made = self.connect_within(host, port, timeout)
        if self._tls is None:
            return made
        return self.secured(made, self._tls, host)


def _own_name() -> str:
    name = socket.gethostname()
    return name if "." in name and name.isascii() else "[127.0.0.1]"
