"""The Kafka tests also run with a broker in a container, if Docker is available."""

from __future__ import annotations

import pytest
from support.connectors import broker_jars
from support.kafka_container import ContainerBroker, environment

from querypulse.examples.delta.broker import Broker

SETTINGS = {"log.cleaner.backoff.ms": "200"}


@pytest.mark.spark
@pytest.mark.kafka
def test_broker_in_a_container_has_the_settings_of_one_in_a_process(tmp_path):
    Broker(broker_jars(), tmp_path, SETTINGS)
    lines = (tmp_path / "server.properties").read_text().splitlines()
    names = {line.partition("=")[0] for line in lines} - {"log.dirs"}

    assert set(environment(1, 2, SETTINGS)) == {
        f"KAFKA_{name.upper().replace('.', '_')}" for name in names
    }


def test_broker_in_a_container_advertises_a_reachable_address():
    given = environment(1001, 1002, {})

    assert given["KAFKA_ADVERTISED_LISTENERS"] == "PLAINTEXT://127.0.0.1:1001"
    assert given["KAFKA_LISTENERS"].endswith(",CONTROLLER://127.0.0.1:1002")
    assert given["KAFKA_CONTROLLER_QUORUM_VOTERS"] == "1@127.0.0.1:1002"
    assert ContainerBroker({}).bootstrap_servers.startswith("127.0.0.1:")
