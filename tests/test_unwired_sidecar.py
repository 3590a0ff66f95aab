"""A sidecar whose listener is not added to Spark yet, or no more, and the book of who watches what."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from querypulse.sidecar import Settings, SettingsError, Sidecar
from querypulse.sidecar.registry import Registry
from querypulse.sidecar.sidecar import SIDECARS

HOOK = "https://hooks.example.com/services/hidden-path"


@pytest.mark.parametrize(
    "settings",
    [
        {"webhook_url": "nowhere"},
        {"pagerduty_routing_key": "short"},
        {"http_tls_key_file": "/k"},
        {"http_token_file": "/nowhere"},
    ],
)
def test_a_sidecar_of_unusable_settings_is_never_made(settings):
    with pytest.raises(SettingsError):
        Sidecar(Settings(**settings))


def test_until_its_listener_is_added_nothing_runs():
    sidecar = Sidecar(Settings(webhook_url=HOOK))

    assert (sidecar.url, sidecar.alerts(), sidecar.closed) == (None, (), False)
    assert not sidecar.flush(0.01)
    with pytest.raises(RuntimeError, match="watches nothing yet"):
        sidecar.snapshot()


def test_a_stop_of_a_query_that_nobody_knows_cannot_be_announced():
    with pytest.raises(ValueError, match="no query is called 'bronse'; known: \\[\\]"):
        Sidecar(Settings(http_port=-1)).expect_stop("bronse")


def test_closing_is_done_once_whatever_ran():
    sidecar = Sidecar(Settings())
    sidecar.close()
    sidecar.close()

    assert sidecar.closed


def test_a_closed_sidecar_is_not_brought_back_by_taking_its_listener_out():
    """Spark asks for the JVM listener to remove it, too."""
    sidecar = Sidecar(Settings(), spark=object())
    sidecar.close()
    sidecar._on_wired()

    assert sidecar.url is None


class SparkContext:
    """PySpark drops ``_jsc`` in ``stop()``."""

    def __init__(self):
        self._jsc = object()


def test_a_sidecar_that_could_not_start_is_not_the_one_attach_finds_next_time():
    """The second try in a notebook must not be handed a monitor that watches nothing."""
    context = SparkContext()
    sidecar = Sidecar(Settings(), spark=SimpleNamespace(sparkContext=context))
    with pytest.raises(AttributeError):
        sidecar._on_wired()

    assert SIDECARS.find(context) is None


@pytest.mark.contains_errors
def test_a_last_flush_that_fails_keeps_nothing_running():
    def broken(_):
        raise RuntimeError("cannot look")

    stopped = []
    sidecar = Sidecar(Settings())
    sidecar._parts = SimpleNamespace(flush=broken, stop=stopped.append)
    sidecar.close()

    assert len(stopped) == 1


# -- which sidecar watches which context ----------------------------------------------------------


class Watcher:
    """Watches until it is closed."""

    closed = False

    def close(self, timeout=0.0):
        self.closed = True


def test_a_context_is_watched_by_whom_it_was_given():
    registry, context, watcher = Registry(), SparkContext(), Watcher()
    registry.remember(context, watcher)

    assert registry.find(context) is watcher
    assert registry.find(SparkContext()) is None


def test_who_is_closed_watches_nothing():
    registry, context, watcher = Registry(), SparkContext(), Watcher()
    registry.remember(context, watcher)
    watcher.close()

    assert registry.find(context) is None


def test_the_watcher_of_a_stopped_context_makes_room_for_the_next():
    registry, old, living = Registry(), SparkContext(), SparkContext()
    watchers = Watcher(), Watcher(), Watcher()
    registry.remember(old, watchers[0])
    registry.remember(living, watchers[1])
    assert not watchers[0].closed
    old._jsc = None
    registry.close_stale()
    registry.remember(SparkContext(), watchers[2])

    assert [watcher.closed for watcher in watchers] == [True, False, False]
    assert registry.find(living) is watchers[1]
