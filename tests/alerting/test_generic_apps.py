"""Another live driver may use the same generic app name, so it alone resolves nothing."""

import logging

import pytest

from querypulse.alerting.generic_apps import is_generic, problem_of
from querypulse.sidecar.session import warn_of_app_name

OWN = ("orders", "pyspark-shell-orders", "orders main.py", "etl", "Databricks Shell 2", "spark-etl")


@pytest.mark.parametrize("app", ["pyspark-shell", "PySparkShell", "SPARK SHELL", "main.py", *OWN])
def test_only_the_default_name_of_a_platform_is_generic(app):
    assert is_generic(app) is (app not in OWN)
    assert bool(problem_of(app)) is is_generic(app)


def test_warning_names_the_app_and_the_setting(caplog):
    with caplog.at_level(logging.WARNING, "querypulse"):
        warn_of_app_name("pyspark-shell")
        warn_of_app_name("orders")
    (record,) = caplog.records

    assert record.levelname == "WARNING"
    assert "'pyspark-shell'" in record.getMessage()
    assert "set app_name" in record.getMessage()
