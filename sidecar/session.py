"""The Spark session of this process, and the settings that hold for it."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from functools import cache
from typing import Any

from ..alerting.generic_apps import problem_of
from ..listener.java_errors import THROWN, reason_of
from ..settings.settings import Settings
from ..settings.settings_sources import SPARK_PREFIX, load_settings

log = logging.getLogger("querypulse")


class NoSessionError(RuntimeError):
    """There is no active SparkSession to watch."""


def active_session() -> Any:
    """The session that is active on this thread, else the process's default session.

    Raises:
        NoSessionError: there is none.

    """
    spark = _known_session()
    if spark is None:
        raise NoSessionError("querypulse: no active SparkSession; use attach(spark)")
    return spark


def require_classic(spark: Any) -> None:
    """Accept only a session whose driver is this process.

    Raises:
        RuntimeError: ``spark`` is a Spark Connect session.

    """
    if "connect" in type(spark).__module__.split("."):
        raise RuntimeError("querypulse runs inside the driver; Spark Connect is not supported yet")


def settings_of(spark: Any, arguments: Mapping[str, object]) -> Settings:
    """The settings of all sources; the Spark conf counts where there is a session.

    Environment variables that are not allowed are logged and ignored.

    Raises:
        SettingsError: a setting from elsewhere is unknown or not allowed.
        RuntimeError: the session is one of Spark Connect.

    """
    spark = spark if spark is not None else _known_session()
    require_classic(spark)
    conf = _conf_unless_refused(spark) if spark is not None else {}
    loaded = load_settings(arguments, os.environ, conf)
    for problem in loaded.problems:
        _warn_once(problem)
    return loaded.settings


@cache
def _warn_once(problem: str) -> None:
    log.warning("querypulse: %s (ignored; `querypulse check` lists all problems)", problem)


def app_name(settings: Settings, spark: Any) -> str:
    """The label ``app``: the setting, else the name of the Spark application."""
    name: str = settings.app_name or spark.sparkContext.appName
    # The environment may hold bytes that are not valid UTF-8; JSON and HTTP may not.
    return name.encode("utf-8", "replace").decode()


def spark_ui_url(spark: Any) -> str:
    """The URL of the application's own Spark UI; empty when there is none or it is unknown."""
    try:
        url = spark.sparkContext.uiWebUrl
    except (*THROWN, OSError, TypeError, AttributeError):
        return ""
    return url if isinstance(url, str) and url.startswith(("http://", "https://")) else ""


def warn_of_app_name(app: str) -> None:
    """Warn when the app name is generic, and say what that costs."""
    problem = problem_of(app)
    if problem:
        log.warning("querypulse: %s", problem)


def spark_conf(spark: Any) -> dict[str, str]:
    """The ``spark.querypulse.*`` entries of the Spark conf the application was started with.

    ``getConf()`` would copy all of it, with a few JVM calls for each of hundreds of entries.
    """
    # Private, like the names of a Scala tuple's fields: the public way is the slow one.
    conf = spark.sparkContext._jsc.sc().conf()  # noqa: SLF001
    ours = conf.getAllWithPrefix(SPARK_PREFIX)
    return {SPARK_PREFIX + pair._1(): pair._2() for pair in ours}  # noqa: SLF001


def _conf_unless_refused(spark: Any) -> dict[str, str]:
    """The Spark conf; empty where the platform refuses access, which must not end the job."""
    try:
        return spark_conf(spark)
    except (*THROWN, OSError, TypeError) as error:
        log.warning("querypulse: the Spark conf cannot be read: %s", reason_of(error))
        return {}


def _known_session() -> Any:
    from pyspark.sql import SparkSession

    # The second is PySpark's default: a thread that has run nothing has no active session.
    return SparkSession.getActiveSession() or SparkSession._instantiatedSession  # noqa: SLF001
