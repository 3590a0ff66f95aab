"""``querypulse silence`` adds, ends and lists silences, in a file and in Alertmanager."""

from __future__ import annotations

import re
import time
from datetime import datetime, timedelta, timezone
from fnmatch import fnmatchcase

import pytest
import requests
from msgspec.structs import replace
from support.http_double import HttpDouble, closed_port, reply
from support.patience import PATIENCE_SECONDS, until
from support.prometheus import Notifications, RealAlertmanager
from support.receiver_incidents import alert

from querypulse.alerting.silences import Silence, change_silences, end_text, read_silences
from querypulse.commands import cli
from querypulse.commands.silence import matcher
from querypulse.core.wall_time import DAYS, parse_window

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
    assert replace(written, until=0.0) == Silence("bronze*", 0.0, reason="backfill", app="etl")
    assert before <= written.until - 7200 <= after
    first, second = output.splitlines()
    assert first.startswith(f"etl  bronze*  *  until {end_text(written.until)} (")
    assert first.endswith("left): backfill")
    assert second == f"{path}: silenced"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("30m", 1800),
        ("2h", 7200),
        ("1d", 86_400),
        ("1d12h", 129_600),
        ("1h30m5s", 5405),
    ],
)
def test_duration_has_days_hours_minutes_and_seconds(path, silence, text, seconds):
    before = int(time.time())
    silence("a", "--for", text)

    assert before <= read_silences(path)[-1].until - seconds <= time.time()


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

    covered = [
        app
        for app in ("shop [prod] *", "shop p x")
        if written.covers(replace(alert("a"), labels={**alert("a").labels, "app": app}), 0.0)
    ]
    assert covered == ["shop [prod] *"]


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


HOUR = ("a", "--for", "1h")
REFUSED = [
    (("a",), "a silence has an end, or windows"),
    (("--for", "1h"), "PATTERN goes together with --for or --every"),
    (("--every", "02:00-04:00"), "PATTERN goes together with --for or --every"),
    (("a", "--end", "a"), "--end"),
    (("--end", "a", "--for", "1h"), "--end"),
    (("--end", "a", "--every", "02:00-04:00"), "--every"),
    (("--end", "a", "--alertname", "StreamingQueryStalled"), "--alertname"),
    (("--end", "a", "--reason", "deployed"), "--reason"),
    (("--alertmanager", "nonsense"), "silence: --alertmanager must be an https:// URL with a host"),
]


def test_silence_that_recurs_is_listed_with_its_next_window_and_ended(path, silence):
    times = f"{_clock(hours=2)}-{_clock(hours=3)}"
    assert silence("nightly*", "--every", times, "--reason", "restarts")[0] == 0
    assert silence("weekly", "--every", f"{_clock(hours=-1)}-{_clock(hours=1)}")[0] == 0
    soon = time.time() + 3600
    last = Silence("once", soon, app="etl", every=parse_window(times))
    change_silences(path, time.time(), add=last)
    code, output, errors = silence()
    next_line, now_line, last_line = output.splitlines()
    once = next(line for line in read_silences(path) if line.queries == "once")

    assert (code, errors) == (0, "")
    window = (
        r"next \d{4}-\d\d-\d\dT\d\d:\d\d:00Z to \d{4}-\d\d-\d\dT\d\d:\d\d:00Z: in [12]:\d\d:\d\d"
    )
    assert re.fullmatch(rf"etl  nightly\*  \*  {times} UTC \({window}\): restarts", next_line)
    assert re.search(r"UTC \(now, until \S+: \d?\d?:?\d+:\d\d left\)$", now_line)
    assert last_line.endswith(f"{times} UTC until {end_text(once.until)} (no window is left)")
    assert silence("--end", "nightly*")[0] == 0
    assert [line.queries for line in read_silences(path)] == ["weekly", "once"]


def _clock(**later):
    return (datetime.now(timezone.utc) + timedelta(**later)).strftime("%H:%M")


def test_alertmanager_refuses_what_recurs_and_other_places_take_it(path, silence):
    with HttpDouble(otherwise=reply(200, body=b"{}")) as server:
        arguments = ("a", "--every", "sun 02:00-04:00", "--alertmanager", server.url)
        code, output, errors = silence(*arguments)

        assert server.requests == []
    assert (code, "mute_time_intervals" in errors) == (REFUSED_BY_A_PLACE, True)
    assert output.endswith(f"{path}: silenced\n")


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("sometimes", "is not of the form [DAYS] HH:MM-HH:MM [ZONE]"),
        ("02:00-04:00 Mars", "time zone 'Mars' is unknown"),
        ("funday 02:00-04:00", "'funday' is no day"),
    ],
)
def test_windows_that_cannot_be_read_are_refused(path, silence, capsys, text, word):
    with pytest.raises(SystemExit) as refused:
        silence("a", "--every", text)

    assert refused.value.code == USAGE
    assert word in capsys.readouterr().err
    assert not path.exists()


def test_windows_that_end_before_they_begin_are_refused(path, silence):
    in_three_days = DAYS[(datetime.now(timezone.utc).weekday() + 3) % 7]
    code, _, errors = silence("a", "--every", f"{in_three_days} 02:00-04:00", "--for", "1h")

    assert (code, path.exists()) == (COULD_NOT_BEGIN, False)
    assert "would never hold: --for ends before it begins" in errors
    assert silence("a", "--every", f"{in_three_days} 02:00-04:00", "--for", "7d")[0] == 0


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
        drivers = [f"--url={url}" for url in (page.url, moved.url, "http://127.0.0.1:1")]
        token = f"--token-file={tmp_path / 'token'}"
        places = ("--alertmanager", page.url, *drivers, token)
        code, output, errors = silence(*action, *places)
        refused, *_ = silence(*action, *places, "--file", "/")

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


