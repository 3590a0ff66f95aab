"""The manifests of ``deploy/kubernetes`` are valid, fit together, and name what the product has."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from functools import cache

import pytest
import yaml
from jsonschema import Draft202012Validator
from support.exporter_http import address, get, serving
from support.patience import PATIENCE_SECONDS
from support.published_states import published
from support.repository import ROOT
from support.story import CONFLICT, Story

from querypulse.commands import cli
from querypulse.settings.loading import load_settings, load_strictly
from querypulse.watch.command import WatchRequest

FOLDER = ROOT / "deploy" / "kubernetes"
FIXTURES = ROOT / "tests" / "fixtures"
GROUPS = {"v1": "io.k8s.api.core.v1", "apps/v1": "io.k8s.api.apps.v1"}
MOUNT = "/etc/querypulse"
POD = "driver-template/Pod"
DEPLOYMENT = "driver-deployment/Deployment"
SPARK = "spark-application/SparkApplication"
DRIVERS = [POD, DEPLOYMENT, SPARK]


@cache
def manifests():
    """The manifests by file and kind."""
    return {
        f"{path.stem}/{manifest['kind']}": manifest
        for path in sorted(FOLDER.glob("*.yaml"))
        for manifest in yaml.safe_load_all(path.read_text())
    }


@cache
def schemas():
    """Of Kubernetes' kinds, and of the operators' kinds.

    The operators are the Prometheus Operator 0.93 and Kubeflow's Spark operator 2.5.
    """
    return (
        json.loads((FIXTURES / "kubernetes-1.37.json").read_text())["$defs"],
        json.loads((FIXTURES / "operators.json").read_text()),
    )


def problems(manifest):
    """What the schema of its kind says against a manifest."""
    kind = manifest["kind"]
    name = f"{GROUPS.get(manifest['apiVersion'])}.{kind}"
    of_kubernetes, of_operators = schemas()
    schema = of_operators.get(kind, {"$ref": f"#/$defs/{name}", "$defs": of_kubernetes})
    validator = Draft202012Validator(schema)
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(manifest)]


def pod_of(name):
    """Labels, spec and container of a manifest's pod, or what an operator makes one of."""
    manifest = manifests()[name]
    if name == SPARK:
        driver = manifest["spec"]["driver"]
        return driver["labels"], driver, driver
    pod = manifest["spec"]["template"] if manifest["kind"] == "Deployment" else manifest
    return pod["metadata"]["labels"], pod["spec"], pod["spec"]["containers"][0]


def container_of(name):
    return pod_of(name)[2]


def environment(name):
    return {variable["name"]: variable.get("value", "") for variable in container_of(name)["env"]}


def labels(name):
    """Those of a driver's pod, with the one that Spark sets."""
    return {"spark-role": "driver", **pod_of(name)[0]}


# -- schemas ----------------------------------------------------------------------------------


def test_every_manifest_is_valid():
    by_name = {name: problems(manifest) for name, manifest in manifests().items()}

    assert {name: said for name, said in by_name.items() if said} == {}
    assert len(by_name) > 5
    for name in (POD, SPARK):
        assert problems({**manifests()[name], "spec": {"colour": "red"}}) != []


# -- how they fit together --------------------------------------------------------------------


@pytest.mark.parametrize("name", DRIVERS)
def test_every_driver_is_selected_scraped_and_watched(name):
    monitor = manifests()["podmonitor/PodMonitor"]["spec"]
    watched = manifests()["watch/Service"]["spec"]["selector"]
    ports = {port["name"]: port["containerPort"] for port in container_of(name)["ports"]}

    assert labels(name).items() >= monitor["selector"]["matchLabels"].items()
    assert labels(name).items() >= watched.items()
    assert monitor["podMetricsEndpoints"][0]["port"] in ports


@pytest.mark.parametrize("name", [*DRIVERS, "watch/Deployment"])
def test_secret_files_are_mounted_from_the_example_secret(name):
    keys = manifests()["secret/Secret"]["stringData"]
    files = {value for key, value in environment(name).items() if key.endswith("_FILE")}
    files |= {word for word in container_of(name).get("command", ()) if word.startswith(MOUNT)}

    assert files
    assert files <= {f"{MOUNT}/{key}" for key in keys}
    _, spec, container = pod_of(name)
    if name == SPARK:
        (secret,) = container["secrets"]
        assert (secret["name"], secret["path"]) == ("querypulse", MOUNT)
    else:
        (mount,) = (entry for entry in container["volumeMounts"] if entry["mountPath"] == MOUNT)
        (volume,) = (entry for entry in spec["volumes"] if entry["name"] == mount["name"])
        assert (volume["secret"]["secretName"], mount["readOnly"]) == ("querypulse", True)


