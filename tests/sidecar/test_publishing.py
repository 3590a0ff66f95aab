"""What readers see of an evaluation."""

from __future__ import annotations

from collections import Counter, deque
from types import SimpleNamespace

import pytest
from support.worker_harness import WorkerHarness

from querypulse.alerting.delivery.deliveries import Notifier
from querypulse.core.guard import Guard
from querypulse.recording.lines import SeenFrom
from querypulse.recording.recorder import About
from querypulse.settings.settings import Settings
from querypulse.sidecar.assemble import Components
from querypulse.sidecar.black_box import BlackBox
from querypulse.sidecar.preflight import Preflight, Surroundings
from querypulse.sidecar.publishing import Publishing

FROZEN_SECONDS = 900.0


@pytest.fixture
def harness():
    """A worker whose evaluations are published."""
    harness = WorkerHarness().started()
    nothing = SimpleNamespace(depth=0, drops={}, problems={})
    harness.publishing = Publishing(
        "etl",
        "4.1.0",
        Components(Settings(), Guard()),
        path=SimpleNamespace(name="bus_queue", source=nothing),
        listener=SimpleNamespace(callback_durations=deque(), refused=Counter()),
        observers=SimpleNamespace(reader=nothing, prober=SimpleNamespace(probe_durations=deque())),
        files=nothing,
        worker=harness.worker,
        notifier=Notifier(()),
        black_box=BlackBox(About(app="etl", seen_from=SeenFrom.DRIVER), Guard()),
        publishers=(),
        preflight=Preflight(Settings(), Surroundings(is_interactive=False, is_connect=False)),
    )
    harness.worker._on_evaluated = harness.publishing.publish
    return harness


@pytest.mark.parametrize("frozen", ["while it evaluates", "before it publishes"])
def test_published_times_are_those_of_the_snapshot_however_late_it_is_published(harness, frozen):
    def freeze(given):
        harness.clock.now += FROZEN_SECONDS
        return given

    if frozen == "while it evaluates":
        harness.redactor = freeze
    else:
        harness.offer = freeze
    harness.step()
    published = harness.publishing.newest
    of_snapshot = pytest.approx(harness.wall + published.snapshot.at, abs=0.01)

    assert harness.clock.now >= published.snapshot.at + FROZEN_SECONDS
    assert published.wall == of_snapshot
    assert published.monitor.heartbeat_timestamp == of_snapshot
