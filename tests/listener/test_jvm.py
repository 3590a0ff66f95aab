"""A JVM that has ended is reported; one that merely does not answer is not."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
from contextlib import closing, contextmanager
from types import SimpleNamespace

import pytest
from py4j.protocol import Py4JJavaError

from querypulse.listener.source_polls import SourceError
from querypulse.listener.spark import jvm
from querypulse.listener.spark.jvm import (
    UnsupportedSparkError,
    is_gone,
    java_errors,
    private_field,
    require_supported,
    was_terminated,
)

LOOPBACK = "127.0.0.1"


@contextmanager
def port(*, listening, backlog=5):
    """A port that accepts connections, or one that is bound and refuses them."""
    with closing(socket.socket()) as taken:
        taken.bind((LOOPBACK, 0))
        if listening:
            taken.listen(backlog)
        yield taken.getsockname()[1]


@contextmanager
def child(*, alive):
    """A child process of this one."""
    process = subprocess.Popen(
        [sys.executable, "-Ic", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE
    )
    try:
        if not alive:
            process.kill()
            # Not reaped: ``is_gone`` must find out that the process has ended.
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        yield process
    finally:
        process.kill()
        process.communicate()


def gateway(port, **process):
    return SimpleNamespace(
        gateway_parameters=SimpleNamespace(address=LOOPBACK, port=port), **process
    )


@pytest.mark.parametrize(
    ("listening", "process", "gone"),
    [
        # Another process may use the port by now.
        (True, "ended", True),
        (True, "alive", False),
        # Spark's launcher may outlive the JVM that it started.
        (False, "alive", True),
        (False, "unknown", True),
        (True, "unknown", False),
        (False, "none", True),
        (True, "none", False),
    ],
)
def test_jvm_is_gone_when_its_process_ended_or_its_port_refuses(listening, process, gone):
    with port(listening=listening) as number, child(alive=process == "alive") as started:
        process_of = {"unknown": {}, "none": {"proc": None}}.get(process, {"proc": started})
        assert is_gone(gateway(number, **process_of)) is gone


def test_jvm_that_accepts_no_connection_is_slow_and_not_gone(monkeypatch):
    """In a long garbage collection, for example, the backlog is full and connects time out."""
    monkeypatch.setattr(jvm, "CONNECT_SECONDS", 0.05)
    with port(listening=True, backlog=0) as number:
        assert [is_gone(gateway(number)) for _ in range(5)] == [False] * 5


@pytest.mark.parametrize(
    "error",
    [
        TimeoutError(),
        OSError(errno.ENETUNREACH, "unreachable"),
        OSError(errno.EMFILE, "too many open files"),
        ConnectionResetError(),
    ],
)
def test_other_connection_errors_prove_nothing(monkeypatch, error):
    def refuse(*_):
        raise error

    monkeypatch.setattr(socket, "create_connection", refuse)

    assert not is_gone(gateway(1))


@pytest.mark.parametrize(
    ("code", "terminated"),
    [
        # Its shutdown hooks ran.
        (128 + signal.SIGTERM, True),
        (128 + signal.SIGINT, True),
        # It had not installed its handlers yet.
        (-signal.SIGTERM, True),
        (-signal.SIGKILL, False),
        (128 + signal.SIGKILL, False),
        (0, False),
        (1, False),
        (None, False),
    ],
)
def test_exit_code_of_a_jvm_shows_that_a_signal_ended_it(code, terminated):
    process = SimpleNamespace(poll=lambda: code)

    assert was_terminated(gateway(1, proc=process)) is terminated


@pytest.mark.parametrize("process", [{}, {"proc": None}])
def test_nobody_knows_the_exit_code_of_a_jvm_that_started_python(process):
    assert not was_terminated(gateway(1, **process))


@pytest.mark.parametrize("version", ["3.4.1", "3.4.1-amzn-2", "2.4.8", "3.0.0.dev0"])
def test_older_spark_is_refused_in_one_sentence(version):
    with pytest.raises(UnsupportedSparkError) as refused:
        require_supported(version)

    assert str(refused.value) == f"Spark {version} is too old: querypulse needs 3.5 or newer"


def test_supported_or_unknown_version_is_accepted():
    for version in ("3.5.0", "3.5.9-amzn-0", "4.0.0-preview1", "4.3.0", "10.1", "15.4.x-scala2.12"):
        require_supported(version)
    for unknown in ("next", ""):
        require_supported(unknown)


def test_missing_field_of_a_version_is_a_refusal_and_an_error_of_ours_is_not():
    class CachingCatalog:
        """A Java object without fields, as Py4J shows it."""

        def getClass(self):
            return SimpleNamespace(
                getDeclaredField=refuse,
                getSuperclass=lambda: None,
                getName=lambda: "CachingCatalog",
            )

    def refuse(name):
        raise Py4JJavaError("no such field", SimpleNamespace(_target_id="o1", _gateway_client=None))

    with (
        pytest.raises(SourceError, match="CachingCatalog has no catalog"),
        java_errors(SourceError),
    ):
        private_field(CachingCatalog(), "catalog")
    with pytest.raises(KeyError), java_errors(SourceError):
        {}["a"]
