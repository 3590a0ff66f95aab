"""Where the driver runs, and who starts it again, for each platform."""

from __future__ import annotations

import os
import socket
from types import SimpleNamespace

import pytest

from querypulse.listener.state.snapshot import DriverAttempt
from querypulse.sidecar.session import attempt_of, place_of, restarted_by

HOST, PID = socket.gethostname(), os.getpid()
KUBERNETES = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
CLUSTER = {"spark.databricks.clusterUsageTags.clusterId": "0101-abc"}
CLUSTER_NAME = "spark.databricks.clusterUsageTags.clusterName"
SPARK = SimpleNamespace(sparkContext=SimpleNamespace(applicationId="app-7"))


@pytest.mark.parametrize(
    ("spark", "conf", "environment", "place"),
    [
        (SPARK, {}, {}, f"host {HOST}, process {PID}, application app-7"),
        (SPARK, {}, KUBERNETES, f"pod {HOST}, process {PID}, application app-7"),
        (SPARK, CLUSTER, {}, f"host {HOST}, process {PID}, cluster 0101-abc, application app-7"),
        (SimpleNamespace(), {}, {}, f"host {HOST}, process {PID}"),
        (SimpleNamespace(sparkContext=None), {}, {}, f"host {HOST}, process {PID}"),
    ],
    ids=["plain", "Kubernetes", "Databricks", "Spark Connect", "no context"],
)
def test_place_names_what_a_person_looks_for(spark, conf, environment, place):
    assert place_of(spark, conf.get, environment) == place


YARN = {"spark.master": "yarn", "spark.submit.deployMode": "cluster"}
STANDALONE = {"spark.master": "spark://m:7077", "spark.submit.deployMode": "cluster"}


@pytest.mark.parametrize(
    ("conf", "environment", "who"),
    [
        ({}, {}, ""),
        ({"spark.master": "local[2]"}, {}, ""),
        ({"spark.master": "yarn"}, {}, ""),
        ({**YARN, "spark.submit.deployMode": "client"}, {}, ""),
        (STANDALONE, {}, ""),
        ({**STANDALONE, "spark.driver.supervise": "false"}, {}, ""),
        ({"spark.master": "spark://m:7077", "spark.driver.supervise": "true"}, {}, ""),
        (
            {**STANDALONE, "spark.driver.supervise": "true"},
            {},
            "the standalone master (spark.driver.supervise)",
        ),
        (YARN, {}, "YARN, up to its max-attempts"),
        (
            {**YARN, "spark.yarn.maxAppAttempts": "4"},
            {},
            "YARN, up to spark.yarn.maxAppAttempts, 4",
        ),
        ({**YARN, "spark.yarn.maxAppAttempts": "1"}, {}, "nobody: spark.yarn.maxAppAttempts is 1"),
        (
            {},
            KUBERNETES,
            "Kubernetes or the Spark operator, if the restart policy of the job says so",
        ),
        (CLUSTER, {}, ""),
        ({**CLUSTER, CLUSTER_NAME: "Kim's cluster"}, {}, ""),
        (
            {**CLUSTER, CLUSTER_NAME: "job-7-run-9-orders"},
            {},
            "the Databricks job, if it has retries or is continuous",
        ),
        (
            {**CLUSTER, CLUSTER_NAME: "Kim's cluster", "spark.databricks.job.id": "7"},
            {},
            "the Databricks job, if it has retries or is continuous",
        ),
    ],
)
def test_only_what_restarts_a_driver_is_named(conf, environment, who):
    assert restarted_by(conf.get, environment) == who


@pytest.mark.parametrize(
    ("spark", "conf", "attempt"),
    [
        (SPARK, {"spark.app.attempt.id": "2"}, DriverAttempt("app-7", 2, f"host {HOST}")),
        (SPARK, YARN, None),
        (SPARK, {"spark.app.attempt.id": "two"}, None),
        (SimpleNamespace(), {"spark.app.attempt.id": "2"}, None),
    ],
    ids=["cluster mode", "client mode", "no number", "no application"],
)
def test_attempt_is_known_where_yarn_starts_another(spark, conf, attempt):
    assert attempt_of(spark, conf.get) == attempt
