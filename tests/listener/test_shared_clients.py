"""All sources with one cluster and credentials share a client while any of them needs it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from querypulse.listener.sources.kafka import SharedClients


class Config(dict):
    """A Java map."""

    def equals(self, other):
        return self == other


class Cluster:
    """Opens clients and records the open ones."""

    def __init__(self):
        self.open = []
        self.opened = []
        self.refusal = None
        self.clients = SharedClients(SimpleNamespace(millis=float))

    def lease(self, **config):
        return self.clients.lease(Config(config))

    def use(self, shared):
        return shared.get(self._connect)

    def _connect(self, name):
        if self.refusal is not None:
            raise self.refusal
        client = SimpleNamespace(name=name, close=lambda millis: self.open.remove(client))
        self.opened.append(client)
        self.open.append(client)
        return client


@pytest.mark.parametrize(
    ("other", "is_shared"),
    [
        ({"servers": "a:9092", "password": "x"}, True),
        ({"servers": "b:9092", "password": "x"}, False),
        ({"servers": "a:9092", "password": "y"}, False),
    ],
    ids=["equal", "another cluster", "other credentials"],
)
def test_only_sources_with_the_same_cluster_and_credentials_share_a_client(other, is_shared):
    cluster = Cluster()
    first, second = cluster.lease(servers="a:9092", password="x"), cluster.lease(**other)

    assert (cluster.use(first) == cluster.use(second)) is is_shared
    assert len(cluster.opened) == (1 if is_shared else 2)


def test_last_release_closes_the_client_and_a_later_lease_opens_a_new_one():
    cluster = Cluster()
    first, second, other = (cluster.lease(servers=name) for name in ("a", "a", "b"))
    assert cluster.opened == [], "a client is opened at its first use"
    names = [cluster.use(client) for client in (first, second, other)]
    cluster.clients.release(first)
    assert cluster.open == names[1:]
    cluster.clients.release(second)
    assert cluster.open == [names[2]]

    assert cluster.use(cluster.lease(servers="a")) not in names


def test_closed_client_is_reopened_once_for_all():
    cluster = Cluster()
    first, second = cluster.lease(servers="a"), cluster.lease(servers="a")
    before = cluster.use(first)
    second.close()
    assert cluster.open == []

    assert cluster.use(first) == cluster.use(second) != before
    assert cluster.opened == [before, cluster.use(first)]


def test_failed_open_is_retried():
    cluster = Cluster()
    shared = cluster.lease(servers="a")
    cluster.refusal = OSError("No resolvable bootstrap urls")
    with pytest.raises(OSError, match="No resolvable"):
        cluster.use(shared)
    shared.close()
    cluster.refusal = None

    assert cluster.use(shared) in cluster.open


def test_client_names_are_unique_and_prefixed():
    first, second = Cluster(), Cluster()
    names = {
        cluster.use(cluster.lease(servers=servers)).name
        for cluster, servers in ((first, "a"), (first, "b"), (second, "a"))
    }

    assert len(names) == 3
    assert all(name.startswith("querypulse-admin-") for name in names)
