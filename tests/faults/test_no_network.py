"""Without a network, alerts are kept, and sent once it is there; each receiver has one thread."""

from __future__ import annotations

import errno
import socket
import threading

import pytest
from support.deliveries import incident
from support.http_double import HttpDouble
from support.patience import PATIENCE_SECONDS
from support.receivers import at

from querypulse.alerting.delivery import Delivery
from querypulse.core.guard import Guard
from querypulse.core.socket_deadline import PlainSocket
from querypulse.core.states import DeliveryOutcome


@pytest.fixture
def port():
    """A free port, at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def unreachable(*_):
    raise OSError(errno.ENETUNREACH, "Network is unreachable")


def no_name(*_, **__):
    raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")


NETWORKS = {
    "connection refused": None,
    "network unreachable": (PlainSocket, "connect", unreachable),
    "no DNS": (socket, "getaddrinfo", no_name),
}


@pytest.mark.fault(
    "Receivers",
    "No network: connections are refused, unreachable, or no name resolves",
    "The alert is kept, and sent once the network is there; one thread waits for each receiver",
)
@pytest.mark.parametrize("network", NETWORKS)
def test_alert_waits_for_the_network(network, port, monkeypatch):
    receivers = [at("webhook", f"http://localhost:{port}/{name}") for name in ("pager", "chat")]
    deliveries = [Delivery(receiver, Guard()) for receiver in receivers]
    before = set(threading.enumerate())
    with monkeypatch.context() as without:
        if NETWORKS[network] is not None:
            without.setattr(*NETWORKS[network])
        for delivery in deliveries:
            delivery.start()
            delivery.offer((incident(),))
        assert [delivery.flush(PATIENCE_SECONDS) for delivery in deliveries] == [False, False]
        threads = set(threading.enumerate()) - before
    assert all(delivery.outcomes[DeliveryOutcome.TRANSIENT.value] for delivery in deliveries)

    with HttpDouble(address=("127.0.0.1", port)) as double:
        assert [delivery.flush(PATIENCE_SECONDS) for delivery in deliveries] == [True, True]
        for delivery in deliveries:
            delivery.close(PATIENCE_SECONDS)

    assert sorted(request.path for request in double.requests) == ["/chat", "/pager"]
    assert len(threads) == len(deliveries)
