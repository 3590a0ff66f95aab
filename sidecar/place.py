"""Where the driver runs, and who starts it again: for a person who looks for it at night."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..listener.spark.jvm import THROWN

Conf = Callable[[str], str | None]

_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
IN_KUBERNETES = "KUBERNETES_SERVICE_HOST"
"""Kubernetes sets it in every container."""
CLUSTER_ID = "spark.databricks.clusterUsageTags.clusterId"
CLUSTER_MODE = ("spark.submit.deployMode", "cluster")


def place_of(spark: Any, conf: Conf, environment: Mapping[str, str] = os.environ) -> str:
    """Return the host or pod, the process and Spark's application id, as far as they are known."""
    host = socket.gethostname()
    parts = [f"host {host}"] if host else []
    if IN_KUBERNETES in environment:
        parts = [f"pod {host}"]
        with suppress(OSError, ValueError):
            parts.append(f"namespace {_NAMESPACE.read_text('utf-8').strip()}")
    parts.append(f"process {os.getpid()}")
    cluster = conf(CLUSTER_ID)
    if cluster:
        parts.append(f"cluster {cluster}")
    application = _application_id(spark)
    if application:
        parts.append(f"application {application}")
    return ", ".join(parts)


def _application_id(spark: Any) -> str:
    """Return what ``yarn logs -applicationId`` and the history server call it; empty if unknown."""
    try:
        application = spark.sparkContext.applicationId
    except (*THROWN, OSError, TypeError, AttributeError):
        # A client of Spark Connect has no application of its own.
        return ""
    return application if isinstance(application, str) else ""


def restarted_by(conf: Conf, environment: Mapping[str, str] = os.environ) -> str:
    """Return who starts the driver again after it has failed; empty if that is not known.

    Spark's documentation: "Running Spark on YARN" (``spark.yarn.maxAppAttempts``), "Spark Standalone
    Mode" (``--supervise``).
    """
    mode, in_cluster = CLUSTER_MODE
    is_in_cluster = conf(mode) == in_cluster
    master = conf("spark.master") or ""
    if conf(CLUSTER_ID):
        return "the Databricks job, if it has retries or is continuous"
    if IN_KUBERNETES in environment:
        return "Kubernetes or the Spark operator, if the restart policy of the job says so"
    if master == "yarn" and is_in_cluster:
        attempts = conf("spark.yarn.maxAppAttempts")
        most = f"spark.yarn.maxAppAttempts, {attempts}" if attempts else "its max-attempts"
        return f"YARN, up to {most}"
    if master.startswith("spark://") and is_in_cluster and conf("spark.driver.supervise") == "true":
        return "the standalone master (spark.driver.supervise)"
    return ""
