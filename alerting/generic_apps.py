"""Names that a platform gives to applications that do not set a name."""

from __future__ import annotations

GENERIC_APPS = frozenset(
    {
        "pyspark-shell",  # `python job.py`, Jupyter: PySpark's own PYSPARK_SUBMIT_ARGS
        "pysparkshell",  # bin/pyspark
        "spark shell",  # bin/spark-shell
        "spark-shell",
        "sparkr",
        "spark",  # Spark on Kubernetes, without another name
        "databricks shell",
        # The start script of a Spark Connect server, whose clients share its name.
        "spark connect server",
        "org.apache.spark.sql.connect.service.sparkconnectserver",
        "zeppelin",
        "main.py",  # spark-submit names an application after its script
        "app.py",
        "job.py",
        "run.py",
        "launcher.py",  # under `querypulse launcher`, without --name
    }
)
"""Two running drivers are likely to share one of these names; case does not matter."""


def is_generic(app: str) -> bool:
    """Whether another running driver is likely to have the same name."""
    return app.casefold() in GENERIC_APPS


def problem_of(app: str) -> str:
    """What a generic name prevents, and how to fix it; empty for any other name."""
    if not is_generic(app):
        return ""
    return (
        f"the app is called {app!r}, and other drivers may be too: alerts that an earlier process "
        "left open are not resolved at the start, except from spool_dir; set app_name to a "
        "unique name"
    )
