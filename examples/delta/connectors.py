"""The connectors for each Spark version, and the Kafka broker of demo and tests."""

from __future__ import annotations

from .artifacts import IN_SPARK, ArtifactsError, Packages

_TOKENS = "org.apache.spark:spark-token-provider-kafka-0-10_2.13"
_DELTA = "4.4.0"
_ICEBERG = "1.12.0"

KAFKA_TOKENS = Packages((f"{_TOKENS}:4.0.0",), (*IN_SPARK, "org.apache.kafka:*"))
"""Delegation tokens: unused here, but the connector's classes refer to them. Their code has not
changed in Spark 4, and not every registry has a newer version."""

BROKER = Packages(("org.apache.kafka:kafka_2.13:4.3.1",))
"""Apache Kafka's own server; the Scala library is the one in PySpark."""


def installed_spark() -> str:
    """The version of PySpark, which is that of Spark."""
    import pyspark

    return str(pyspark.__version__)


def kafka(spark: str) -> list[Packages]:
    """Spark's own Kafka connector, released with Spark.

    Raises:
        ArtifactsError: none is known for this version of Spark.

    """
    _series(spark, ("4.0", "4.1", "4.2"), "Kafka")
    connector = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{spark}"
    return [Packages((connector,), (*IN_SPARK, _TOKENS)), KAFKA_TOKENS]


def delta(spark: str) -> list[Packages]:
    """Delta Lake's connector.

    Raises:
        ArtifactsError: none is known for this version of Spark.

    """
    series = _series(spark, ("4.0", "4.1", "4.2"), "Delta Lake")
    return [Packages((f"io.delta:delta-spark_{series}_2.13:{_DELTA}",), IN_SPARK)]


def iceberg(spark: str) -> list[Packages]:
    """Apache Iceberg's connector, in one jar.

    Raises:
        ArtifactsError: none is known for this version of Spark.

    """
    series = _series(spark, ("4.1",), "Iceberg")
    return [Packages((f"org.apache.iceberg:iceberg-spark-runtime-{series}_2.13:{_ICEBERG}",))]


def _series(spark: str, known: tuple[str, ...], what: str) -> str:
    series = ".".join(spark.split(".")[:2])
    if series not in known:
        raise ArtifactsError(
            f"no {what} connector is known for Spark {spark}, only for {', '.join(known)}: "
            f"install one of these (pip install 'pyspark=={known[-1]}.*')"
        )
    return series
