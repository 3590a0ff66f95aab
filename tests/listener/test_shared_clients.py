"""All sources with one cluster and credentials share a client while any of them needs it."""

from __future__ import annotations

import pytest

from querypulse.listener.sources.source import SharedClients


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
        self.clients = SharedClients(self.open.remove)

    def lease(self, **config):
        return self.clients.lease(Config(config), self._connect)

    def _connect(self, name):
        if self.refusal is not None:
            raise self.refusal
        client = f"{name}, {len(self.opened)}"
        self.opened.append(client)
        self.open.append(client)
        return client


def test_client_is_opened_on_first_use():
    cluster = Cluster()
    cluster.lease(servers="a:9092").release()

    assert cluster.opened == []


def test_sources_with_the_same_cluster_and_credentials_share_a_client():
    cluster = Cluster()
    first, second = (cluster.lease(servers="a:9092", password="x") for _ in range(2))

    assert first.client() == second.client()
    assert len(cluster.opened) == 1


@pytest.mark.parametrize(
    "other",
    [{"servers": "b:9092", "password": "x"}, {"servers": "a:9092", "password": "y"}],
    ids=["another cluster", "other credentials"],
)
def test_sources_with_another_cluster_or_credentials_do_not_share(other):
    cluster = Cluster()
    first, second = cluster.lease(servers="a:9092", password="x"), cluster.lease(**other)

    assert first.client() != second.client()
    assert cluster.open == [first.client(), second.client()]


def test_last_release_closes_the_client():
    cluster = Cluster()
    first, second, other = (cluster.lease(servers=name) for name in ("a", "a", "b"))
    for one in (first, second, other):
        assert one.client() in cluster.open
    first.release()
    assert cluster.open == [second.client(), other.client()]
    second.release()

    assert cluster.open == [other.client()]


def test_second_release_of_a_lease_does_nothing():
    cluster = Cluster()
    first, second = cluster.lease(servers="a"), cluster.lease(servers="a")
    client = second.client()
    first.release()
    first.release()

    assert cluster.open == [client]


def test_lease_after_the_last_release_opens_a_new_client():
    cluster = Cluster()
    first = cluster.lease(servers="a")
    before = first.client()
    first.release()

    assert cluster.lease(servers="a").client() != before
    assert len(cluster.open) == 1


def test_dropped_client_is_closed_and_reopened_once_for_all():
    cluster = Cluster()
    first, second = cluster.lease(servers="a"), cluster.lease(servers="a")
    before = first.client()
    second.drop()
    assert cluster.open == []

    assert first.client() == second.client() != before
    assert cluster.opened == [before, first.client()]
    first.release()
    second.release()
    assert cluster.open == []


def test_failed_open_is_retried():
    cluster = Cluster()
    one = cluster.lease(servers="a")
    cluster.refusal = OSError("No resolvable bootstrap urls")
    with pytest.raises(OSError, match="No resolvable"):
        _ = one.client()
    one.drop()
    cluster.refusal = None

    assert one.client() in cluster.open


def test_client_names_are_unique_and_prefixed():
    first, second = Cluster(), Cluster()
    leases = [first.lease(servers="a"), first.lease(servers="b"), second.lease(servers="a")]
    names = {one.client() for one in leases}

    assert len(names) == 3
    assert all(name.startswith("querypulse-admin-") for name in names)
