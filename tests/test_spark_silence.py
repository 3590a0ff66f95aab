"""Silences in a running driver, by its own word and by the file that others write."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from support.queries import Trap, commits, rate, start, until

from querypulse.sidecar.configuration.silence_settings import SilenceSettings
from querypulse.sidecar.silence_file import add_silence, end_silences

pytestmark = pytest.mark.spark

NOW = datetime.now(timezone.utc)


def dead_of_a_trap(spark, sidecar, name):
    """A query that has died, as the sidecar knows; its alert."""
    trap = Trap()
    start(rate(spark), name, trap)
    commits(sidecar, name)
    trap.die.set()

    def known():
        return [one for one in sidecar.alerts() if one.labels["query"] == name]

    return until(known, f"{name} is known to be dead")[0]


def test_a_death_under_a_silence_is_shown_and_reported_once_the_silence_is_ended(
    spark, watch, pages, tmp_path
):
    path = tmp_path / "silences"
    until_then = NOW + timedelta(hours=1)
    add_silence(
        path, SilenceSettings(queries="quiet*", until=until_then, reason="backfill", app="*"), NOW
    )
    sidecar = watch(silence_file=str(path))
    alert = dead_of_a_trap(spark, sidecar, "quiet_one")

    assert alert.annotations["muted"].endswith(": backfill")
    assert sidecar.flush()
    assert pages.pages == []
    end_silences(path, "quiet*", NOW)
    pages.wait_for("StreamingQueryFailed", "quiet_one")


def test_a_driver_that_silences_one_query_is_reported_of_the_others(spark, watch, pages):
    sidecar = watch()
    sidecar.silence("quiet*", minutes=60)
    dead_of_a_trap(spark, sidecar, "quiet_one")
    dead_of_a_trap(spark, sidecar, "loud_one")
    pages.wait_for("StreamingQueryFailed", "loud_one")

    assert sidecar.flush()
    assert pages.reported == [("firing", "StreamingQueryFailed", "loud_one")]
