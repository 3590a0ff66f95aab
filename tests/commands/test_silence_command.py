"""``querypulse silence`` adds, ends and lists silences, in a file and in Alertmanager."""

from __future__ import annotations

import re
import time
from datetime import timedelta
from fnmatch import fnmatchcase

import pytest
import requests
from support.alertmanager import Notifications, RealAlertmanager
from support.http_double import HttpDouble, reply
from support.patience import PATIENCE_SECONDS, until

from querypulse.alerting.alert import Alert, end_text
from querypulse.commands import cli
from querypulse.commands.silence import matcher
from querypulse.settings.silencing import read_silences

REFUSED_BY_A_PLACE, COULD_NOT_BEGIN, USAGE = 1, 2, 2


pytestmark = pytest.mark.usefixtures("clean_environment")


@pytest.fixture
def path(tmp_path, monkeypatch):
    """The file that the setting names."""
    monkeypatch.setenv("QUERYPULSE_SILENCE_FILE", str(tmp_path / "silences"))
    monkeypatch.setenv("QUERYPULSE_APP_NAME", "etl")
    return tmp_path / "silences"


@pytest.fixture
def silence(capsys):
    """Run the command; returns exit code, output and errors."""

    def run(*arguments):
        code = cli.main(["silence", *arguments])
        return code, *capsys.readouterr()

    return run


def test_command_silences_a_pattern_for_a_duration(path, silence):
    before = int(time.time())
    code, output, errors = silence("bronze*", "--for", "2h", "--reason", "backfill")
    after = time.time()
    (written,) = read_silences(path)

    assert (code, errors) == (0, "")
    assert (written.app, written.queries, written.alertname, written.reason) == (
        "etl",
        "bronze*",
        "*",
        "backfill",
    )
    assert before <= written.until - 7200 <= after
    first, second = output.splitlines()
    assert first.startswith(f"etl  bronze*  *  until {end_text(written.until)} (")
    assert first.endswith("left): backfill")
    assert second == f"{path}: silenced"


def test_duration_has_days_hours_minutes_and_seconds(path, silence):
    durations = {
        "90s": timedelta(seconds=90),
        "30m": timedelta(minutes=30),
        "2h": timedelta(hours=2),
        "1d": timedelta(days=1),
        "1d12h": timedelta(hours=36),
        "1h30m5s": timedelta(hours=1, minutes=30, seconds=5),
    }
    for text, duration in durations.items():
        before = int(time.time())
        silence(f"for {text}", "--for", text)

        began = read_silences(path)[-1].until - duration.total_seconds()
        assert before <= began <= time.time()


def test_invalid_duration_is_refused(path, silence, capsys):
    texts = ["", "2", "h", "2 h", "-2h", "0s", "1.5h", "30m2h", "400d", "9999999h", "soon", "٣h"]
    for text in texts:
        with pytest.raises(SystemExit) as refused:
            silence("a", f"--for={text}")

        assert refused.value.code == USAGE
        assert repr(text) in capsys.readouterr().err
    assert not path.exists()


def test_ending_an_unknown_silence_is_an_error_that_names_it(path, silence):
    silence("b", "--for", "1h")
    code, output, errors = silence("--end", "a")

    assert (code, output) == (1, "")
    assert "no silence of 'a' of app 'etl'" in errors


def test_app_name_of_the_settings_is_not_a_pattern(path, silence, monkeypatch):
    monkeypatch.setenv("QUERYPULSE_APP_NAME", "shop [prod] *")
    silence("a", "--for", "1h")
    (written,) = read_silences(path)

    assert written.covers(alert("shop [prod] *"), 0.0)
    assert not written.covers(alert("shop p x"), 0.0)


@pytest.mark.parametrize(
    ("arguments", "kept"),
    [
        (("--end", "*"), ["shop/*", "*/*", "etl/b", "shop/b"]),
        (("--end", "b", "--app", "shop"), ["shop/*", "etl/*", "*/*", "etl/b"]),
        (("--end", "*", "--app", "*"), ["etl/b", "shop/b"]),
    ],
    ids=["the app of the settings", "the app given", "all apps"],
)
def test_end_option_ends_silences_of_a_pattern_and_of_an_app(path, silence, arguments, kept):
    for name in ("shop/*", "etl/*", "*/*", "etl/b", "shop/b"):
        app, _, queries = name.partition("/")
        silence(queries, "--for", "1h", "--app", app)
    code, _, errors = silence(*arguments)

    assert (code, errors) == (0, "")
    assert [f"{written.app}/{written.queries}" for written in read_silences(path)] == kept


