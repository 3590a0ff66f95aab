"""All sources with one cluster and credentials share a client while any of them needs it."""

from __future__ import annotations

import weakref
from types import SimpleNamespace

import pytest

from querypulse.listener.sources.kafka import SharedClients


class Config(dict):
    """A Java map."""

    def equals(self, other):
        return self == other


class Cluster:
    """Opens clients, records the open ones, and how many were opened."""

    def __init__(self):
        self.open = []
        self.opened = 0
        self.refusal = None
        self.clients = SharedClients(SimpleNamespace(millis=float))

    def lease(self, **config):
        return self.clients.lease(Config(config))

    def connect(self, name):
        if self.refusal is not None:
            raise self.refusal
        self.opened += 1
        client = SimpleNamespace(name=name, close=lambda millis: self.open.remove(client))
        self.open.append(client)
        return client


def test_only_sources_with_the_same_cluster_and_credentials_share_a_client():
    cluster = Cluster()
    leases = [
        cluster.lease(servers=servers, password=password)
        for servers, password in (("a", "x"), ("a", "x"), ("b", "x"), ("a", "y"))
    ]
    assert cluster.opened == 0, "a client is opened at its first use"
    first, second, *others = (lease.get(cluster.connect).name for lease in leases)

    assert first == second
    assert len({first, *others}) == 3
    assert all(name.startswith("querypulse-admin-") for name in (first, *others))
    other = Cluster()
    assert first != other.lease(servers="a").get(other.connect).name


def test_last_release_closes_the_client_and_a_later_lease_opens_a_new_one():
    cluster = Cluster()
    first, second, other = (cluster.lease(servers=name) for name in ("a", "a", "b"))
    before, kept = first.get(cluster.connect), other.get(cluster.connect)
    cluster.clients.release(first)
    assert cluster.open == [before, kept]
    cluster.clients.release(second)
    assert cluster.open == [kept]

    assert cluster.lease(servers="a").get(cluster.connect) not in (before, kept)


def test_closed_client_is_reopened_once_for_all():
    cluster = Cluster()
    first, second = cluster.lease(servers="a"), cluster.lease(servers="a")
    before = first.get(cluster.connect)
    second.close(0)
    assert cluster.open == []

    assert first.get(cluster.connect) is second.get(cluster.connect) is not before
    assert cluster.opened == 2


def test_failed_open_is_retried():
    cluster = Cluster()
    shared = cluster.lease(servers="a")
    cluster.refusal = OSError("No resolvable bootstrap urls")
    with pytest.raises(OSError, match="No resolvable"):
        shared.get(cluster.connect)
    shared.close(0)
    cluster.refusal = None

    assert shared.get(cluster.connect) in cluster.open


def test_client_keeps_no_source_that_has_released_it():
    cluster = Cluster()

    class Source:
        def open(self, name):
            return cluster.connect(name)

    source, first, second = Source(), cluster.lease(servers="a"), cluster.lease(servers="a")
    before, held = first.get(source.open), weakref.ref(source)
    cluster.clients.release(first)
    del source, first

    assert held() is None
    assert second.get(cluster.connect) is before
