"""A table or folder whose storage hangs holds up no other source."""

from __future__ import annotations

import threading

import pytest
from support.patience import PATIENCE_SECONDS, until

from querypulse.core.threads import TimedCalls
from querypulse.listener.source_polls import (
    SourceError,
    SourcePoll,
    SourceSilentError,
    StoreSilentError,
)
from querypulse.listener.sources.reader import TimedSource
from querypulse.listener.stores import store_of

AT_ONCE = 0.05


class Table:
    """Answers with the number of calls; waits until the test opens ``gate``."""

    def __init__(self, *, hangs=False, address="") -> None:
        self.address = address or ("hanging" if hangs else "answering")
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
    return TimedSource(table, calls, store_of(table.address), limit)


def test_polls_of_all_tables_share_a_thread(calls):
    tables = [Table(), Table()]
    sources = [timed(table, calls) for table in tables]
    polls = [source.poll().committed for source in (*sources, *sources)]

    assert polls == [{"": 1}, {"": 1}, {"": 2}, {"": 2}]
    (thread,) = {thread for table in tables for thread in table.threads}
    assert thread.daemon
    calls.close()
    assert not thread.is_alive()


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


def test_hundred_folders_of_a_store_that_hangs_cost_one_wait_and_one_thread(calls):
    """And no table there is called, until the one call has returned."""
    folders = [Table(hangs=True, address=f"hdfs://dead/in{number}") for number in range(100)]
    there, elsewhere = Table(address="DeltaSource[hdfs://dead/t]"), Table(address="hdfs://nn/in")
    polled = [timed(folder, calls) for folder in folders]
    with pytest.raises(SourceSilentError, match="hdfs://dead/in0 has not answered for"):
        polled[0].poll()
    for source in (*polled[1:], timed(there, calls)):
        with pytest.raises(StoreSilentError, match="hdfs://dead does not answer"):
            source.poll()
    assert timed(elsewhere, calls).poll().committed == {"": 1}
    assert sum(len(folder.threads) for folder in folders) == 1
    assert not there.threads

    for folder in folders:
        folder.gate.set()
    until(lambda: not calls.is_held("hdfs://dead"), "the late call returns")
    again = [TimedSource(folder, calls, "hdfs://dead", PATIENCE_SECONDS) for folder in folders]
    assert [source.poll().committed for source in again] == [{"": 2}, *99 * [{"": 1}]]


def test_error_of_a_table_is_raised_where_it_is_polled(calls):
    table = Table()
    table.error = SourceError("no permission")
    with pytest.raises(SourceError, match="no permission"):
        timed(table, calls).poll()
