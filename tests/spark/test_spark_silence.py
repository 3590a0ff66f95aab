"""Silences in a running driver, set with ``Sidecar.silence`` or in the silence file."""

from __future__ import annotations

import time

import pytest
from support.queries import Trap, commits, rate, start, until

from querypulse.alerting.alert import Silence
from querypulse.settings.silencing import add_silence, end_silences

pytestmark = [pytest.mark.spark, pytest.mark.thorough]

FAILED = "StreamingQueryFailed"


def test_silenced_failure_is_shown_and_pages_when_the_silence_ends(spark, watch, pages, tmp_path):
    now, path = time.time(), tmp_path / "silences"
    add_silence(path, Silence("quiet*", now + 3600, reason="backfill"), now)
    sidecar = watch(silence_file=str(path))
    sidecar.silence("muted*", minutes=60)
    traps = {name: Trap() for name in ("quiet_one", "muted_one", "loud_one")}
    for name, trap in traps.items():
        start(rate(spark), name, trap)
        commits(sidecar, name)
    for trap in traps.values():
        trap.die.set()

    def alerts():
        firing = {alert.labels["query"]: alert for alert in sidecar.alerts()}
        return firing if firing.keys() == traps.keys() else None

    firing = until(alerts, "all three fire")
    assert firing["quiet_one"].annotations["muted"].endswith(": backfill")
    assert "muted" in firing["muted_one"].annotations
    pages.wait_for(FAILED, "loud_one")
    assert sidecar.flush()
    assert pages.reported == [("firing", FAILED, "loud_one")]

    end_silences(path, "quiet*", now)
    pages.wait_for(FAILED, "quiet_one")
    assert {query for _, _, query in pages.reported} == {"loud_one", "quiet_one"}
