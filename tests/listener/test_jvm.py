"""A JVM that has ended is reported; one that merely does not answer is not."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
from contextlib import closing, contextmanager
from types import SimpleNamespace

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError
from support.clock import Clock

from querypulse.listener.probe import Context, ProbeReport
from querypulse.listener.spark import jvm
from querypulse.listener.spark.jvm import (
    NETWORK_ERRORS,
    ProbeOfLivingJvm,
    UnsupportedSparkError,
    has_execution_context,
    is_gone,
    require_supported,
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


# -- is_gone --------------------------------------------------------------------------------------


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
        known = {"unknown": {}, "none": {"proc": None}}.get(process, {"proc": started})
        assert is_gone(gateway(number, **known)) is gone


def test_jvm_that_accepts_no_connection_is_slow_and_not_gone(monkeypatch):
    """In a long garbage collection, for example, the backlog is full and connects time out."""
    monkeypatch.setattr(jvm, "CONNECT_SECONDS", 0.05)
    with port(listening=True, backlog=0) as number:
        assert [is_gone(gateway(number)) for _ in range(5)] == [False] * 5


@pytest.mark.parametrize("error", [TimeoutError(), OSError(errno.ENETUNREACH, "unreachable"), OSError(errno.EMFILE, "too many open files"), ConnectionResetError()])  # fmt: skip
def test_other_connection_errors_prove_nothing(monkeypatch, error):
    def refuse(*_):
        raise error

    monkeypatch.setattr(socket, "create_connection", refuse)

    assert not is_gone(gateway(1))


# -- reports of the probe -------------------------------------------------------------------------


class AnsweringProbe:
    """Returns the given report, or raises the given error."""

    def __init__(self, answer):
        self.answer = answer

    def poll(self, clock):
        clock.now += 2.0
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def poll(answer, *, gone=False, context=Context.RUNNING):
    """One poll on a clock that starts at 100 s; ``context`` may be an error."""

    def ask():
        if isinstance(context, Exception):
            raise context
        return context

    return ProbeOfLivingJvm(AnsweringProbe(answer), lambda: gone, ask).poll(Clock(100.0))


def test_report_of_the_probe_is_passed_on():
    report = ProbeReport(1.0, 2.0, runs=())

    assert poll(report, gone=True) is report


@pytest.mark.parametrize("lost", NETWORK_ERRORS)
def test_end_of_the_jvm_is_a_report(lost):
    report = poll(lost("no answer"), gone=True, context=lost("no answer"))

    assert report == ProbeReport(100.0, 102.0, runs=(), context=Context.JVM_GONE)


def test_ended_jvm_is_not_polled_again():
    clock, gone = Clock(100.0), iter([True])
    living = ProbeOfLivingJvm(
        AnsweringProbe(Py4JNetworkError()), lambda: next(gone), lambda: Context.JVM_GONE
    )
    reports = [living.poll(clock) for _ in range(2)]

    assert reports == [
        ProbeReport(100.0, 102.0, runs=(), context=Context.JVM_GONE),
        ProbeReport(102.0, 102.0, runs=(), context=Context.JVM_GONE),
    ]
    assert living.ended


@pytest.mark.parametrize("lost", NETWORK_ERRORS)
def test_unresponsive_jvm_gives_no_report(lost):
    with pytest.raises(lost, match="no answer"):
        poll(lost("no answer"), gone=False)


STOPPED, TERMINATED = Context.STOPPED_BY_APPLICATION, Context.TERMINATED


@pytest.mark.parametrize(
    ("seen", "asked", "announced", "end"),
    [
        (Context.RUNNING, STOPPED, False, STOPPED),
        (Context.RUNNING, Context.RUNNING, True, TERMINATED),
        (TERMINATED, Context.RUNNING, False, TERMINATED),
        (TERMINATED, STOPPED, True, STOPPED),
        (Context.RUNNING, Context.RUNNING, False, Context.JVM_GONE),
    ],
    ids=["stopped", "a signal was announced", "a poll saw a signal", "both", "neither"],
)
def test_end_of_the_jvm_is_what_was_seen_of_it_before(seen, asked, announced, end):
    probe = AnsweringProbe(ProbeReport(1.0, 2.0, runs=(), context=seen))
    living = ProbeOfLivingJvm(probe, lambda: True, lambda: asked, lambda: announced)
    living.poll(Clock(100.0))
    probe.answer = Py4JNetworkError()

    assert living.poll(Clock(100.0)).context is end


@pytest.mark.parametrize("error", [Py4JError("refused"), RuntimeError("the probe was released")])
def test_error_other_than_a_lost_connection_does_not_check_the_jvm(error):
    def unexpected():
        raise AssertionError

    with pytest.raises(type(error), match=str(error)):
        ProbeOfLivingJvm(AnsweringProbe(error), unexpected, unexpected).poll(Clock())


# -- versions -------------------------------------------------------------------------------------


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


def test_only_a_known_version_before_4_has_no_execution_context():
    older = ["3.5.9", "3.5.0-amzn-1", "v3.5.1", "3"]
    others = ["4.0.0", "v4.0.0", "10.1", "dbr-16.4", "dbr-3", "next", ""]

    assert [version for version in older + others if not has_execution_context(version)] == older
