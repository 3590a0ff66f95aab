"""On real Spark: every way a query can be sick is told under its right name, and nothing else."""

from __future__ import annotations

import time

import pytest
from support.driver import Driver
from support.queries import until
from support.zoo import Cage, Diary
from support.zoo_sick import BORN_SICK, FLOOR, SETTINGS, START_GRACE, WELL_AT_FIRST, Told

pytestmark = pytest.mark.spark

TOLD_SECONDS = 60


@pytest.fixture
def cage(spark, watch, tmp_path):
    """Depends on ``watch`` in order to be closed before its queries are stopped."""
    cage = Cage(spark, tmp_path)
    yield cage
    cage.close()


def test_a_zoo_of_sick_queries_is_told_under_the_right_names_in_time(cage, watch, pages):
    patients = [animal(cage) for animal in WELL_AT_FIRST]
    names = {patient.query.name for patient in patients}
    until(lambda: all(cage.committed(name) > 2 for name in names), "all commit")
    sidecar = watch(**SETTINGS)
    watched_at = time.monotonic()
    diary = Diary(cage, sidecar)
    until(lambda: {n for n, life in diary.items() if life.last_state == "running"} >= names, "all are seen to run")
    patients += [animal(cage) for animal in BORN_SICK]
    for patient in patients:
        patient.strike()

    due = [told for patient in patients for told in patient.told]
    due.append(Told("QueryMissing", "never_started", lambda: watched_at, START_GRACE))
    wanted = {(told.alertname, told.query) for told in due}
    wait_for(pages, wanted)
    time.sleep(FLOOR)

    first = {page.what: page for page in reversed(pages.pages) if page.status == "firing"}
    assert set(first) == wanted
    assert [told for told in due if not first[told.alertname, told.query].annotations["reason"].startswith(told.reason)] == []
    late = {told[:2]: seconds for told in due if (seconds := lateness(told, first, diary)) > 2}
    assert late == {}
