"""Settings become parts, and what cannot be used is told before anything runs."""

from __future__ import annotations

import base64

import pytest

from querypulse.alerting.policy import Limits
from querypulse.alerting.receivers.pagerduty import EVENTS_URL
from querypulse.sidecar import Settings, SettingsError, wiring
from querypulse.sidecar.settings import QuerySettings

KEY = "R0123456789abcdefghijklmnopqrstu"
SECRET = "whsec_" + base64.b64encode(b"s" * 32).decode()
HOOK = "https://hooks.example.com/services/hidden-path"


@pytest.fixture
def file(tmp_path):
    """Writes a file; the answer is its path."""

    def write(content, name="secret"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    return write


def refused(call, **settings):
    with pytest.raises(SettingsError) as error:
        call(Settings(**settings))
    return str(error.value)


# -- policy -----------------------------------------------------------------------------------


def test_the_default_policy_is_the_contracts():
    policy = wiring.policy(Settings())

    assert (policy.expected, policy.overrides, policy.defaults) == ((), (), Limits())


def test_roster_and_limits_are_those_of_the_settings():
    policy = wiring.policy(
        Settings(
            expected_queries=("bronze",),
            stall_floor_seconds=1,
            stall_tolerance=2,
            start_grace_seconds=3,
            gone_grace_seconds=4,
        )
    )

    assert policy.expected == ("bronze",)
    assert policy.limits("anything") == Limits(1, 2, 3, 4, ignore=False)


def overriding(**queries):
    own = {
        pattern.replace("_", "*"): QuerySettings(**changes) for pattern, changes in queries.items()
    }
    return wiring.policy(Settings(stall_tolerance=7, queries=own))


def test_an_override_changes_what_it_names_and_nothing_else():
    policy = overriding(nightly_={"stall_floor_seconds": 3600})

    assert policy.limits("nightly_sales") == Limits(stall_floor_seconds=3600, stall_tolerance=7)
    assert policy.limits("hourly") == Limits(stall_tolerance=7)


def test_a_later_pattern_wins_where_both_match():
    policy = overriding(_={"ignore": True, "stall_tolerance": 1}, a_={"ignore": False})

    assert policy.limits("abc") == Limits(stall_tolerance=1, ignore=False)
    assert policy.limits("bcd") == Limits(stall_tolerance=1, ignore=True)


def test_an_override_of_zero_is_one():
    assert overriding(a={"gone_grace_seconds": 0}).limits("a").gone_grace_seconds == 0


@pytest.mark.parametrize("name", ["Nightly_x", "my_nightly", ""])
def test_a_pattern_matches_whole_names_and_minds_the_case(name):
    assert overriding(nightly_={"ignore": True}).limits(name).ignore is False


@pytest.mark.parametrize("interval", [0.05, 0.5, 60])
def test_a_report_is_not_stale_before_the_next_one_is_due(interval):
    policy = wiring.policy(Settings(probe_interval_seconds=interval))

    assert policy.probe_stale_seconds >= 2 * interval


@pytest.mark.parametrize(
    ("floor", "own", "seconds"),
    [
        (60, {}, 5),
        (3600, {}, 5),
        (8, {}, 2),
        (60, {"a": QuerySettings(stall_floor_seconds=2)}, 0.5),
        (8, {"a": QuerySettings(stall_floor_seconds=3600)}, 2),
        (8, {"a": QuerySettings(ignore=True)}, 2),
        (60, {"a": QuerySettings(stall_floor_seconds=4), "b": QuerySettings(stall_floor_seconds=2)}, 0.5),
    ],
)  # fmt: skip
def test_a_busy_query_is_looked_at_closely_well_before_any_window_ends(floor, own, seconds):
    settings = Settings(stall_floor_seconds=floor, queries=own)

    assert wiring.closer_after_seconds(settings) == seconds


# -- receivers --------------------------------------------------------------------------------


def names(**settings):
    return [receiver.name for receiver in wiring.receivers(Settings(**settings))]


def test_who_is_not_named_is_not_told():
    assert names() == []


def test_each_place_gets_its_receiver(file):
    assert names(webhook_url=HOOK) == ["webhook"]
    assert names(pagerduty_routing_key=KEY) == ["pagerduty"]
    assert names(pagerduty_routing_key_file=file(KEY + "\n")) == ["pagerduty"]
    assert names(webhook_url=HOOK, pagerduty_routing_key=KEY) == ["webhook", "pagerduty"]


def test_a_secret_is_read_from_its_file(file):
    settings = Settings(webhook_url=HOOK, webhook_secret_file=file(f" {SECRET}\n"))

    assert wiring.receivers(settings)[0]._key == b"s" * 32


def test_without_a_secret_nothing_is_signed():
    assert wiring.receivers(Settings(webhook_url=HOOK))[0]._key is None


@pytest.mark.parametrize("url", [None, "https://events.eu.pagerduty.com/v2/enqueue"])
def test_pagerduty_is_the_us_one_unless_told_otherwise(url):
    (receiver,) = wiring.receivers(Settings(pagerduty_routing_key=KEY, pagerduty_url=url))

    assert receiver._poster._url == (url or EVENTS_URL)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/x", "http://localhost/x", "http://[::1]/x"])
def test_this_machine_may_be_told_over_plain_http(url):
    assert names(webhook_url=url) == ["webhook"]


def test_another_machine_may_be_told_over_plain_http_only_when_allowed():
    url = "http://alerts.example.com/hidden-path"

    assert names(webhook_url=url, allow_http=True) == ["webhook"]
    message = refused(wiring.receivers, webhook_url=url)
    assert "webhook_url" in message
    assert "hidden-path" not in message


NOWHERE = ["hooks.example.com/hidden-path", "ftp://h/hidden-path", "https://", "https://:8/x",
           "https://user:hidden-path@[::1", "https://h:hidden-path/x"]  # fmt: skip


@pytest.mark.parametrize("name", ["webhook_url", "pagerduty_url"])
@pytest.mark.parametrize("url", NOWHERE)
def test_a_place_that_cannot_be_told_is_named_and_its_secret_kept(name, url):
    message = refused(wiring.receivers, pagerduty_routing_key=KEY, **{name: url})

    assert name in message
    assert "hidden-path" not in message


def test_an_empty_webhook_is_no_way_to_have_none():
    assert "webhook_url" in refused(wiring.receivers, webhook_url="")


@pytest.mark.parametrize("key", ["short-hidden", "x" * 33, " "])
def test_a_key_that_is_none_is_refused_without_showing_it(key):
    message = refused(wiring.receivers, pagerduty_routing_key=key)

    assert "pagerduty_routing_key" in message
    assert "hidden" not in message
    assert "xx" not in message


def test_an_empty_key_is_refused_too():
    """An empty variable would otherwise mean that nobody is told, in silence."""
    assert "pagerduty_routing_key" in refused(wiring.receivers, pagerduty_routing_key="")


@pytest.mark.parametrize("content", ["plain-hidden", "whsec_hidden!", "whsec_" + "aGk=", "whsec_"])
def test_a_webhook_secret_that_is_none_is_refused_without_showing_it(file, content):
    message = refused(wiring.receivers, webhook_url=HOOK, webhook_secret_file=file(content))

    assert "webhook_secret" in message
    assert "hidden" not in message


# -- files with secrets -----------------------------------------------------------------------

FILES = ["webhook_secret_file", "pagerduty_routing_key_file", "http_token_file"]


def use(settings):
    wiring.receivers(settings)
    wiring.http_access(settings)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("content", [None, "", " \n", b"\xff\xfe\x00"])
def test_a_secret_file_that_holds_none_is_named(file, tmp_path, name, content):
    path = str(tmp_path / "missing") if content is None else file(content)
    message = refused(use, webhook_url=HOOK, **{name: path})

    assert repr(name) in message
    assert path in message


@pytest.mark.parametrize("name", FILES)
def test_a_folder_is_no_secret_file(tmp_path, name):
    assert repr(name) in refused(use, webhook_url=HOOK, **{name: str(tmp_path)})


def test_white_space_around_a_secret_is_not_part_of_it(file):
    assert wiring.read_secret("http_token_file", file("\n  token \r\n")) == "token"
    assert wiring.read_secret("http_token_file", None) is None
