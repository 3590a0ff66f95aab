"""Names that a platform gives to every application whose owner has given it none. Pure."""

from __future__ import annotations

GENERIC_APPS = frozenset(
    {
        "pyspark-shell",  # `python job.py`, Jupyter: PySpark's own PYSPARK_SUBMIT_ARGS
        "pysparkshell",  # bin/pyspark
        "spark shell",  # bin/spark-shell
        "spark-shell",
        "sparkr",
        "spark",  # Spark on Kubernetes, where nothing else names it
        "databricks shell",
        "zeppelin",
        "main.py",  # spark-submit names an application after its script
        "app.py",
        "job.py",
        "run.py",
    }
)
"""Two living drivers are likely to share one of these; case does not matter."""


def is_generic(app: str) -> bool:
    """Whether another driver that lives now may well have the same name."""
    return app.casefold() in GENERIC_APPS


def problem_of(app: str) -> str:
    """What a generic name costs, and what to do; empty for any other name."""
    if not is_generic(app):
        return ""
    return (
        f"the app is called {app!r}, as other drivers may be: alerts that an earlier process left "
        "open are not resolved at the start, except from spool_dir; set app_name to a unique name"
    )
