"""``attach(spark)``: the one line that people add to a job."""

from __future__ import annotations

import os
from typing import Any

from .configuration.settings_sources import SPARK_PREFIX, load_settings
from .sidecar import SIDECARS, Sidecar


def attach(spark: Any, **arguments: object) -> Sidecar:
    """Watch all queries of ``spark``'s SparkContext from now on.

    Settings come from the arguments, else the environment, else the Spark conf, else the
    TOML file. A second call for the same SparkContext returns the same sidecar.

    Raises:
        SettingsError: a setting is unknown or not allowed.
        RuntimeError: ``spark`` is a Spark Connect session, whose driver is elsewhere.

    """
    if "connect" in type(spark).__module__.split("."):
        raise RuntimeError("querypulse runs inside the driver; Spark Connect is not supported yet")
    known = SIDECARS.find(spark.sparkContext)
    if known is not None:
        return known
    settings = load_settings(arguments, os.environ, spark_conf(spark)).settings
    sidecar = Sidecar(settings, spark=spark)
    spark.streams.addListener(sidecar.listener)
    return sidecar


def spark_conf(spark: Any) -> dict[str, str]:
    """Our part of the Spark conf that the application was started with.

    ``getConf()`` would copy all of it, a few commands to the JVM for each of hundreds of entries.
    """
    # Private, as are Scala's names of a pair's parts: the public way is the slow one.
    conf = spark.sparkContext._jsc.sc().conf()  # noqa: SLF001
    ours = conf.getAllWithPrefix(SPARK_PREFIX)
    return {SPARK_PREFIX + pair._1(): pair._2() for pair in ours}  # noqa: SLF001