def post(url, alerts):
    """Send alerts of the name ``Failed`` to an Alertmanager."""
    body = [{"labels": {"alertname": "Failed", **labels}} for labels in alerts]
    requests.post(f"{url}/api/v2/alerts", json=body, timeout=PATIENCE_SECONDS).raise_for_status()


def states(url, app, name):
    """The state of each alert of an app, by one of its labels."""
    alerts = requests.get(f"{url}/api/v2/alerts", timeout=PATIENCE_SECONDS).json()
    ours = [alert for alert in alerts if alert["labels"]["app"] == app]
    return {alert["labels"][name]: alert["status"]["state"] for alert in ours}


SELECTED = [
    (("*", "*"), ["orders", "*"], []),
    (("bronze_?*", "*"), ["bronze_1", "bronze_12"], ["bronze_", "silver", "*"]),
    (("a.b+(c", "*"), ["a.b+(c"], ["axbbc"]),
    (("a.*", "*"), ["a.b"], ["axb"]),
    (("q[!0-4]", "*"), ["q5"], ["q3", "q55", "q"]),
    (("[*]", "*"), ["*"], ["orders"]),
    (("*", "StreamingDriver*"), [], ["orders", "*"]),
]


@pytest.mark.alertmanager
@pytest.mark.parametrize(("patterns", "silenced", "others"), SELECTED)
def test_alertmanager_silences_what_the_patterns_select(
    silence, alertmanager, patterns, silenced, others
):
    (pattern, alertname), url = patterns, alertmanager.url
    app = f"app-{SELECTED.index((patterns, silenced, others))}"
    place = ("--app", app, "--alertmanager", url)
    expected = dict.fromkeys(silenced, "suppressed") | dict.fromkeys(others, "active")
    assert silence(pattern, *place, "--for", "30m", "--alertname", alertname)[0] == 0
    post(url, [{"app": app, "query": query} for query in expected])
    post(url, [{"app": f"{app}ed", "query": query} for query in expected])

    until(lambda: states(url, app, "query") == expected, f"{silenced} are silenced")
    assert set(states(url, f"{app}ed", "query").values()) == {"active"}
    assert f"{app}  {matcher('query', pattern)}  " in silence("--alertmanager", url)[1]
    assert silence("--end", pattern, *place)[0] == 0
    assert f"{app}  " not in silence("--alertmanager", url)[1]


@pytest.mark.alertmanager
def test_alertmanager_silences_the_labels_of_the_settings_only(silence, alertmanager, monkeypatch):
    url = alertmanager.url
    place = ("--app", "two", "--alertmanager", url)
    for env in ("prod", "test"):
        monkeypatch.setenv("QUERYPULSE_LABELS", f'{{env = "{env}"}}')
        _, output, _ = silence("*", "--for", "1h", *place)
        note = f'only alerts with the labels {{env="{env}"}}'
        assert output.splitlines()[1] == f"{url}: silenced: {note}"
    post(url, [{"app": "two", "query": "a", "env": env} for env in ("prod", "other")])

    expected = {"prod": "suppressed", "other": "active"}
    until(lambda: states(url, "two", "env") == expected, "only prod is silenced")
    assert silence("--end", "*", *place) == (0, f"{url}: ended: 1 of *\n", "")
    listed = [line.split()[0] for line in silence("--alertmanager", url)[1].splitlines()]
    assert [name for name in listed if name.startswith("two")] == ['two{env="prod"}']
    monkeypatch.delenv("QUERYPULSE_LABELS")
    assert silence("--end", "*", *place)[0] == 0


PATTERNS = [
    "*",
    "**",
    "a*",
    "?",
    "?*",
    "a.b+(c",
    "a.*",
    "[*]",
    "[!0-4]x",
    "[^a]",
    "[]a]",
    "[!]a]",
    "[[]",
    "[a-",
    "a[b*",
    "[a\\]*",
    "a\\*",
    "[&~|-]",
    "a b*",
    "ä?*",
    ".",
]
NAMES = [*PATTERNS, "a", "axb", "5x", "]", "a.b", "ab", "äxy", "-", "^"]


def test_matcher_selects_the_names_that_the_pattern_selects():
    for pattern in PATTERNS:
        made = matcher("query", pattern)
        selects = re.compile(made.value if made.is_regex else re.escape(made.value)).fullmatch
        expected = [name for name in NAMES if fnmatchcase(name, pattern)]

        assert [name for name in NAMES if selects(name)] == expected, pattern


def test_an_alertmanager_that_refuses_or_does_not_answer_is_named_without_its_password(silence):
    with HttpDouble(otherwise=reply(400, body=b"bad matcher")) as double:
        url = double.url.replace("://", "://user:hunter2@")
        refused = silence(*HOUR, "--app", "a", "--alertmanager", url)
    with closed_port() as port:
        place = f"127.0.0.1:{port}"
        nobody = silence(*HOUR, "--app", "a", "--alertmanager", f"http://user:hunter2@{place}")

    assert refused == (1, "", f"querypulse: {double.url} answered 400: bad matcher\n")
    assert nobody == (1, "", f"querypulse: http://{place}: ConnectionError: no answer\n")
