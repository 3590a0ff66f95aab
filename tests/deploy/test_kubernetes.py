"""The manifests of ``deploy/kubernetes`` are valid, fit together, and name what the product has."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from functools import cache
from importlib.metadata import version
from string import Template

import pytest
import yaml
from jsonschema import Draft202012Validator
from support.exporter_http import address, get, serving
from support.patience import PATIENCE_SECONDS
from support.published_states import published
from support.repository import ROOT, fenced
from support.story import CONFLICT, Story

from querypulse.commands import cli
from querypulse.settings.loading import load_settings, load_strictly
from querypulse.watch.command import WatchRequest

FOLDER = ROOT / "deploy" / "kubernetes"
FIXTURES = ROOT / "tests" / "fixtures"
PAGE = ROOT / "docs" / "kubernetes.md"
GROUPS = {"v1": "io.k8s.api.core.v1", "apps/v1": "io.k8s.api.apps.v1"}
MOUNT = "/etc/querypulse"
POD = "driver-template/Pod"
DEPLOYMENT = "driver/Deployment"
SPARK = "spark-application/SparkApplication"
WATCHER = "watch/Deployment"
DRIVERS = [POD, DEPLOYMENT, SPARK]
NAMESPACE = "streaming"


@cache
def manifests():
    """The manifests by file and kind; of two Secrets, the second has its name, too."""
    found = {}
    paths = [path for path in FOLDER.rglob("*.yaml") if path.name != "kustomization.yaml"]
    for path in sorted(paths):
        for manifest in yaml.safe_load_all(path.read_text()):
            key = f"{path.stem}/{manifest['kind']}"
            found[f"{key}/{manifest['metadata']['name']}" if key in found else key] = manifest
    return found


@cache
def rendered():
    """What ``kubectl kustomize`` makes of the example, by kind and name."""
    made = kustomized(FOLDER / "example")
    return {(manifest["kind"], manifest["metadata"]["name"]): manifest for manifest in made}


def kustomized(folder):
    """The manifests that ``kubectl kustomize`` makes of a folder."""
    command = ["kubectl", "kustomize", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    # YAML 1.1 has a meaning for a bare "=", which matchers have; Kubernetes' YAML does not.
    return list(yaml.safe_load_all(done.stdout.replace("matchType: =\n", "matchType: '='\n")))


def of_kind(kind):
    return [manifest for (own, _), manifest in rendered().items() if own == kind]


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
    return pod_in(manifests()[name])


def pod_in(manifest):
    if manifest["kind"] == "SparkApplication":
        driver = manifest["spec"]["driver"]
        return driver["labels"], {**manifest["spec"], **driver}, driver
    pod = manifest["spec"]["template"] if manifest["kind"] == "Deployment" else manifest
    return pod["metadata"]["labels"], pod["spec"], pod["spec"]["containers"][0]


def container_of(name):
    return pod_of(name)[2]


def environment(name):
    labels, _, container = pod_of(name)
    return environment_of(container, {"app": "orders", **labels}, manifests()["settings/ConfigMap"])


def environment_of(container, labels, config_map):
    """The variables as Kubernetes makes them: of the ConfigMap, of fields of the pod, expanded."""
    (source,) = container["envFrom"]
    assert source["configMapRef"]["name"] == config_map["metadata"]["name"]
    fields = {"metadata.namespace": NAMESPACE, "metadata.name": "a-pod"}
    fields |= {f"metadata.labels['{name}']": value for name, value in labels.items()}
    values = dict(config_map["data"])
    for variable in container["env"]:
        origin = variable.get("valueFrom")
        text = variable["value"] if origin is None else fields[origin["fieldRef"]["fieldPath"]]
        values[variable["name"]] = re.sub(r"\$\((\w+)\)", lambda match: values[match[1]], text)
    return values


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


@pytest.mark.parametrize("name", [*DRIVERS, WATCHER])
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
        mount, volume = mounted(spec, container, MOUNT)
        assert (volume["secret"]["secretName"], mount["readOnly"]) == ("querypulse", True)


def mounted(spec, container, path):
    (mount,) = (entry for entry in container["volumeMounts"] if entry["mountPath"] == path)
    (volume,) = (entry for entry in spec["volumes"] if entry["name"] == mount["name"])
    return mount, volume


@pytest.mark.parametrize("name", [DEPLOYMENT, SPARK, WATCHER])
def test_the_spool_outlives_the_pod_and_its_user_may_write_it(name):
    """In a pod template, the volume is a line of the Spark conf, because each app has its own."""
    _, spec, container = pod_of(name)
    _, volume = mounted(spec, container, environment(name)["QUERYPULSE_SPOOL_DIR"])
    claims = [entry for key, entry in manifests().items() if "PersistentVolumeClaim" in key]

    claim = volume["persistentVolumeClaim"]["claimName"]
    assert claim in [entry["metadata"]["name"] for entry in claims]
    context = spec.get("securityContext") or spec["podSecurityContext"]
    assert context["fsGroup"] == (10001 if name == WATCHER else 185)


@pytest.mark.parametrize("name", [*DRIVERS, WATCHER])
def test_drivers_watcher_and_rules_have_the_same_labels_so_that_one_death_is_one_group(name):
    """The operator gives each scraped series the label ``namespace``."""
    spec = manifests()["alertmanagerconfig/AlertmanagerConfig"]["spec"]
    loaded = load_settings({}, environment(name), {}).settings

    assert loaded.labels == {"namespace": NAMESPACE}
    assert {*loaded.labels, "app", "query"} <= set(spec["route"]["groupBy"])
    assert all({*loaded.labels, "app"} <= set(rule["equal"]) for rule in spec["inhibitRules"])


def test_routes_name_receivers_that_exist_and_secrets_of_the_example():
    spec = manifests()["alertmanagerconfig/AlertmanagerConfig"]["spec"]
    names = [receiver["name"] for receiver in spec["receivers"]]
    used = {spec["route"]["receiver"], *(route["receiver"] for route in spec["route"]["routes"])}

    assert used == set(names)
    assert dict(secret_references(spec["receivers"])) == {
        key: manifests()["secret/Secret/querypulse-alertmanager"]["metadata"]["name"]
        for key in manifests()["secret/Secret/querypulse-alertmanager"]["stringData"]
    }


def secret_references(value):
    """The keys of Secrets in a manifest, with the Secret's name."""
    if isinstance(value, dict) and set(value) == {"name", "key"}:
        yield value["key"], value["name"]
    elif isinstance(value, (dict, list)):
        for entry in value.values() if isinstance(value, dict) else value:
            yield from secret_references(entry)


