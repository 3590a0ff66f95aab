"""The broker of the tests in a container, with the settings of the broker in a process."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from support.patience import PATIENCE_SECONDS
from support.queries import until

from querypulse.examples.delta import broker

IMAGE = "apache/kafka:4.1.0"


class ContainerBroker:
    """May be started and killed repeatedly; its data lasts for the test session."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        port, controller = broker.free_ports(2)
        self.bootstrap_servers = f"127.0.0.1:{port}"
        self._address = "127.0.0.1", port
        self._environment = environment(port, controller, settings)
        self._container: Any = None

    def start(self) -> None:
        if self._container is None:
            from testcontainers.core.container import DockerContainer

            container = DockerContainer(IMAGE, network_mode="host").with_envs(**self._environment)
            self._container = container.start().get_wrapped_container()
        else:
            self._container.start()
        until(self._listens, "the broker in the container listens")

    def kill(self) -> None:
        self._container.kill()

    def _listens(self) -> bool:
        with suppress(OSError), socket.create_connection(self._address, timeout=PATIENCE_SECONDS):
            return True
        return False


def environment(port: int, controller: int, settings: Mapping[str, str]) -> dict[str, str]:
    """Properties of a broker in the form of the image: ``KAFKA_NODE_ID`` for ``node.id``."""
    listener = f"PLAINTEXT://127.0.0.1:{port}"
    properties = {
        **broker._SETTINGS,
        "listeners": f"{listener},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": listener,
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        **settings,
    }
    return {f"KAFKA_{key.upper().replace('.', '_')}": text for key, text in properties.items()}
