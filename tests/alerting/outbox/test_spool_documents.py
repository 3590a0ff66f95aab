"""Spool documents that are well-formed, and that we have not written so."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path

import msgspec
import pytest
from support.deliveries import Recorder, over
from support.patience import PATIENCE_SECONDS
from support.spooling import entry
from support.worker_harness import WALL, WorkerHarness

from querypulse.alerting.delivery.deliveries import Delivery, Notifier
from querypulse.alerting.delivery.outbox import Known
from querypulse.alerting.delivery.spool import FailureHistory, Kept, SpoolFile
from querypulse.alerting.incidents.lifecycle import Opened
from querypulse.alerting.silences import end_text
from querypulse.core.guard import Guard
from querypulse.core.threads import Deadline
from querypulse.listener.past_failures import FailedQuery, mark_of
from querypulse.listener.state.history import RunFailure
from querypulse.listener.state.positions import Cause, Gap, LastRead, Position
from querypulse.listener.state.snapshot import DriverAttempt

GAP = Gap("id t/0", 5, 9, Cause.SKIPPED, WALL)
READ = LastRead(WALL, {"id t/0": Position(9, 2, "topic")}, (GAP,), WALL, systems={0: "hash"})
FAILED = FailedQuery(
    "id-a",
    mark_of("a"),
    (RunFailure(WALL, 7, "ValueError"),),
    1,
    WALL,
    msgspec.structs.replace(READ, earlier=READ),
    "folder",
)
ENDED = msgspec.structs.replace(entry(2), incident=over(entry(2).incident, WALL + 1))
DOCUMENT = json.loads(
    msgspec.json.encode(
        Kept(
            rows={"pager": (entry(1, Known.FIRING), ENDED)},
            failures=(FAILED,),
            opened=(Opened("StreamingQueryFailed", "a", (WALL, WALL + 9.5)),),
            attempt=DriverAttempt("application_1_0001", 1, "host n7"),
        )
    )
)
HUGE = json.loads("1" + "0" * 30)
WRONG = ["", "x", [], {}, None, -5, -0.5, 0, HUGE, 1e300, float("nan"), float("inf"), True, [{}]]
WRONG_AS_TIME = [-5, HUGE, 1e300, 1e13]
"""Numbers, which a float accepts."""


def places(value, path=()):
    """The path of every part of a document."""
    parts = value.items() if isinstance(value, dict) else enumerate(value)
    for key, part in parts:
        yield (*path, key)
        if isinstance(part, (dict, list)):
            yield from places(part, (*path, key))


def changed(path, *wrong):
    """The document with another value at this place, or without it."""
    result = deepcopy(DOCUMENT)
    parent = result
    for key in path[:-1]:
        parent = parent[key]
    if wrong:
        parent[path[-1]] = wrong[0]
    else:
        del parent[path[-1]]
    return result


def at(path):
    value = DOCUMENT
    for key in path:
        value = value[key]
    return value


PLACES = {".".join(map(str, path)): path for path in places(DOCUMENT)}
TIMES = {
    name: path for name, path in PLACES.items() if isinstance(at(path), float) and at(path) >= WALL
}


@pytest.fixture
def read(tmp_path, caplog):
    """What a process reads that finds this document."""
    file = SpoolFile(tmp_path, "etl")
    file.take()

    def read_document(document):
        caplog.clear()
        Path(file.place).write_text(json.dumps(document))
        kept = file.read(WALL)
        logged = [record.levelname for record in caplog.records]
        asides = list(tmp_path.glob("*.corrupt-*"))
        assert (logged, len(asides)) == ((["WARNING"], 1) if kept is None else ([], 0))
        for aside in asides:
            aside.unlink()
        return kept

    yield read_document
    file.close()


class Found:
    """A spool that holds what was read."""

    problem = ""
    is_taken = False
    attempt = DriverAttempt("application_1_0001", 2)

    def __init__(self, kept):
        self.kept = kept

    def load(self, _timeout):
        return self.kept

    def offer_rows(self, _receiver, _rows):
        pass

    offer_history = offer_rows

    def offer_end(self, *, is_expected):
        pass

    def flush(self, _timeout):
        return True

    def write_ahead(self):
        pass

    def close(self, _timeout):
        pass


def goes_on(kept):
    """A process evaluates and hands over three times with what was left; nothing may raise."""
    harness = WorkerHarness(FailureHistory(Found(None)))
    lifecycle = harness.worker._lifecycle
    delivery = Delivery(Recorder(), Guard(), wall=lambda: WALL)
    notifier = Notifier(
        [delivery],
        Found(kept),
        restore=lambda incidents: lifecycle.restore(incidents, harness.clock()),
        wall=lambda: WALL,
    )
    notifier._load(0.0)
    harness.worker._failure_history.left = kept
    for _ in range(3):
        harness.started().step()
        notifier.offer(harness.offers[-1])
    for incident in harness.offers[-1]:
        end_text(incident.starts_at)
        msgspec.json.encode(incident)
    notifier.close(Deadline(PATIENCE_SECONDS))
    assert harness.errors == []


def test_document_as_we_write_it_is_read(read):
    kept = read(DOCUMENT)
    assert (len(kept.rows["pager"]), kept.failures) == (2, (FAILED,))


@pytest.mark.parametrize("path", PLACES.values(), ids=PLACES)
def test_document_with_a_wrong_part_is_put_aside_or_harmless(read, path):
    for document in (changed(path), *(changed(path, wrong) for wrong in WRONG)):
        kept = read(document)
        if kept is not None:
            goes_on(kept)


@pytest.mark.parametrize("path", TIMES.values(), ids=TIMES)
@pytest.mark.parametrize("wrong", WRONG_AS_TIME)
def test_time_that_no_calendar_has_puts_the_document_aside(read, path, wrong):
    assert read(changed(path, wrong)) is None
