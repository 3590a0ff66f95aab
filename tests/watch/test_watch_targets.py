"""Targets of the watcher: URLs, a file of URLs, DNS names; and invalid targets."""

from __future__ import annotations

import pytest

from querypulse.settings.settings import SettingsError
from querypulse.watch import targets
from querypulse.watch.client import Endpoint
from querypulse.watch.targets import Targets, endpoint_of, polled
from querypulse.watch.tracker import TargetTracker


@pytest.fixture
def dns(monkeypatch):
    """DNS names that the test sets; other names cannot be resolved."""
    addresses = {}

    def resolve(host, port, **_):
        if host not in addresses:
            raise OSError("Name or service not known")
        return [(2, 1, 6, "", (address, 0)) for address in addresses[host]]

    monkeypatch.setattr(targets.socket, "getaddrinfo", resolve)
    return addresses


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://a:9719", "http://a:9719"),
        ("https://a", "https://a"),
        ("http://a", "http://a"),
        ("http://a:9719/metrics", "http://a:9719"),
        ("http://a:9719/status/", "http://a:9719"),
        ("http://a:9719/watch", "http://a:9719"),
        ("a:9719/", "http://a:9719"),
        ("a", "http://a:9719"),
        ("driver-a.prod.svc", "http://driver-a.prod.svc:9719"),
        ("10.0.0.7", "http://10.0.0.7:9719"),
        ("10.0.0.7:9719", "http://10.0.0.7:9719"),
        ("[fd00::1]", "http://[fd00::1]:9719"),
        ("http://[fd00::1]:9719", "http://[fd00::1]:9719"),
    ],
)
def test_a_host_is_polled_at_our_port_and_a_page_of_ours_is_ignored(url, shown):
    assert endpoint_of(url, "here") == Endpoint(shown)


@pytest.mark.parametrize(
    "url", ["https://spark.example.com/orders", "http//a:9719", "http:/a:9719", "a/b:9719"]
)
def test_a_path_that_is_no_page_of_ours_is_rejected_because_it_would_not_be_polled(url):
    with pytest.raises(match=r"list line 3: .*without a path"):
        endpoint_of(url, "list line 3")


@pytest.mark.parametrize(
    ("url", "port"), [("a", 9719), ("http://a", 80), ("https://a", 443), ("http://a:9720", 9720)]
)
def test_the_port_that_is_polled_is_named(url, port):
    line = polled(endpoint_of(url, "here"))

    assert f":{port}/status" in line
    assert ("9719" in line) == (port not in {9720, 443})


def test_drivers_are_watched_in_the_order_of_the_list():
    tracker = TargetTracker(15.0, 5.0)
    endpoints = [Endpoint(f"http://d{number}:9719") for number in range(20)]
    tracker.listed(reversed(endpoints[:10]))
    tracker.listed([*endpoints, *endpoints])

    known = [driver.endpoint for driver in tracker.drivers]
    assert known == [*reversed(endpoints[:10]), *endpoints[10:]]


def test_only_loopback_hosts_are_this_machine():
    hosts = dict.fromkeys(["localhost", "127.0.0.1", "127.8.8.8", "[::1]"], True)
    hosts |= dict.fromkeys(["localhost.example.com", "10.0.0.1", "[fd00::1]"], False)

    assert {host: endpoint_of(f"http://{host}:9719", "here").loopback for host in hosts} == hosts


@pytest.mark.parametrize(
    "url", ["", "ftp://a", "http://", "http://a:port", "http://a:99999", "http://[::1", "file:///x"]
)
def test_an_invalid_url_is_rejected_with_its_source_and_the_allowed_form(url):
    with pytest.raises(match=r"list line 3.*http://"):
        endpoint_of(url, "list line 3")


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("driver-1,driver-2", "of its own"),
        ("http://driver-1:9719,http://driver-2:9719", "of its own"),
        ("::1", "[::1]"),
        ("http://::1", "[::1]"),
        ("fd00::1:9719", "[::1]"),
        ("a:0", "port 0"),
        ("http://a:0", "port 0"),
        ("http://a:9719/status?x=1", "a query"),
        ("http://a:9719#x", "a fragment"),
        *(
            (url, "not a URL to watch")
            for url in ["a b", "*", "..", " a ", "a\tb", "a\n", "-a", "a..b"]
        ),
        *(
            (url, "not a URL to watch")
            for url in ["10.0.0.256", "5", "http://*:9719", "[::1", "a%20b"]
        ),
    ],
)
def test_what_is_no_host_is_rejected_before_it_pages_as_a_driver_that_is_down(url, reason):
    with pytest.raises(SettingsError, match=r"^the command line: ") as refused:
        endpoint_of(url, "the command line")
    assert reason in str(refused.value)
    assert "; allowed: a host, " in str(refused.value)


HIDDEN = """http://me:hidden@a:9719 http://hidden@a:9719 htps://admin:hidden@a ftp://u:hidden@h:1
//u:hidden@h/x u:1234#hidden@h http://a/x?token=hidden ftp://a/?hidden ftp://a/hidden
https://hooks.example.com/services/hidden a/hidden a?hidden a#hidden ftp://a#hidden token=hidden"""


@pytest.mark.parametrize("url", [*HIDDEN.split(), "Authorization: Bearer hidden123456789"])
def test_a_password_in_a_url_is_rejected_and_not_shown(url, tmp_path):
    file = tmp_path / "drivers"
    file.write_text(f"{url}\n")
    for make in (lambda: endpoint_of(url, "here"), lambda: Targets([], str(file), [])):
        with pytest.raises(SettingsError) as refused:
            make()
        assert "hidden" not in str(refused.value)


def test_a_user_in_a_url_is_rejected_with_the_place_of_a_token():
    with pytest.raises(SettingsError, match="--token-file"):
        endpoint_of("http://me:hidden@a:9719", "the command line")


def test_an_empty_list_of_targets_is_rejected():
    with pytest.raises(match="nothing to watch"):
        Targets([], None, [])


def test_urls_of_arguments_and_of_the_file_which_is_read_again_are_one_list(tmp_path):
    file = tmp_path / "drivers"
    file.write_text("# ours\nhttp://a:1\n\n  b:2  # theirs\n")
    watched = Targets(["b:2", "http://b:2"], str(file), [])
    assert watched.now() == [Endpoint("http://b:2"), Endpoint("http://a:1")]
    file.write_text("")
    assert watched.now() == [Endpoint("http://b:2")]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a:1\nftp://b\n", "drivers line 2: 'ftp://b'"),
        (None, "--targets /.*/drivers"),
        (b"\xff\xfe", "--targets /.*/drivers"),
    ],
)
def test_a_wrong_line_or_a_file_that_cannot_be_read_is_named(tmp_path, content, message):
    file = tmp_path / "drivers"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(match=message):
        Targets([], str(file), [])


def pod(address):
    return Endpoint("http://drivers:9719", address)


def test_a_name_is_resolved_again_and_keeps_its_last_addresses_while_it_cannot_be(dns):
    watched = Targets([], None, ["http://drivers:9719"])
    assert watched.now() == [pod("")]
    dns["drivers"] = ["10.0.0.2", "10.0.0.1", "10.0.0.1"]
    assert watched.now() == [pod("10.0.0.1"), pod("10.0.0.2")]
    dns["drivers"] = ["10.0.0.2"]
    assert watched.now() == [pod("10.0.0.2")]
    del dns["drivers"]
    assert watched.now() == [pod("10.0.0.2")]


def test_an_address_is_shown_beside_its_name():
    assert pod("10.0.0.1").shown == "http://drivers:9719 (10.0.0.1)"