@pytest.mark.kubectl
def test_templates_that_the_routes_use_are_in_the_config_map_that_alertmanager_mounts():
    """An AlertmanagerConfig carries none, and with one that is not defined nobody is notified."""
    routes = json.dumps(manifests()["alertmanagerconfig/AlertmanagerConfig"])
    used = set(re.findall(r'template \\"([\w.]+)\\"', routes))
    (config_map,) = kustomized(ROOT / "dashboards/alertmanager")
    key = "querypulse.tmpl"
    templates = config_map["data"][key]
    name = config_map["metadata"]["name"]
    written = [yaml.safe_load(text) for text in fenced(PAGE.read_text(), "yaml")]
    mount, files, instead = [block for block in written if name in json.dumps(block)]

    assert problems(config_map) == []
    assert {"querypulse.headline", "querypulse.slack.text"} <= used
    assert used <= set(re.findall(r'define "([\w.]+)"', templates))
    assert mount == {"spec": {"configMaps": [name]}}
    assert files == {"templates": [f"/etc/alertmanager/configmaps/{name}/{key}"]}
    assert instead["spec"]["alertmanagerConfiguration"]["templates"] == [
        {"configMap": {"name": name, "key": key}}
    ]


def test_the_operators_resources_are_those_of_the_dashboards(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)  # tools is not installed
    from tools import kubernetes as tool

    assert (FOLDER / "base/prometheusrule.yaml").read_text() == tool.prometheus_rule()
    assert (FOLDER / "base/alertmanagerconfig.yaml").read_text() == tool.alertmanager_config()
    shipped = yaml.safe_load((ROOT / "dashboards/prometheus/drivers.yaml").read_text())
    assert manifests()["prometheusrule/PrometheusRule"]["spec"] == shipped


