"""One client for all sources of a cluster and its credentials, for as long as one needs it."""

from __future__ import annotations

import pytest

from querypulse.listener.sources.shared_clients import SharedClients


class Config(dict):
    """A Java map."""

    def equals(self, other):
        return self == other


class Cluster:
    """Opens clients, and knows which are open."""

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


def test_nothing_is_opened_before_somebody_needs_it():
    cluster = Cluster()
    cluster.lease(servers="a:9092").release()

    assert cluster.opened == []


def test_sources_of_one_cluster_and_its_credentials_share_a_client():
    cluster = Cluster()
    first, second = (cluster.lease(servers="a:9092", password="x") for _ in range(2))

    assert first.client == second.client
    assert len(cluster.opened) == 1


@pytest.mark.parametrize(
    "other",
    [{"servers": "b:9092", "password": "x"}, {"servers": "a:9092", "password": "y"}],
    ids=["another cluster", "other credentials"],
)
def test_sources_of_another_cluster_or_with_other_credentials_do_not_share_it(other):
    cluster = Cluster()
    first, second = cluster.lease(servers="a:9092", password="x"), cluster.lease(**other)

    assert first.client != second.client
    assert cluster.open == [first.client, second.client]


def test_the_last_source_of_a_cluster_closes_its_client():
    cluster = Cluster()
    first, second, other = (cluster.lease(servers=name) for name in ("a", "a", "b"))
    for one in (first, second, other):
        assert one.client in cluster.open
    first.release()
    assert cluster.open == [second.client, other.client]
    second.release()

    assert cluster.open == [other.client]


def test_a_lease_counts_once_however_often_it_is_released():
    cluster = Cluster()
    first, second = cluster.lease(servers="a"), cluster.lease(servers="a")
    client = second.client
    first.release()
    first.release()

    assert cluster.open == [client]


def test_a_cluster_that_all_have_left_gets_a_new_client_when_one_returns():
    cluster = Cluster()
    first = cluster.lease(servers="a")
    before = first.client
    first.release()

    assert cluster.lease(servers="a").client != before
    assert len(cluster.open) == 1


def test_a_client_that_is_dropped_is_closed_for_all_and_opened_once_when_needed():
    cluster = Cluster()
    first, second = cluster.lease(servers="a"), cluster.lease(servers="a")
    before = first.client
    second.drop()
    assert cluster.open == []

    assert first.client == second.client != before
    assert cluster.opened == [before, first.client]
    first.release()
    second.release()
    assert cluster.open == []


def test_a_client_that_cannot_be_opened_is_tried_again():
    cluster = Cluster()
    one = cluster.lease(servers="a")
    cluster.refusal = OSError("No resolvable bootstrap urls")
    with pytest.raises(OSError, match="No resolvable"):
        _ = one.client
    one.drop()
    cluster.refusal = None

    assert one.client in cluster.open


def test_each_client_has_a_name_of_its_own_and_ours():
    first, second = Cluster(), Cluster()
    leases = [first.lease(servers="a"), first.lease(servers="b"), second.lease(servers="a")]
    names = {one.client for one in leases}

    assert len(names) == 3
    assert all(name.startswith("querypulse-admin-") for name in names)
