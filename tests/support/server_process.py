"""A real server on loopback, in a process of its own, which ends with its ``with`` block."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import requests

from querypulse.examples.delta.broker import free_ports

from .patience import PATIENCE_SECONDS, until


class ServerProcess:
    """Runs ``command``; ``url`` is its base URL, and it serves ``/-/ready``."""

    def __init__(self, command: Sequence[str], port: int, log: Path) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._name = command[0]
        self._path = log
        self._log = log.open("wb")
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log
        )

    def __enter__(self):
        try:
            until(self._is_ready, f"{self._name} is ready")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(PATIENCE_SECONDS)
        self._log.close()

    def _is_ready(self) -> bool:
        assert self._process.poll() is None, f"{self._name} has ended: {self._path.read_text()}"
        try:
            return requests.get(f"{self.url}/-/ready", timeout=PATIENCE_SECONDS).ok
        except requests.RequestException:
            return False


def free_port() -> int:
    """A port of loopback that stays free until a server binds it, also once more."""
    return free_ports(1)[0]
