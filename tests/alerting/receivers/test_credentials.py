"""Alertmanager and Pushgateway get credentials of files: rotated without a restart, never shown."""

from __future__ import annotations

import base64

import pytest
from support.http_double import HttpDouble, reply
from support.published_states import full_published
from support.receiver_incidents import incident
from support.receivers import receiver

from querypulse.alerting.receivers.receiver import DeliveryError
from querypulse.commands import cli
from querypulse.core.states import DeliveryOutcome
from querypulse.settings.settings import Settings, SettingsError
from querypulse.sidecar.assemble import make_receivers, make_redactor, push_targets

TOKEN = "eyJhbGciOi.J9-_~+/x=="
PASSWORD = "orders:pass word:1 é"
SENT = {
    TOKEN: f"Bearer {TOKEN}",
    PASSWORD: f"Basic {base64.b64encode(PASSWORD.encode()).decode()}",
}
NO_CREDENTIALS = ["Bearer abc", "a\nb", "user:", ":word", "tökén", "a:b\nc"]


@pytest.fixture
def double():
    with HttpDouble(otherwise=reply(200)) as double:
        yield double


@pytest.fixture
def file(tmp_path):
    """Write the credentials; returns the path of their file."""

    def write(text):
        path = tmp_path / "credentials"
        path.write_text(f"{text}\n")
        return str(path)

    return write


def sent_by(double):
    return [request.headers.get("Authorization") for request in double.requests]


def short_form(double, path):
    urls = [f"{double.url}/prod"]
    (made,) = make_receivers(Settings(alertmanager_urls=urls, alertmanager_credentials_file=path))
    return lambda: made.send(incident(), 0.0)


def table(double, path):
    made = receiver("alertmanager", urls=[double.url], credentials_file=path)
    return lambda: made.send(incident(), 0.0)


def push(double, path):
    settings = Settings(pushgateway_url=double.url, pushgateway_credentials_file=path)
    (target,) = push_targets(settings)
    return lambda: target.push(full_published())


SENDERS = pytest.mark.parametrize("sender", [short_form, table, push])


@SENDERS
@pytest.mark.parametrize("text", SENT)
def test_a_token_or_a_user_with_password_is_sent_and_read_again(sender, text, double, file):
    send = sender(double, file(text))
    send()
    file("rotated-token")
    send()

    assert sent_by(double) == [SENT[text], "Bearer rotated-token"]


def test_nothing_is_sent_without_credentials_and_a_password_in_the_url_still_is(double):
    receiver("alertmanager", urls=[double.url]).send(incident(), 0.0)
    url = double.url.replace("://", "://me:word@")
    receiver("alertmanager", urls=[url]).send(incident(), 0.0)

    assert sent_by(double) == [None, f"Basic {base64.b64encode(b'me:word').decode()}"]


@pytest.mark.parametrize("text", NO_CREDENTIALS)
def test_a_file_with_something_else_is_refused_at_the_start_and_not_quoted(text, double, file):
    for sender in (short_form, table, push):
        with pytest.raises(SettingsError, match="credentials_file must hold a bearer") as e:
            sender(double, file(text))
        assert text.strip(":") not in str(e.value).split("must hold")[0]


@SENDERS
def test_a_file_that_becomes_something_else_is_a_mistake_of_the_settings(sender, double, file):
    send = sender(double, file(TOKEN))
    file("Bearer hidden")
    with pytest.raises(DeliveryError, match="bearer token") as error:
        send()

    assert error.value.answer is DeliveryOutcome.MISCONFIGURED
    assert "hidden" not in str(error.value)
    assert double.requests == []


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"alertmanager_credentials_file": "/c"}, "needs 'alertmanager_urls'"),
        ({"pushgateway_credentials_file": "/c"}, "needs 'pushgateway_url'"),
        (
            {"alertmanager_urls": ["https://am"], "alertmanager_credentials_file": "/no"},
            "alertmanager_credentials_file: cannot read",
        ),
        (
            {"pushgateway_url": "https://gate", "pushgateway_credentials_file": "/no"},
            "pushgateway_credentials_file: cannot read",
        ),
    ],
)
def test_credentials_for_nothing_or_in_no_file_are_refused(settings, message):
    make = push_targets if "pushgateway_credentials_file" in settings else make_receivers
    with pytest.raises(SettingsError, match=message):
        make(Settings(**settings))


def test_a_user_in_the_url_and_credentials_contradict_each_other(file):
    settings = {"alertmanager_urls": ["https://me:word@am"]}
    with pytest.raises(SettingsError, match=r"alertmanager_credentials_file.*in the URL") as error:
        make_receivers(Settings(**settings, alertmanager_credentials_file=file(TOKEN)))
    assert "word" not in str(error.value).replace("password", "")


def test_token_password_and_header_are_redacted_and_a_refusal_shows_none(double, file):
    double.script.append(reply(401))
    path = file(PASSWORD)
    with pytest.raises(DeliveryError) as error:
        short_form(double, path)()
    header = SENT[PASSWORD]
    assert header not in str(error.value)

    settings = Settings(alertmanager_urls=["https://am"], alertmanager_credentials_file=path)
    clean = make_redactor(settings).text(f"{PASSWORD} / pass word:1 é / {header} / orders failed")
    assert "pass word" not in clean
    assert header.removeprefix("Basic ").rstrip("=") not in clean
    assert "orders failed" in clean


def test_silences_go_to_alertmanager_with_the_credentials(double, file, monkeypatch, capsys):
    double.otherwise = reply(200, body=b'{"silenceID": "1"}')
    monkeypatch.setenv("QUERYPULSE_ALERTMANAGER_URLS", double.url)
    monkeypatch.setenv("QUERYPULSE_ALERTMANAGER_CREDENTIALS_FILE", file(TOKEN))
    words = ["silence", "a", "--for", "1h", "--app", "a", "--alertmanager"]
    assert cli.main([*words, f"{double.url}/"]) == 0
    with HttpDouble(otherwise=double.otherwise) as other:
        assert cli.main([*words, other.url]) == 0

        assert sent_by(double) == [SENT[TOKEN]]
        assert sent_by(other) == [None]  # a token goes to no other server
    assert TOKEN not in capsys.readouterr().out
