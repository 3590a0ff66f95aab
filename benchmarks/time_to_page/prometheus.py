"""Prometheus as most people run it: the shipped rules, every 15 seconds."""

import json
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from .page_receiver import PROMETHEUS

RULES = Path(__file__).resolve().parents[2] / "dashboards" / "prometheus" / "rules.yaml"
INTERVAL = "15s"


@contextmanager
def prometheus(folder: Path, driver_url: str, receiver: str) -> Iterator[None]:
    """Scrapes the driver; ``receiver`` (host and port) is its Alertmanager."""
    config = folder / "prometheus.yml"
    config.write_text(json.dumps(_config(urlsplit(driver_url).netloc, receiver)))
    command = [
        "prometheus",
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{_free_port()}",
        "--log.level=error",
    ]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait(20)


def _config(driver: str, receiver: str) -> dict[str, object]:
    """YAML, of which JSON is a part."""
    manager = {"path_prefix": f"/{PROMETHEUS}", "static_configs": [{"targets": [receiver]}]}
    scraped = {
        "job_name": "spark",
        "honor_labels": True,
        "static_configs": [{"targets": [driver]}],
    }
    return {
        "global": {"scrape_interval": INTERVAL, "evaluation_interval": INTERVAL},
        "rule_files": [str(RULES)],
        "alerting": {"alertmanagers": [manager]},
        "scrape_configs": [scraped],
    }


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
