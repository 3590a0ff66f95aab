"""What a waiting run's triggers found is read now and then, and kept only while it stands."""

from __future__ import annotations

import pytest
from support.story import processing, progress, run

from querypulse.listener.idle_progress import READ_EVERY_SECONDS, IdleProgress

NOTHING_FOUND = progress(batch=3, committed=False)


class Reads:
    """What Spark would say of the newest trigger, and how often it was asked."""

    def __init__(self, found=NOTHING_FOUND):
        self.found = found
        self.count = 0

    def __call__(self):
        self.count += 1
        return self.found


@pytest.mark.parametrize("message", ["Waiting for data to arrive", "Waiting for next trigger"])
def test_a_waiting_run_is_asked_what_its_last_trigger_found(message):
    assert IdleProgress(Reads()).look(run(batch=3, message=message), 0) is NOTHING_FOUND


@pytest.mark.parametrize(
    "seen",
    [
        processing(batch=3),
        run(batch=3, busy=True),
        run(batch=3, message="Getting offsets from FileStreamSource[file:/in]", busy=True),
        run(batch=3, message="Initializing sources"),
        run(message="Running", trigger="ContinuousTrigger(1000)"),
        run(message="Committing epoch 5", trigger="ContinuousTrigger(1000)"),
        run(batch=3, message="Stopped"),
    ],
)
def test_a_run_that_does_not_wait_is_not_asked(seen):
    reads = Reads()

    assert IdleProgress(reads).look(seen, 0) is None
    assert reads.count == 0


def test_it_is_asked_every_few_seconds_at_most_and_known_in_between():
    reads = Reads()
    idle = IdleProgress(reads)

    known = [idle.look(run(batch=3), at / 10) for at in range(int(READ_EVERY_SECONDS * 10))]
    assert (set(map(id, known)), reads.count) == ({id(NOTHING_FOUND)}, 1)
    reads.found = None
    assert idle.look(run(batch=3), READ_EVERY_SECONDS) is None
    assert reads.count == 2


def test_a_short_look_for_data_forgets_nothing():
    reads = Reads()
    idle = IdleProgress(reads)
    idle.look(run(batch=3), 0)

    assert idle.look(run(batch=3, message="Getting offsets from X", busy=True), 0.5) is None
    assert idle.look(run(batch=3), 1) is NOTHING_FOUND
    assert reads.count == 1


def test_a_batch_ends_what_was_found_before_it():
    reads = Reads()
    idle = IdleProgress(reads)
    idle.look(run(batch=3), 0)
    idle.look(processing(batch=3), 0.5)
    reads.found = None

    assert idle.look(run(batch=4), 1) is None
    assert reads.count == 2