@pytest.mark.parametrize("action", [("--end", "a"), ("a", "--for", "1h")])
def test_silence_without_an_app_is_refused(path, silence, monkeypatch, action):
    monkeypatch.delenv("QUERYPULSE_APP_NAME")
    code, output, errors = silence(*action)

    assert (code, output, path.exists()) == (COULD_NOT_BEGIN, "", False)
    assert "--app" in errors
    assert "'app_name'" in errors


def alert(app):
    labels = {"alertname": "StreamingQueryFailed", "app": app, "query": "a", "severity": "critical"}
    return Alert(labels, {}, 0.0)


HOUR = ("a", "--for", "1h")
REFUSED = [
    (("a",), "every silence has an end"),
    (("--for", "1h"), "PATTERN and --for go together"),
    (("a", "--end", "a"), "--end"),
    (("--end", "a", "--for", "1h"), "--end"),
    (("--alertmanager", "nonsense"), "silence: --alertmanager must be an https:// URL with a host"),
]


@pytest.mark.parametrize(("arguments", "word"), REFUSED)
def test_what_is_not_possible_is_refused_in_one_line(path, silence, arguments, word):
    code, output, errors = silence(*arguments)

    assert (code, output, errors.count("\n")) == (COULD_NOT_BEGIN, "", 1)
    assert errors.startswith("querypulse: silence: ")
    assert word in errors
    assert not path.exists()


def test_malformed_file_is_reported_with_its_line(path, silence):
    path.write_text("be quiet\n")
    code, _, errors = silence()

    assert code == REFUSED_BY_A_PLACE
    assert errors.startswith(f"querypulse: {path}, line 1")


@pytest.mark.parametrize("action", [(*HOUR, "--app", "etl"), ("--end", "a"), ()])
def test_each_place_is_tried_and_named_when_another_refuses(path, silence, tmp_path, action):
    if action[:1] == ("--end",):
        silence(*HOUR)
    (tmp_path / "token").write_text("t0ken\n")
    with HttpDouble(otherwise=reply(200, body=b"<html>")) as page, HttpDouble() as moved:
        moved.otherwise = reply(302, headers={"Location": page.url})
        urls = [
            *("--alertmanager", page.url),
            *(
                word
                for url in (page.url, moved.url, "http://127.0.0.1:1")
                for word in ("--url", url)
            ),
        ]
        code, output, errors = silence(*action, *urls, "--token-file", str(tmp_path / "token"))
        refused, *_ = silence(
            *action, *urls, "--token-file", str(tmp_path / "token"), "--file", "/"
        )

    assert (code, refused) == (1, 1)
    assert [line.split(": ")[1][:50] for line in errors.splitlines()] == [
        f"{page.url} is no Alertmanager",
        f"{page.url} is no Driver",
        f"{moved.url} answered 302",
        "http://127.0.0.1:1",
    ]
    assert (str(path) in output) == bool(action)
    assert len(read_silences(path)) == (action[:1] == ("a",))


@pytest.fixture(scope="module")
def alertmanager(tmp_path_factory):
    folder = tmp_path_factory.mktemp("alertmanager")
    with Notifications() as notifications, RealAlertmanager(folder, notifications) as server:
        yield server


@pytest.mark.alertmanager
@pytest.mark.parametrize(
    ("arguments", "silenced", "others"),
    [
        (
            ("*", "--app", "deploy"),
            [("deploy", "orders"), ("deploy", "*")],
            [("deployed", "orders"), ("other", "*")],
        ),
        (
            ("bronze_?*", "--app", "part"),
            [("part", "bronze_1"), ("part", "bronze_12")],
            [("part", "bronze_"), ("part", "silver"), ("part", "*"), ("other", "bronze_1")],
        ),
        (("a.b+(c", "--app", "dots"), [("dots", "a.b+(c")], [("dots", "axbbc")]),
        (("a.*", "--app", "dots_too"), [("dots_too", "a.b")], [("dots_too", "axb")]),
        (
            ("q[!0-4]", "--app", "class"),
            [("class", "q5")],
            [("class", "q3"), ("class", "q55"), ("class", "q")],
        ),
        (("[*]", "--app", "driver"), [("driver", "*")], [("driver", "orders")]),
        (
            ("*", "--app", "named", "--alertname", "StreamingDriver*"),
            [],
            [("named", "orders"), ("named", "*")],
        ),
    ],
)
def test_alertmanager_silences_what_the_patterns_select(
    silence, alertmanager, arguments, silenced, others
):
    url = alertmanager.url
    post = [
        {"labels": {"alertname": "Failed", "app": app, "query": query}}
        for app, query in (*silenced, *others)
    ]
    code, _, errors = silence(*arguments, "--for", "30m", "--alertmanager", url)
    assert (code, errors) == (0, "")
    requests.post(f"{url}/api/v2/alerts", json=post, timeout=PATIENCE_SECONDS).raise_for_status()

    app = arguments[2]

    def states():
        alerts = requests.get(f"{url}/api/v2/alerts", timeout=PATIENCE_SECONDS).json()
        return {
            (alert["labels"]["app"], alert["labels"]["query"]): alert["status"]["state"]
            for alert in alerts
        }

    until(
        lambda: (
            all(states().get(name) == "suppressed" for name in silenced)
            and all(states().get(name) == "active" for name in others)
        ),
        f"{silenced} are silenced, and {others} are not",
    )
    shown = matcher("query", arguments[0])
    assert f"\n{app}  {shown}  " in f"\n{silence('--alertmanager', url)[1]}"
    assert silence("--end", arguments[0], "--app", app, "--alertmanager", url)[0] == 0
    assert f"{app}  " not in silence("--alertmanager", url)[1]


