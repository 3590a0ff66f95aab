"""Without a network, alerts are kept, and sent once it is there."""

from __future__ import annotations

import errno
import socket
import threading

import pytest
from support.deliveries import PATIENCE_SECONDS, incident
from support.http_double import HttpDouble

from querypulse.alerting.delivery import Delivery
from querypulse.alerting.receivers.webhook import Webhook
from querypulse.core.guard import Guard
from querypulse.core.secret import Secret
from querypulse.core.socket_deadline import SocketDeadline
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
    "network unreachable": (SocketDeadline, "_connected", unreachable),
    "no DNS": (socket, "getaddrinfo", no_name),
}


@pytest.mark.fault(
    "Receivers",
    "No network: connections are refused, unreachable, or no name resolves",
    "The alert is kept, and sent once the network is there; one thread waits for each receiver",
)
@pytest.mark.parametrize("network", NETWORKS)
def test_alert_waits_for_the_network(network, port, monkeypatch):
    receivers = [Webhook(Secret(f"http://localhost:{port}/{name}")) for name in ("pager", "chat")]
    deliveries = [Delivery(one, Guard()) for one in receivers]
    before = threading.active_count()
    with monkeypatch.context() as without:
        if NETWORKS[network] is not None:
            without.setattr(*NETWORKS[network])
        for one in deliveries:
            one.start()
            one.offer((incident(),))
        assert [one.flush(PATIENCE_SECONDS) for one in deliveries] == [False, False]
        threads = threading.active_count() - before
    assert all(one.outcomes[DeliveryOutcome.TRANSIENT.value] for one in deliveries)

    with HttpDouble(address=("127.0.0.1", port)) as double:
        assert [one.flush(PATIENCE_SECONDS) for one in deliveries] == [True, True]
        for one in deliveries:
            one.close(PATIENCE_SECONDS)

    assert sorted(request.path for request in double.requests) == ["/chat", "/pager"]
    assert threads == len(deliveries)