@pytest.mark.parametrize("name", [*DRIVERS, WATCHER])
def test_no_probe_kills_a_driver_and_it_has_time_to_end(name):
    """Before Spark 4.1, executors resolve the name of a Service that lists ready pods only."""
    _, spec, container = pod_of(name)
    probes = {key for key in container if key.endswith("Probe")}

    assert probes == ({"readinessProbe"} if name == DEPLOYMENT else set())
    # Spark stops, and pending pages take at most 8 s.
    assert name not in DRIVERS or spec["terminationGracePeriodSeconds"] >= 30


def test_services_also_list_a_driver_that_is_not_ready():
    for name in ("driver/Service", "watch/Service"):
        spec = manifests()[name]["spec"]
        assert (spec["clusterIP"], spec["publishNotReadyAddresses"]) == ("None", True)
        assert labels(DEPLOYMENT).items() >= spec["selector"].items()


# -- the example ------------------------------------------------------------------------------

EIGHT = 8


@pytest.mark.kubectl
def test_the_example_is_valid_and_rolls_out_forty_queries_on_five_drivers():
    problems_by_name = {name: problems(manifest) for name, manifest in rendered().items()}
    drivers = [pod_in(manifest) for manifest in of_kind("Deployment") if is_driver(manifest)]
    (config_map,) = of_kind("ConfigMap")
    loaded = [
        load_settings({}, environment_of(container, labels, config_map), {})
        for labels, _, container in drivers
    ]

    assert {name: said for name, said in problems_by_name.items() if said} == {}
    assert [entry.problems for entry in loaded] == [()] * 5
    assert [len(entry.settings.expected_queries) for entry in loaded] == [EIGHT] * 5
    assert sorted(entry.settings.app_name for entry in loaded) == [
        *("audit", "clicks", "devices", "orders", "payments")
    ]
    assert {len(entry.settings.alertmanager_urls) for entry in loaded} == {2}
    assert all(manifest["metadata"]["namespace"] == NAMESPACE for manifest in rendered().values())


def is_driver(manifest):
    return manifest["metadata"]["name"].endswith("-driver")


@pytest.mark.kubectl
def test_every_reference_of_the_example_exists():
    """The service account is the cluster's, and the Secrets are made by hand."""
    secrets = [entry for entry in manifests().values() if entry["kind"] == "Secret"]
    names = {*rendered(), *(("Secret", entry["metadata"]["name"]) for entry in secrets)}
    for deployment in of_kind("Deployment"):
        _, spec, container = pod_in(deployment)
        wanted = {("ConfigMap", entry["configMapRef"]["name"]) for entry in container["envFrom"]}
        for volume in spec["volumes"]:
            claim, secret = volume.get("persistentVolumeClaim"), volume.get("secret")
            wanted |= {("PersistentVolumeClaim", claim["claimName"])} if claim else set()
            wanted |= {("Secret", secret["secretName"])} if secret else set()

        assert wanted <= names
        assert len(wanted) == 3


