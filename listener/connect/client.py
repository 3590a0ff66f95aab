"""A connection of our own to the server of a job's Spark Connect session.

It uses the job's session id, user and credentials, and nothing else of the job's client: PySpark's
calls retry for ten minutes, log, and start threads that outlive the program. Each call here has a
deadline and is not repeated.
"""

from __future__ import annotations

import copy
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from enum import Enum
from typing import Any, TypeVar

_SESSION_LOST = ("INVALID_HANDLE.SESSION_CHANGED", "INVALID_HANDLE.SESSION_NOT_FOUND")
_UNREACHABLE = frozenset(
    {"UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED", "UNAUTHENTICATED", "PERMISSION_DENIED"}
)


class CallFailure(str, Enum):
    """Why a call has no answer."""

    REFUSED = "refused"
    """The server's machine answers, and nothing listens on the port."""
    UNREACHABLE = "unreachable"
    """The connection is cut, the deadline has passed, or the server refuses to talk to us."""
    SESSION_CLOSED = "session_closed"
    """The session was released, or it expired."""
    SESSION_LOST = "session_lost"
    """The server does not know the session: it has started again, or it is another server."""
    REJECTED = "rejected"
    """The server answers, but not to this call."""

    @property
    def ends_session(self) -> bool:
        """Whether no later call in the session can be answered."""
        return self in (CallFailure.SESSION_CLOSED, CallFailure.SESSION_LOST)


def failure_of(code: str, details: str) -> CallFailure:
    """Classify a gRPC status by its code's name and its details.

    Spark names its error class in the details: ``[INVALID_HANDLE.SESSION_CLOSED] The handle ...``.
    """
    if "INVALID_HANDLE.SESSION_CLOSED" in details:
        return CallFailure.SESSION_CLOSED
    if any(name in details for name in _SESSION_LOST):
        return CallFailure.SESSION_LOST
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


T = TypeVar("T")

CALL_SECONDS = 5.0
ATTACH_SECONDS = 10.0
"""A new session's first call makes the server load classes."""
_CHANNEL_OPTIONS = (
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 2000),
)


class ConnectClient:
    """Calls for one session; any thread may use it.

    Raises:
        ServerSilentError: from each call: no answer before the deadline.
        ConnectCallError: from each call: the server refuses it.

    """

    def __init__(self, spark: Any) -> None:
        import grpc
        import pyspark.sql.connect.proto as pb2
        from pyspark.sql.connect.proto.base_pb2_grpc import SparkConnectServiceStub

        job = spark.client
        # The private names are the same in PySpark 3.5 to 4.3.
        builder = copy.copy(job._builder)  # noqa: SLF001 - how the job reaches its server
        builder._channel_options = [*builder._channel_options, *_CHANNEL_OPTIONS]  # noqa: SLF001
        self.pb2: Any = pb2
        self.session_id: str = job._session_id  # noqa: SLF001 - public only from 4.0
        self._user: str = job._user_id or ""  # noqa: SLF001 - no public way
        self._server_session: str = getattr(job, "_server_session_id", None) or ""
        self._agent: str = builder.userAgent
        self._builder: Any = job._builder  # noqa: SLF001 - asked for the headers of each request
        self._error: Any = grpc.RpcError
        self._channel = builder.toChannel()
        make_stub: Any = SparkConnectServiceStub
        self._stub: Any = make_stub(self._channel)

    @property
    def has_server_session(self) -> bool:
        """Whether the server refuses the session after it has lost it (from Spark 4.0 on)."""
        return bool(self._server_session)

    def query(self, run: tuple[str, str], **what: object) -> Any:
        """The answer to a ``StreamingQueryCommand`` about one run: ``(query id, run id)``."""
        command = self.pb2.Command()
        asked = command.streaming_query_command
        asked.query_id.id, asked.query_id.run_id = run
        for name, value in what.items():
            setattr(asked, name, value)
        return self._result(command, "streaming_query_command_result")

    def active(self) -> list[Any]:
        """The active queries of the session, with ``id`` and ``name``."""
        command = self.pb2.Command()
        command.streaming_query_manager_command.active = True
        answer = self._result(command, "streaming_query_manager_command_result")
        return list(answer.active.active_queries)

    def version(self) -> str:
        """The server's Spark version."""
        request = self._identified(self.pb2.AnalyzePlanRequest())
        request.spark_version.SetInParent()
        answer = self._unary(self._stub.AnalyzePlan, request)
        return str(answer.spark_version.version)

    def conf(self, prefix: str) -> dict[str, str]:
        """The entries of the session's conf whose names begin with ``prefix``."""
        request = self._identified(self.pb2.ConfigRequest())
        request.operation.get_all.prefix = prefix
        pairs = self._unary(self._stub.Config, request).pairs
        return {prefix + pair.key: pair.value for pair in pairs if pair.HasField("value")}

    def close(self) -> None:
        """Close the connection; calls that still wait end at once."""
        self._channel.close()

    def _result(self, command: Any, kind: str) -> Any:
        request = self._identified(self.pb2.ExecutePlanRequest(operation_id=str(uuid.uuid4())))
        request.plan.command.CopyFrom(command)
        method = self._stub.ExecutePlan
        options = {"timeout": CALL_SECONDS}
        responses = self._call(lambda: list(method(request, metadata=self._metadata(), **options)))
        self._note_server(responses)
        for response in responses:
            if response.HasField(kind):
                return getattr(response, kind)
        raise ConnectCallError(f"the answer has no {kind}")

    def _identified(self, request: Any) -> Any:
        request.session_id = self.session_id
        request.client_type = self._agent
        request.user_context.user_id = self._user
        if self._server_session:
            # A server that has started again refuses it, instead of making a new session.
            request.client_observed_server_side_session_id = self._server_session
        return request

    def _unary(self, method: Any, request: Any) -> Any:
        options = {"timeout": ATTACH_SECONDS, "wait_for_ready": True}
        answer = self._call(lambda: method(request, metadata=self._metadata(), **options))
        self._note_server([answer])
        return answer

    def _metadata(self) -> list[tuple[str, str]]:
        """The headers of one request; the job's builder may have a new token each time."""
        try:
            return list(self._builder.metadata())
        except Exception as error:
            raise ServerSilentError(CallFailure.UNREACHABLE, f"metadata: {error}"[:300]) from error

    def _note_server(self, responses: Iterable[Any]) -> None:
        for response in responses:
            # Spark 3.5 does not say which server it is.
            server = getattr(response, "server_side_session_id", "")
            self._server_session = self._server_session or server

    def _call(self, action: Callable[[], T]) -> T:
        try:
            return action()
        except self._error as error:
            details = " ".join((error.details() or "").split())
            failure = failure_of(error.code().name, details)
            if failure is CallFailure.REJECTED:
                raise ConnectCallError(details[:300]) from error
            raise ServerSilentError(failure, details[:300]) from error
        except ValueError as error:
            # gRPC raises it for a closed channel.
            raise ServerSilentError(CallFailure.UNREACHABLE, str(error)) from error


def conf_of(spark: Any, prefix: str) -> Mapping[str, str]:
    """The entries of a session's conf, over a connection of their own."""
    with closing(ConnectClient(spark)) as client:
        return client.conf(prefix)
