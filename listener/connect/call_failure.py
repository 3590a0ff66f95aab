"""What a failed call to a Spark Connect server means. Pure."""

from __future__ import annotations

from enum import Enum

_SESSION_CLOSED = ("INVALID_HANDLE.SESSION_CLOSED",)
_SESSION_LOST = (
    "INVALID_HANDLE.SESSION_CHANGED",
    "INVALID_HANDLE.SESSION_NOT_FOUND",
)
_UNREACHABLE = frozenset({"UNAVAILABLE", "CANCELLED", "UNAUTHENTICATED", "PERMISSION_DENIED"})


class CallFailure(str, Enum):
    """Why a call has no answer."""

    REFUSED = "refused"
    """The server's machine answers, and nothing listens on the port."""
    UNREACHABLE = "unreachable"
    """The connection is cut, or the server refuses to talk to us."""
    LATE = "late"
    """The call's deadline has passed."""
    SESSION_CLOSED = "session_closed"
    """The session was released, or it expired."""
    SESSION_LOST = "session_lost"
    """The server does not know the session: it has started again."""
    REJECTED = "rejected"
    """The server answers, but not to this call."""

    @property
    def is_of_connection(self) -> bool:
        """Whether no call would be answered now, as far as is known."""
        return self is not CallFailure.REJECTED


def failure_of(code: str, details: str) -> CallFailure:
    """Classify a gRPC status by its code's name and its details.

    Spark names its error class in the details: ``[INVALID_HANDLE.SESSION_CLOSED] The handle ...``.
    """
    if any(name in details for name in _SESSION_CLOSED):
        return CallFailure.SESSION_CLOSED
    if any(name in details for name in _SESSION_LOST):
        return CallFailure.SESSION_LOST
    if code == "DEADLINE_EXCEEDED":
        return CallFailure.LATE
    if code == "UNAVAILABLE" and "Connection refused" in details:
        return CallFailure.REFUSED
    return CallFailure.UNREACHABLE if code in _UNREACHABLE else CallFailure.REJECTED


class ConnectCallError(Exception):
    """The server answers with an error; the message is in one line."""


class ServerSilentError(ConnectionError):
    """No call is answered now; ``failure`` says why."""

    def __init__(self, failure: CallFailure, details: str = "") -> None:
        super().__init__(f"the Spark Connect server does not answer ({failure.value}): {details}")
        self.failure = failure
