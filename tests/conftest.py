"""What every test relies on: no hidden error, and one real Spark for those that need it."""

from __future__ import annotations

import os
import shutil

import pytest
from hypothesis import HealthCheck, settings

from querypulse.listener.guard import Guard

# A busy CI machine is slow, not wrong.
settings.register_profile("querypulse", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("querypulse")

REQUIRE_ALL = os.environ.get("QUERYPULSE_REQUIRE_ALL_TESTS") == "1"


@pytest.fixture(autouse=True)
def no_contained_error(request, monkeypatch):
    """An error that our own guard contained fails the test that caused it."""
    contained = []
    report = Guard.report

    def remember(self, where, error):
        contained.append((where, error))
        report(self, where, error)

    monkeypatch.setattr(Guard, "report", remember)
    yield contained
    if contained and "contains_errors" not in request.keywords:
        where, error = contained[0]
        raise AssertionError(f"contained {len(contained)} error(s), first in {where}") from error


def pytest_configure(config):
    config.addinivalue_line(
        "markers", "contains_errors: the test is about an error that is contained"
    )


def pytest_collection_modifyitems(items):
    """Leave out what cannot run here, saying how to get it; under CI that is a failure."""
    missing = {}
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        missing["spark"] = "needs Java 17 or newer (Debian: openjdk-17-jre-headless)"
    if shutil.which("promtool") is None:
        missing["promtool"] = "needs promtool (Debian: prometheus)"
    if REQUIRE_ALL and missing:
        raise pytest.UsageError(f"every test must run here, but some cannot: {missing}")
    for item in items:
        for marker, reason in missing.items():
            if marker in item.keywords:
                item.add_marker(pytest.mark.skip(reason=reason))
