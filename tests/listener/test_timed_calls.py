"""A table or folder whose storage hangs holds up no other source."""

from __future__ import annotations

import threading

import pytest
from support.patience import PATIENCE_SECONDS, until

from querypulse.core.threads import TimedCalls
from querypulse.listener.source_polls import SourceError, SourcePoll, SourceSilentError
from querypulse.listener.sources.reader import TimedSource

AT_ONCE = 0.05


class Table:
    """Answers with the number of calls; waits until the test opens ``gate``."""

    def __init__(self, *, hangs=False) -> None:
        self.address = "hanging" if hangs else "answering"
        self.gate = threading.Event()
        self.threads = []
        self.error = None
        self.closed = False
        if not hangs:
            self.gate.set()

    def poll(self):
        self.threads.append(threading.current_thread())
        assert self.gate.wait(PATIENCE_SECONDS)
        if self.error is not None:
            raise self.error
        return SourcePoll(self.address, {"": len(self.threads)}, {}, {})

    def close(self):
        self.closed = True


@pytest.fixture
def calls():
    calls = TimedCalls("sources")
    yield calls
    calls.close()


def timed(table, calls):
    limit = PATIENCE_SECONDS if table.gate.is_set() else AT_ONCE
    return TimedSource(table, calls, limit)


def test_polls_of_all_tables_share_a_thread(calls):
    tables = [Table(), Table()]
    sources = [timed(table, calls) for table in tables]
    polls = [source.poll().committed for source in (*sources, *sources)]

    assert polls == [{"": 1}, {"": 1}, {"": 2}, {"": 2}]
    (thread,) = {thread for table in tables for thread in table.threads}
    assert thread.daemon
    calls.close()
    until(lambda: not thread.is_alive(), "the thread ends")


def test_hanging_table_is_called_once_and_others_are_polled_meanwhile(calls):
    hanging, answering = Table(hangs=True), Table()
    silent, other = timed(hanging, calls), timed(answering, calls)
    for number in (1, 2, 3):
        with pytest.raises(SourceSilentError, match="hanging has not answered for"):
            silent.poll()
        assert other.poll().committed == {"": number}
    assert len(hanging.threads) == 1
    assert len(set(answering.threads)) == 1

    hanging.gate.set()
    until(lambda: not hanging.threads[0].is_alive(), "the late call returns")
    assert silent.poll().committed == {"": 1}
    silent.close()
    assert hanging.closed


def test_error_of_a_table_is_raised_where_it_is_polled(calls):
    table = Table()
    table.error = SourceError("no permission")
    with pytest.raises(SourceError, match="no permission"):
        timed(table, calls).poll()
