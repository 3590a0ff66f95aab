"""Settings become components, and unusable settings are reported before anything runs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import trustme
from support.deliveries import incident

from querypulse.alerting.policy import Limits
from querypulse.alerting.receivers.receiver import DeliveryError
from querypulse.core.folders import LocalFolder
from querypulse.core.guard import Guard
from querypulse.core.states import DeliveryOutcome
from querypulse.listener.state.flow import PATH, TABLE, TOPIC, Dataset, Declared
from querypulse.settings.settings import QuerySettings
from querypulse.sidecar import Settings, SettingsError, assemble


def refused(call, **settings):
    with pytest.raises(SettingsError) as error:
        call(Settings(**settings))
    return str(error.value)


def test_expected_queries_and_limits_come_from_the_settings():
    limits = {"stall_floor_seconds": 1, "start_grace_seconds": 3, "gone_grace_seconds": 4}
    policy = assemble.make_policy(Settings(expected_queries=("bronze",), **limits))

    assert policy.expected == ("bronze",)
    assert policy.limits("anything") == Limits(**limits)


def test_an_override_changes_only_its_own_settings_and_a_later_one_wins():
    overrides = {
        "n*": {"ignore": True, "stall_critical_seconds": 1},
        "nightly*": {"stall_floor_seconds": 3600, "gone_grace_seconds": 0, "ignore": False},
    }
    queries = {pattern: QuerySettings(**own) for pattern, own in overrides.items()}
    policy = assemble.make_policy(Settings(stall_critical_seconds=7, queries=queries))

    assert policy.limits("nightly_sales") == Limits(
        stall_floor_seconds=3600, stall_critical_seconds=1, gone_grace_seconds=0, ignore=False
    )
    assert policy.limits("nine") == Limits(stall_critical_seconds=1, ignore=True)
    assert policy.limits("hourly") == Limits(stall_critical_seconds=7)


@pytest.mark.parametrize("interval", [0.05, 0.5, 60])
def test_a_report_is_not_stale_before_the_next_one_is_due(interval):
    policy = assemble.make_policy(Settings(probe_interval_seconds=interval))

    assert policy.probe_stale_seconds >= 2 * interval


@pytest.mark.parametrize(
    ("floor", "own", "shortest"),
    [
        (60, {"stall_floor_seconds": 2}, 2),
        (8, {"stall_floor_seconds": 3600}, 8),
        (8, {"ignore": True}, 8),
    ],
)
def test_shortest_floor_is_that_of_any_query(floor, own, shortest):
    settings = Settings(stall_floor_seconds=floor, queries={"a": own})

    assert assemble.shortest_floor_seconds(settings) == shortest


def declared(text, side="writes", pattern="bronze"):
    own = QuerySettings(**{side: (text,)})
    return assemble.make_policy(Settings(queries={pattern: own})).declared


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("delta:/lake/bronze", Dataset(PATH, "/lake/bronze")),
        ("delta:s3a://lake/bronze/", Dataset(PATH, "/bronze", ("s3://lake",))),
        ("abfs://box@lake/bronze", Dataset(PATH, "/bronze", ("abfss://box@lake",))),
        ("/lake/bronze", Dataset(PATH, "/lake/bronze")),
        ("file:/lake/bronze", Dataset(PATH, "/lake/bronze", ("file://",))),
        ("kafka:orders", Dataset(TOPIC, "orders")),
        ("kafka://b2:9092,b1:9092/orders", Dataset(TOPIC, "orders", ("b1:9092", "b2:9092"))),
        ("iceberg:local.db.orders", Dataset(TABLE, "local.db.orders")),
        ("table:db.orders", Dataset(TABLE, "db.orders")),
    ],
)
def test_place_is_declared(text, place):
    assert declared(text) == (Declared("bronze", writes=(place,)),)
    assert declared(text, "reads") == (Declared("bronze", reads=(place,)),)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "bronze",
        "lake/bronze",
        "delta:",
        "delta:lake/bronze",
        "dleta:/lake/bronze",
        "kafka:",
        "kafka://b:9092/",
        "kafka:///orders",
        "kafka:a/b",
        "iceberg:orders",
        "table:a..b",
        "s3://",
    ],
)
def test_declaration_that_could_never_match_is_refused(text):
    with pytest.raises(SettingsError) as refused:
        declared(text)

    start = f"setting 'queries', 'writes' of 'bronze': {text!r} could never match; write "
    assert str(refused.value).startswith(f"{start}'delta:/lake/bronze'")


def test_empty_name_pattern_is_refused():
    with pytest.raises(SettingsError, match="an empty name pattern matches no query"):
        declared("kafka:orders", pattern="")


@pytest.fixture(scope="module")
def pem(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pem")
    authority = trustme.CA()
    server, other = (authority.issue_cert("localhost") for _ in range(2))
    paths = {name: str(folder / name) for name in ("ca", "cert", "key", "other")}
    authority.cert_pem.write_to_path(paths["ca"])
    server.cert_chain_pems[0].write_to_path(paths["cert"])
    server.private_key_pem.write_to_path(paths["key"])
    other.private_key_pem.write_to_path(paths["other"])
    return SimpleNamespace(**paths)


def test_token_and_certificate_are_read_from_their_files(file, pem):
    token, tls = assemble.http_access(
        Settings(
            http_token_file=file("token\n"),
            http_tls_cert_file=pem.cert,
            http_tls_key_file=pem.key,
            http_tls_client_ca_file=pem.ca,
        )
    )

    assert token.known == "token"
    assert (tls.cert_file, tls.key_file, tls.client_ca_file) == (pem.cert, pem.key, pem.ca)


@pytest.mark.parametrize(
    ("cert", "key", "authority"),
    [
        ("cert", None, None),
        (None, "key", None),
        (None, None, "ca"),
        ("nowhere", "key", None),
        ("cert", "nowhere", None),
        ("cert", "other", None),
        ("key", "cert", None),
        ("cert", "key", "nowhere"),
        ("cert", "key", "key"),
    ],
)
def test_unusable_certificates_are_reported_before_the_server_starts(pem, cert, key, authority):
    message = refused(
        assemble.http_access,
        http_tls_cert_file=cert and getattr(pem, cert, cert),
        http_tls_key_file=key and getattr(pem, key, key),
        http_tls_client_ca_file=authority and getattr(pem, authority, authority),
    )

    assert "http_tls" in message


@pytest.mark.parametrize("content", [None, " \n", b"\xff\xfe\x00"])
def test_a_token_file_without_a_token_is_named(file, tmp_path, content):
    path = str(tmp_path / "missing") if content is None else file(content)
    message = refused(assemble.http_access, http_token_file=path)

    assert "'http_token_file'" in message
    assert path in message


@pytest.mark.parametrize(
    "settings",
    [
        {"http_host": "localhost"},
        {"http_host": "127.0.0.53"},
        {"http_host": "::1"},
        {"http_host": "0.0.0.0", "http_token_file": "/t"},
        {"http_host": "0.0.0.0", "http_tls_client_ca_file": "/ca"},
        {"http_host": "0.0.0.0", "http_allow_anonymous": True},
        {"http_host": "0.0.0.0", "http_port": -1},
    ],
)
def test_server_may_start_if_readers_are_authenticated_or_local(settings):
    assert assemble.refused_address(Settings(**settings)) == ""


@pytest.mark.fault("Settings", "A public address without a token", "The server stays off")
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "driver.example.com"])
def test_server_stays_off_if_anybody_could_read(host):
    message = assemble.refused_address(Settings(http_host=host, http_tls_cert_file="/c"))

    for name in ("http_host", host, "http_token_file", "http_allow_anonymous"):
        assert name in message


ROTATED = {
    "alertmanager_credentials_file": ("a" * 32, {"alertmanager_urls": ["http://127.0.0.1:1"]}),
    "pagerduty_routing_key_file": ("0123456789abcdef" * 2, {}),
    "slack_webhook_url_file": ("http://127.0.0.1:1/x", {}),
    "webhook_url_file": ("http://127.0.0.1:1/x", {}),
    "webhook_secret_file": ("whsec_" + "A" * 32, {"webhook_url": "http://127.0.0.1:1/x"}),
}
"""By setting: a good content of its file, and the other settings that it needs."""


@pytest.mark.parametrize("name", ROTATED)
def test_delivery_after_a_bad_rotation_names_the_setting_as_the_user_wrote_it(name, tmp_path):
    file = tmp_path / "secret"
    good, others = ROTATED[name]
    file.write_text(good)
    (receiver,) = assemble.make_receivers(Settings(**{name: str(file)}, **others))
    file.write_text("two words\n")

    with pytest.raises(DeliveryError, match=f"^{name} must ") as error:
        receiver.send(incident("bronze"), 0.0)
    assert error.value.answer is DeliveryOutcome.MISCONFIGURED
    assert "two words" not in str(error.value)


# -- folders ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ({}, None),
        ({"spool_dir": "/spool/"}, "/spool/incidents"),
        ({"spool_dir": "spool"}, "spool/incidents"),
        ({"incidents_dir": "/i"}, "/i"),
        ({"spool_dir": "s3a://team/spool", "incidents_dir": "/i"}, "/i"),
    ],
)
def test_recordings_are_on_a_disk_beside_the_spool_or_where_a_setting_says(given, place):
    folder = assemble.recordings_folder(Settings(**given), None)

    assert (None if folder is None else folder.place) == place
    assert folder is None or isinstance(folder, LocalFolder)


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ({"spool_dir": "s3a://team/spool"}, "s3a://team/spool/incidents"),
        ({"spool_dir": "/spool", "incidents_dir": "hdfs:/i"}, "hdfs:/i"),
    ],
)
def test_uri_is_opened_by_hadoop(given, place):
    assert assemble.recordings_folder(Settings(**given), str.upper) == place.upper()


@pytest.mark.parametrize("setting", ["spool_dir", "incidents_dir"])
def test_uri_is_an_error_where_no_jvm_opens_it(setting):
    def make(settings):
        assemble.make_notifier(settings, "etl", Guard(), (), restore=list)
        assemble.recordings_folder(settings, None)

    given = {setting: "s3a://team/x"}
    for text in (
        refused(make, **given),
        refused(lambda of: assemble.recordings_folder(of, None), **given),
    ):
        assert text.startswith(f"setting '{setting}': s3a://team/x")
        assert "is opened by Hadoop" in text
        assert "give a local path" in text


def test_path_is_a_path_with_and_without_a_jvm():
    assert assemble.folder_at("a:b/c", "spool_dir", Settings(), None) == Path("a:b/c")