@pytest.mark.kubectl
def test_each_driver_has_a_spool_a_service_and_an_image_of_its_own():
    drivers = [manifest for manifest in of_kind("Deployment") if is_driver(manifest)]
    (config_map,) = of_kind("ConfigMap")
    images, claims = set(), set()
    for driver in drivers:
        labels, spec, container = pod_in(driver)
        values = environment_of(container, labels, config_map)
        (_, _, script) = container["command"]
        command = Template(script).substitute(values).replace('"', "")
        app = values["QUERYPULSE_APP_NAME"]
        service = rendered()["Service", f"{app}-driver"]["spec"]
        ports = {port["name"]: port["port"] for port in service["ports"]}
        claims.add(mounted(spec, container, "/spool")[1]["persistentVolumeClaim"]["claimName"])
        images.add(container["image"])

        assert command.startswith("exec ")  # spark-submit gets the signals
        assert f"--name {app} " in command
        assert f"spark.kubernetes.container.image={container['image']} " in command
        assert f"spark.kubernetes.namespace={NAMESPACE} " in command
        assert f"spark.driver.host={app}-driver " in command
        assert f"spark.driver.port={ports['driver']} " in command
        assert f"spark.driver.blockManager.port={ports['blockmanager']} " in command
        assert labels.items() >= service["selector"].items()
        assert service["selector"]["app"] == app
        assert "readinessProbe" in container
    assert len(images) == len(claims) == len(drivers) == 5


@pytest.mark.kubectl
def test_images_have_tags_and_the_watchers_is_this_version():
    images = [pod_in(manifest)[2]["image"] for manifest in of_kind("Deployment")]
    tags = {image.partition(":")[2] for image in images}

    assert not tags & {"", "latest", "replace-me"}
    assert f"registry.example.com/querypulse:{version('querypulse')}" in images


@pytest.mark.kubectl
def test_alerts_of_the_example_pass_the_operators_namespace_matcher():
    """The operator adds ``namespace="streaming"`` to each route; scraped series have it."""
    (rule,) = of_kind("PrometheusRule")
    alerts = [entry for group in rule["spec"]["groups"] for entry in group["rules"]]
    without_series = [entry for entry in alerts if entry["expr"] == "vector(1)"]

    assert [entry["alert"] for entry in without_series] == ["QuerypulseWatchdog"]
    assert {entry["labels"]["namespace"] for entry in without_series} == {NAMESPACE}


# -- the watcher's image ----------------------------------------------------------------------

DOCKERFILE = ROOT / "deploy/watch/Dockerfile"


def test_the_watchers_image_installs_the_folder_of_wheels_and_runs_the_watcher():
    text = DOCKERFILE.read_text()
    makefile = (ROOT / "Makefile").read_text()
    python = re.search(r"^FROM python:(\d+\.\d+)-slim$", text, re.MULTILINE)[1]

    assert f"{python} " in re.search(r"for version in ([\d. ]+);", makefile)[1] + " "
    assert "--no-index --find-links /wheels querypulse\n" in text
    assert "source=wheels,target=/wheels" in text
    assert "--file deploy/watch/Dockerfile --tag registry.example.com/querypulse:" in text
    assert text.count('ENTRYPOINT ["querypulse"]') == 1
    security = pod_of(WATCHER)[1]["securityContext"]
    assert f"USER {security['runAsUser']}\n" in text


@pytest.mark.docker
def test_docker_builds_the_watchers_image_which_starts_as_its_user(tmp_path):
    subprocess.run(["make", "wheels"], cwd=ROOT, check=True, capture_output=True)
    build = ["docker", "build", "--quiet", "--file", str(DOCKERFILE), str(ROOT / "build")]
    image = subprocess.run(build, capture_output=True, text=True, check=True).stdout.strip()
    run = ["docker", "run", "--rm", "--read-only", image, "--version"]
    done = subprocess.run(run, capture_output=True, text=True, check=True)

    assert done.stdout == f"querypulse {version('querypulse')}\n"


# -- what the product has ---------------------------------------------------------------------


@pytest.mark.parametrize("name", [*DRIVERS, WATCHER])
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
    program, *words = container_of(WATCHER)["command"]
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

    others = manifests()["secret/Secret/querypulse-alertmanager"]["stringData"]
    assert {*keys.values(), *others.values()} == {""}
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