@pytest.mark.parametrize("name", [*DRIVERS, "watch/Deployment"])
def test_no_probe_kills_a_driver_and_it_has_time_to_end(name):
    """Before Spark 4.1, executors resolve the name of a Service that lists ready pods only."""
    _, spec, container = pod_of(name)
    probes = {key for key in container if key.endswith("Probe")}

    assert probes == ({"readinessProbe"} if name == DEPLOYMENT else set())
    # Spark stops, and pending pages take at most 8 s.
    assert name not in DRIVERS or spec["terminationGracePeriodSeconds"] >= 30


def test_the_service_of_the_deployment_has_the_ports_of_its_command():
    """It also lists a driver that is not ready, as that of the watcher does."""
    (_, _, script) = container_of(DEPLOYMENT)["command"]
    service, of_watcher = manifests()["driver-deployment/Service"], manifests()["watch/Service"]
    ports = {port["name"]: port["port"] for port in service["spec"]["ports"]}

    assert f"spark.driver.port={ports['driver']} " in script
    assert f"spark.driver.blockManager.port={ports['blockmanager']} " in script
    assert f"spark.driver.host={service['metadata']['name']} " in script
    assert "exec " in script  # spark-submit gets the signals
    assert labels(DEPLOYMENT).items() >= service["spec"]["selector"].items()
    for spec in (service["spec"], of_watcher["spec"]):
        assert (spec["clusterIP"], spec["publishNotReadyAddresses"]) == ("None", True)


# -- what the product has ---------------------------------------------------------------------


@pytest.mark.parametrize("name", [*DRIVERS, "watch/Deployment"])
def test_settings_are_allowed_and_a_driver_serves_at_the_port_with_the_token(name):
    loaded = load_settings({}, environment(name), {})
    settings = loaded.settings

    assert loaded.problems == ()
    if name in DRIVERS:
        (port,) = container_of(name)["ports"]
        assert (settings.http_host, settings.http_port) == ("0.0.0.0", port["containerPort"])
        assert settings.http_token_file == f"{MOUNT}/http-token"
        assert not settings.http_allow_anonymous


def test_spark_conf_of_the_application_is_allowed():
    conf = manifests()[SPARK]["spec"]["sparkConf"]

    assert load_settings({}, {}, conf).settings.expected_queries == ("bronze", "silver")


def test_watcher_is_started_with_arguments_that_it_has():
    program, *words = container_of("watch/Deployment")["command"]
    arguments = vars(cli._parser().parse_args(words))
    service = manifests()["watch/Service"]["metadata"]["name"]

    assert (program, arguments.pop("command")) == ("querypulse", "watch")
    request = WatchRequest(**arguments)
    assert request.dns == [f"http://{service}:{load_settings({}, {}, {}).settings.http_port}"]
    assert request.token_file == f"{MOUNT}/http-token"


def test_monitor_scrapes_what_is_served_with_the_token():
    (endpoint,) = manifests()["podmonitor/PodMonitor"]["spec"]["podMetricsEndpoints"]
    credentials = endpoint["authorization"]["credentials"]

    assert credentials == {"name": "querypulse", "key": "http-token"}
    with serving(published(), token="word") as server:
        assert get(server, endpoint["path"], Authorization="Bearer word").status_code == 200


@pytest.mark.usefixtures("clean_environment")
def test_example_secret_is_empty_and_refused(tmp_path, monkeypatch, capsys):
    """Nobody runs with a token that is in a public repository."""
    keys = manifests()["secret/Secret"]["stringData"]
    (tmp_path / "http-token").write_text(keys["http-token"])

    assert set(keys.values()) == {""}
    load_strictly({}, {"QUERYPULSE_HTTP_TOKEN_FILE": str(tmp_path / "http-token")})
    monkeypatch.setenv("QUERYPULSE_HTTP_TOKEN_FILE", str(tmp_path / "http-token"))

    assert cli.main(["check"]) == 2
    assert "is empty" in capsys.readouterr().err


@pytest.fixture
def probe(tmp_path):
    """Run the readiness probe against a server; returns its exit code."""
    (tmp_path / "http-token").write_text("word\n")
    *program, code = container_of(DEPLOYMENT)["readinessProbe"]["exec"]["command"]
    assert program == ["python3", "-c"]

    def run(server):
        _, port = address(server)
        here = code.replace(":9719/", f":{port}/").replace(MOUNT, str(tmp_path))
        here = re.sub(r"timeout=\d+", f"timeout={PATIENCE_SECONDS}", here)
        assert here != code
        return subprocess.run([sys.executable, "-c", here], capture_output=True).returncode

    return run


@pytest.mark.slow
def test_probe_says_ready_only_while_all_queries_are_healthy(probe):
    healthy = Story().started("a", at=0).commit("a", batch=1, at=10)
    failed = (
        Story().started("a", at=0).commit("a", batch=1, at=10).ended("a", at=20, exception=CONFLICT)
    )
    with serving(published(healthy, now=15.0), token="word") as server:
        assert probe(server) == 0
    with serving(published(failed, now=25.0), token="word") as server:
        assert probe(server) == 1
    with serving(published(healthy, now=15.0), token="other") as server:
        assert probe(server) == 1