@pytest.mark.alertmanager
def test_alertmanager_silences_the_labels_of_the_settings_only(silence, alertmanager, monkeypatch):
    place = ("--app", "two", "--alertmanager", alertmanager.url)
    for env in ("prod", "test"):
        monkeypatch.setenv("QUERYPULSE_LABELS", f'{{env = "{env}"}}')
        _, output, _ = silence("*", "--for", "1h", *place)
        note = f'only alerts with the labels {{env="{env}"}}'
        assert output.splitlines()[1] == f"{alertmanager.url}: silenced: {note}"
    post = [
        {"labels": {"alertname": "Failed", "app": "two", "query": "a", "env": env}}
        for env in ("prod", "other")
    ]
    url = f"{alertmanager.url}/api/v2/alerts"
    requests.post(url, json=post, timeout=PATIENCE_SECONDS).raise_for_status()

    def states():
        alerts = requests.get(url, timeout=PATIENCE_SECONDS).json()
        return {
            alert["labels"]["env"]: alert["status"]["state"]
            for alert in alerts
            if alert["labels"]["app"] == "two"
        }

    until(lambda: states() == {"prod": "suppressed", "other": "active"}, "only prod is silenced")
    assert silence("--end", "*", *place) == (0, f"{alertmanager.url}: ended: 1 of *\n", "")
    assert [
        line.split()[0]
        for line in silence("--alertmanager", alertmanager.url)[1].splitlines()
        if line.startswith("two")
    ] == ['two{env="prod"}']
    monkeypatch.delenv("QUERYPULSE_LABELS")
    assert silence("--end", "*", *place)[0] == 0


PATTERNS = ["*", "**", "a*", "?", "?*", "a.b+(c", "a.*", "[*]", "[!0-4]x", "[^a]", "[]a]", "[!]a]", "[[]",
            "[a-", "a[b*", "[a\\]*", "a\\*", "[&~|-]", "a b*", "ä?*", "."]  # fmt: skip
NAMES = [*PATTERNS, "a", "axb", "5x", "]", "a.b", "ab", "äxy", "-", "^"]


def test_matcher_selects_the_names_that_the_pattern_selects():
    for pattern in PATTERNS:
        made = matcher("query", pattern)
        selects = re.compile(made.value if made.is_regex else re.escape(made.value)).fullmatch
        expected = [name for name in NAMES if fnmatchcase(name, pattern)]

        assert [name for name in NAMES if selects(name)] == expected, pattern


def test_an_alertmanager_that_refuses_or_does_not_answer_is_named_without_its_password(silence):
    with HttpDouble(
        reply(400, body=b"bad matcher"), otherwise=reply(200, body=b"<html>")
    ) as double:
        url = double.url.replace("://", "://user:hunter2@")
        refused = silence(*HOUR, "--app", "a", "--alertmanager", url)
        other = silence("--alertmanager", url)
    nobody = silence(*HOUR, "--app", "a", "--alertmanager", url)

    assert [code for code, *_ in (refused, other, nobody)] == [REFUSED_BY_A_PLACE] * 3
    assert f"{double.url} answered 400: bad matcher" in refused[2]
    assert f"{double.url} is no Alertmanager" in other[2]
    assert f"{double.url}: ConnectionError: no answer" in nobody[2]
    assert "hunter2" not in refused[2] + other[2] + nobody[2]
