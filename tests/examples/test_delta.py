"""The Kafka and Delta Lake demo fetches what it needs or reports what is missing; no network."""

from __future__ import annotations

import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import pytest
from support.patience import PATIENCE_SECONDS, until

from querypulse.commands.demo.scenarios import DemoSettings
from querypulse.core.installed import NotInstalledError
from querypulse.examples.delta import __main__ as command
from querypulse.examples.delta import artifacts, broker, delta_pipeline
from querypulse.examples.delta.artifacts import (
    ArtifactsError,
    IvyTalk,
    Packages,
    cache_folder,
    fetch,
)
from querypulse.examples.delta.broker import Broker, BrokerError
from querypulse.examples.delta.delta_pipeline import DeltaPipeline
from querypulse.settings.loading import ARTIFACTS_VARIABLE

PACKAGES = Packages(("org.example:thing:1.0",))
OTHERS = Packages(("org.example:thing:1.0",), ("org.example:other",))
UNREACHABLE = "-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=1"
"""A proxy on a port where nothing listens."""


# -- the folder -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variables", "folder"),
    [
        ({ARTIFACTS_VARIABLE: "/big/disk"}, "/big/disk"),
        ({"XDG_CACHE_HOME": "/c"}, "/c/querypulse/artifacts"),
        ({"XDG_CACHE_HOME": "", "HOME": "/home/me"}, "/home/me/.cache/querypulse/artifacts"),
    ],
)
def test_artifact_folder_is_that_of_the_environment_or_the_users_cache(
    monkeypatch, variables, folder
):
    monkeypatch.delenv(ARTIFACTS_VARIABLE, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    assert cache_folder() == Path(folder)


# -- fetched once -----------------------------------------------------------------------------


def lay(folder, packages, *names):
    """Create the files that an earlier call leaves."""
    jars = [folder / name for name in names]
    for jar in jars:
        jar.write_text("")
    (folder / f"{packages.digest}.list").write_text("".join(f"{jar}\n" for jar in jars))
    return jars


@pytest.fixture
def asked(monkeypatch):
    """The packages that would have been fetched."""
    wanted = []

    def resolve(packages, folder, say):
        wanted.append(packages)
        say("fetching")
        return [folder / "new.jar"]

    monkeypatch.setattr(artifacts, "_resolve", resolve)
    return wanted


def test_two_processes_fetch_the_same_packages_once(tmp_path, monkeypatch):
    begun, may_end, runs, locked = threading.Event(), threading.Event(), [], []
    lock = artifacts.fcntl.flock

    def read_jars(settings, stderr):
        runs.append(settings)
        begun.set()
        assert may_end.wait(PATIENCE_SECONDS)
        return lay(tmp_path, PACKAGES, "a.jar")

    def note(*arguments):
        locked.append(arguments)
        lock(*arguments)

    monkeypatch.setattr(artifacts, "_jars_of_jvm", read_jars)
    monkeypatch.setattr(artifacts.fcntl, "flock", note)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(fetch, [PACKAGES], tmp_path, [].append)
        assert begun.wait(PATIENCE_SECONDS)
        second = pool.submit(fetch, [PACKAGES], tmp_path, [].append)
        until(lambda: len(locked) == 2, "the second waits for the first")
        may_end.set()

        jars = [call.result(PATIENCE_SECONDS) for call in (first, second)]
        assert jars == [[tmp_path / "a.jar"]] * 2
    assert len(runs) == 1


def test_listing_with_a_missing_jar_is_ignored(tmp_path, asked):
    lay(tmp_path, PACKAGES, "a.jar", "b.jar")[1].unlink()

    assert fetch([PACKAGES], tmp_path) == [tmp_path / "new.jar"]
    assert asked == [PACKAGES]


def test_existing_jars_are_listed_once_and_those_with_other_exclusions_are_fetched(tmp_path, asked):
    lay(tmp_path, PACKAGES, "a.jar", "b.jar")
    fetch([OTHERS], tmp_path)
    assert asked == [OTHERS]
    lay(tmp_path, OTHERS, "b.jar", "c.jar")

    assert [jar.name for jar in fetch([PACKAGES, OTHERS], tmp_path)] == ["a.jar", "b.jar", "c.jar"]
    assert asked == [OTHERS]


def test_fetch_is_reported_to_the_caller_or_on_standard_error(tmp_path, asked, capsys):
    messages = []
    fetch([PACKAGES], tmp_path, messages.append)
    assert (messages, capsys.readouterr().err) == (["fetching"], "")
    fetch([PACKAGES], tmp_path)

    assert capsys.readouterr().err == "querypulse: fetching\n"


def test_error_names_a_folder_that_cannot_be_created(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ArtifactsError, match=r"file/cache \(.*QUERYPULSE_ARTIFACTS"):
        fetch([PACKAGES], tmp_path / "file" / "cache", lambda _: None)


@pytest.mark.spark
def test_error_for_an_unreachable_registry_names_the_package(tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", UNREACHABLE)
    messages = []
    with pytest.raises(ArtifactsError) as raised:
        fetch([PACKAGES], tmp_path, messages.append)

    assert messages == ["fetching org.example:thing:1.0 from Maven Central"]
    message = str(raised.value)
    assert message.startswith(
        f"cannot fetch org.example:thing:1.0 from Maven Central into {tmp_path}"
    )
    assert "Server access error" in message or "unresolved dependency" in message
    assert message.endswith("The first run needs access to a registry")
    assert list(tmp_path.glob("*.list")) == []


# -- Ivy's output -----------------------------------------------------------------------------


def test_download_is_reported_when_it_starts():
    messages = []
    talk = IvyTalk(messages.append)
    os.write(talk.stderr, b"\tfound a#b;1 in central\ndownloading https://repo/io/a-1.jar ...\n")
    until(lambda: messages == ["fetching a-1.jar"], "the download is reported")
    talk.close()


@pytest.mark.parametrize(
    ("text", "trouble"),
    [
        (
            "Server access error at url https://r/a.pom (java.net.ConnectException: refused)\n"
            'Exception in thread "main" java.lang.RuntimeException: '
            "[unresolved dependency: a#b;1: not found]\n\tat org.apache.X.y(X.scala:1)\n",
            "Server access error at url https://r/a.pom; [unresolved dependency: a#b;1: not found]",
        ),
        ("Host r not found. url=https://r/a.pom\n" * 3, "Host r not found"),
        ("[download failed: a#b;1!b.jar]\n", "[download failed: a#b;1!b.jar]"),
        ("Error: no Java\n\n", "Error: no Java"),
        ("\xff\n", "\xff"),
        ("", "there was no output"),
    ],
)
def test_trouble_is_taken_from_ivys_output(text, trouble):
    talk = IvyTalk([].append)
    os.write(talk.stderr, text.encode())
    talk.close()

    assert talk.trouble == trouble


# -- versions of the connectors ---------------------------------------------------------------


@pytest.mark.parametrize("spark", ["4.0.0", "4.1.3", "4.2.0"])
def test_connectors_match_the_installed_spark(spark):
    (connector, tokens), (delta,) = delta_pipeline.kafka(spark), delta_pipeline.delta(spark)

    assert connector.coordinates == (f"org.apache.spark:spark-sql-kafka-0-10_2.13:{spark}",)
    assert tokens == delta_pipeline.KAFKA_TOKENS
    assert delta.coordinates[0].startswith(f"io.delta:delta-spark_{spark[:3]}_2.13:")


@pytest.mark.parametrize(
    "find", [delta_pipeline.kafka, delta_pipeline.delta, delta_pipeline.iceberg]
)
def test_spark_without_a_connector_names_the_version_to_install(find):
    for spark in ("4.3.0", "3.5.9", "5.0.0", "4"):
        message = rf"connector is known for Spark {spark}.*pip install"
        with pytest.raises(ArtifactsError, match=message):
            find(spark)


def test_pipeline_without_connectors_starts_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(delta_pipeline, "installed_spark", lambda: "9.9.0")
    pipeline = DeltaPipeline(tmp_path, 2, print)
    with pytest.raises(ArtifactsError, match=r"9\.9\.0"):
        pipeline.prepare()
    pipeline.stop()
    pipeline.close()


# -- the broker's process ---------------------------------------------------------------------


@pytest.fixture
def java(tmp_path, monkeypatch):
    """A fake Java: it accepts the formatting of the storage, and then runs the given script."""

    def write(script):
        home = tmp_path / "jdk"
        (home / "bin").mkdir(parents=True, exist_ok=True)
        program = home / "bin" / "java"
        program.write_text(f'#!/bin/sh\ncase "$*" in *StorageTool*) exit 0;; esac\n{script}\n')
        program.chmod(0o755)
        monkeypatch.setenv("JAVA_HOME", str(home))

    return write


def test_broker_that_exits_is_reported_with_the_end_of_its_output(tmp_path, java):
    java("seq 100000; echo port in use; exit 1")
    with pytest.raises(BrokerError, match=r"does not start \(exit code 1\): ") as raised:
        Broker([], tmp_path).start()

    assert str(raised.value).endswith("port in use")
    assert len(str(raised.value)) < 2 * broker.OUTPUT_CHARACTERS


def test_broker_whose_port_was_taken_meanwhile_starts_on_another_one(tmp_path, java, monkeypatch):
    [port] = broker.free_ports(1)
    choices = iter([(1, 2), (port, 3)])
    monkeypatch.setattr(broker, "free_ports", lambda _: next(choices))
    serve = f"import socket, time; _ = socket.create_server(('127.0.0.1', {port})); time.sleep(600)"
    java(
        f"grep -q :{port} {tmp_path}/server.properties || exit 1\n"
        f'exec {sys.executable} -c "{serve}"'
    )
    unlucky = Broker([], tmp_path)
    unlucky.start()
    unlucky.kill()

    assert unlucky.bootstrap_servers == f"127.0.0.1:{port}"


def test_broker_that_does_not_listen_in_time_is_killed(tmp_path, java, monkeypatch):
    monkeypatch.setattr(broker, "START_SECONDS", 0.2)
    java("exec sleep 60")
    stuck = Broker([], tmp_path)
    with pytest.raises(BrokerError, match="does not start"):
        stuck.start()

    assert stuck.pid is None


def test_storage_that_cannot_be_formatted_is_reported(tmp_path, java):
    java("")
    (tmp_path / "jdk/bin/java").write_text("#!/bin/sh\necho disk is full; exit 1\n")
    with pytest.raises(BrokerError, match="no storage for a Kafka broker: disk is full"):
        Broker([], tmp_path)


def test_guard_kills_the_broker_when_its_parent_is_gone():
    guarded = broker.subprocess.Popen(["sleep", "600"])
    guard = broker._guard(guarded.pid)
    assert guarded.poll() is None
    guard.stdin.close()

    assert guarded.wait(PATIENCE_SECONDS) == -9
    guard.wait(PATIENCE_SECONDS)


# -- the command ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (ArtifactsError, 2, "querypulse: no Delta\n"),
        (BrokerError, 2, "querypulse: no Delta\n"),
        (NotInstalledError, 2, "querypulse: no Delta\n"),
        (KeyboardInterrupt, 130, ""),
    ],
    ids=["no artifacts", "no broker", "not installed", "interrupted"],
)
def test_pipeline_error_exits_with_2_and_one_line_and_an_interrupt_with_130(
    monkeypatch, capsys, error, code, said
):
    monkeypatch.setattr(command, "_demo", Mock(side_effect=error("no Delta")))

    assert command.main([]) == code
    assert capsys.readouterr() == ("", said)


def test_arguments_of_the_demo_run_the_pipeline_on_delta_lake(monkeypatch):
    asked = []
    monkeypatch.setattr(command, "require_spark", lambda: None)
    monkeypatch.setattr(command, "run", lambda *given: asked.append(given) or 7)

    code = command.main(["--supervised"])

    assert code == 7
    assert asked == [(DemoSettings(supervised=True), DeltaPipeline)]
