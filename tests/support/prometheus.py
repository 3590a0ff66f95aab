"""A real Prometheus on loopback: it scrapes drivers every second and evaluates the shipped rules."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests
import yaml

from .patience import PATIENCE_SECONDS
from .server_process import ServerProcess, free_port


def promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The exit code and the output of promtool."""
    return subprocess.run(
        ["promtool", *arguments], capture_output=True, text=True, check=False, timeout=120
    )


def accepted(*arguments: object) -> str:
    """The output of promtool, which must accept what it is given."""
    done = promtool(*map(str, arguments))
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def assert_valid(expressions: Sequence[str], folder: Path) -> None:
    """Each expression becomes a recording rule, because promtool parses those."""
    rules = [{"record": f"line:{at}", "expr": text} for at, text in enumerate(expressions)]
    file = folder / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "expressions", "rules": rules}]}))
    assert f"{len(rules)} rules found" in accepted("check", "rules", "--lint=none", file)


class RealPrometheus(ServerProcess):
    """Scrapes each of ``drivers`` (base URLs) as ``job``, notifies ``alertmanagers`` (base URLs).

    ``target_labels``: the labels that service discovery would give every target.
    """

    def __init__(
        self,
        folder: Path,
        drivers: Sequence[str],
        *,
        job: str = "spark",
        rules: Sequence[Path] = (),
        alertmanagers: Sequence[str] = (),
        target_labels: Mapping[str, str] | None = None,
    ) -> None:
        config = folder / "prometheus.yml"
        scraped = [target | {"labels": dict(target_labels or {})} for target in _targets(drivers)]
        config.write_text(yaml.safe_dump(_config(scraped, job, rules, alertmanagers)))
        port = free_port()
        command = [
            "prometheus",
            f"--config.file={config}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--storage.tsdb.retention.time=2h",
            # By default, a failed first notification is repeated after a minute.
            "--rules.alert.resend-delay=3s",
            "--log.level=warn",
        ]
        super().__init__(command, port, folder / "prometheus.log")

    def query(self, promql: str) -> list[dict[str, Any]]:
        """An instant vector: ``metric`` (labels) and ``value`` (time, text) of each series."""
        series: list[dict[str, Any]] = self.get("query", {"query": promql})["result"]
        return series

    def alerts(self) -> list[dict[str, Any]]:
        """Its pending and firing alerts: ``labels``, ``annotations``, ``state``."""
        alerts: list[dict[str, Any]] = self.get("alerts", {})["alerts"]
        return alerts

    def get(self, what: str, parameters: Mapping[str, str]) -> Any:
        """The ``data`` of an answer of its HTTP API; a rejected query fails the test."""
        url = f"{self.url}/api/v1/{what}"
        answer = requests.get(url, params=parameters, timeout=PATIENCE_SECONDS).json()
        assert answer["status"] == "success", (what, parameters, answer)
        return answer["data"]


def _config(
    scraped: Sequence[Mapping[str, Any]],
    job: str,
    rules: Sequence[Path],
    alertmanagers: Sequence[str],
) -> dict[str, Any]:
    return {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(path) for path in rules],
        "alerting": {"alertmanagers": [{"static_configs": _targets(alertmanagers)}]},
        "scrape_configs": [
            {"job_name": job, "honor_labels": True, "static_configs": list(scraped)}
        ],
    }


def _targets(urls: Sequence[str]) -> list[dict[str, Any]]:
    return [{"targets": [urlsplit(url).netloc for url in urls]}]
