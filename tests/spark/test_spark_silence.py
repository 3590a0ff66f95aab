"""Silences in a running driver, set with ``Sidecar.silence`` or in the silence file."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from support.queries import Trap, commits, rate, start, until

from querypulse.settings.settings import SilenceSettings
from querypulse.settings.silencing import add_silence, end_silences

pytestmark = pytest.mark.spark

NOW = datetime.now(timezone.utc)


def failed_alert(spark, sidecar, name):
    """Start a query, make it fail and return its alert."""
    trap = Trap()
    start(rate(spark), name, trap)
    commits(sidecar, name)
    trap.die.set()

    def known():
        return [one for one in sidecar.alerts() if one.labels["query"] == name]

    return until(known, f"the alert of {name}")[0]


def test_silenced_failure_is_shown_and_pages_when_the_silence_ends(spark, watch, pages, tmp_path):
    path = tmp_path / "silences"
    until_then = NOW + timedelta(hours=1)
    add_silence(
        path, SilenceSettings(queries="quiet*", until=until_then, reason="backfill", app="*"), NOW
    )
    sidecar = watch(silence_file=str(path))
    alert = failed_alert(spark, sidecar, "quiet_one")

    assert alert.annotations["muted"].endswith(": backfill")
    assert sidecar.flush()
    assert pages.pages == []
    end_silences(path, "quiet*", NOW)
    pages.wait_for("StreamingQueryFailed", "quiet_one")


def test_silence_of_one_query_does_not_mute_others(spark, watch, pages):
    sidecar = watch()
    sidecar.silence("quiet*", minutes=60)
    failed_alert(spark, sidecar, "quiet_one")
    failed_alert(spark, sidecar, "loud_one")
    pages.wait_for("StreamingQueryFailed", "loud_one")

    assert sidecar.flush()
    assert pages.reported == [("firing", "StreamingQueryFailed", "loud_one")]
