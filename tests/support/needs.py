"""What tests need besides Python, by marker, and what to install where it is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterable
from functools import cache, partial

from support.patience import PATIENCE_SECONDS

OPT_IN = {"docker", "grafana", "soak", "collector", "kubectl"}
"""What no system package provides, or what takes too long: these tests run where they can."""
IN_TEST_ALL = {
    *("prometheus", "pushgateway", "alertmanager", "browser", "iceberg", "connect", "yarn"),
    *OPT_IN,
}
"""What ``make test`` leaves to ``make test-all``, so that it installs no system package."""


def missing(markers: Iterable[str]) -> dict[str, str]:
    """Return what tests with these markers lack here, as a sentence by marker."""
    return {marker: reason for marker in sorted(markers) if (reason := _missing(marker))}


@cache
def _missing(marker: str) -> str:
    return _CHECKS[marker]() if marker in _CHECKS else ""


def _programs(what: str, *commands: str) -> str:
    return "" if all(map(shutil.which, commands)) else f"needs {what}"


def _variable(name: str, what: str) -> str:
    return "" if name in os.environ else f"needs {name}{what}"


def _java() -> str:
    if shutil.which("java") or "JAVA_HOME" in os.environ:
        return ""
    return "needs Java, 17 or newer for Spark 4 (Debian: openjdk-17-jre-headless)"


def _connector(name: str) -> str:
    from support import connectors

    return _java() or connectors.trouble(name)


def _yarn() -> str:
    from support import connectors, yarn

    return _java() or connectors.trouble_of(yarn.jars)


def _connect() -> str:
    from support import connect_server, connectors

    return _java() or connectors.trouble_of(connect_server.server_jars)


@cache
def docker_trouble(*arguments: str) -> str:
    """Why a command of Docker does not succeed here; empty when it does."""
    try:
        done = subprocess.run(["docker", *arguments], capture_output=True, timeout=PATIENCE_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return "no Docker engine answers"
    return "" if done.returncode == 0 else f"docker {' '.join(arguments)} does not succeed"


def _docker() -> str:
    trouble = docker_trouble("info") or docker_trouble("compose", "version")
    return f"needs a Docker engine with Compose: {trouble}" if trouble else ""


def _grafana() -> str:
    if "GRAFANA_HOME" in os.environ or not docker_trouble("info"):
        return ""
    return "needs a Docker engine, or GRAFANA_HOME (a folder with Grafana's bin, conf, public)"


_CHECKS: dict[str, Callable[[], str]] = {
    "prometheus": partial(
        _programs, "Prometheus and promtool (Debian: prometheus)", "prometheus", "promtool"
    ),
    "pushgateway": partial(
        _programs, "the Pushgateway (Debian: prometheus-pushgateway)", "prometheus-pushgateway"
    ),
    "alertmanager": partial(
        _programs, "Alertmanager (Debian: prometheus-alertmanager)", "prometheus-alertmanager"
    ),
    "kubectl": partial(_programs, "kubectl, of any version", "kubectl"),
    "browser": partial(_programs, "Chromium (Debian: chromium)", "chromium"),
    "soak": partial(_variable, "SOAK_MINUTES", " (make soak)"),
    "collector": partial(_variable, "OTELCOL", ", the program of an OpenTelemetry Collector"),
    "spark": _java,
    "kafka": partial(_connector, "kafka"),
    "delta": partial(_connector, "delta"),
    "iceberg": partial(_connector, "iceberg"),
    "connect": _connect,
    "yarn": _yarn,
    "docker": _docker,
    "grafana": _grafana,
}
