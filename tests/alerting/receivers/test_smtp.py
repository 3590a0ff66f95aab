"""E-mail reaches a real SMTP server, and every refusal means the right next step."""

from __future__ import annotations

import logging
import shutil
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.http_double import closed_port
from support.mail_server import PASSWORD, USER, MailServer
from support.patience import PATIENCE_SECONDS, ended
from support.receiver_incidents import ENDED, ONE, STARTED, alert, holding, incident
from support.receivers import receiver

from querypulse.alerting.receivers.email import email_message
from querypulse.alerting.receivers.receiver import DeliveryError
from querypulse.core.states import DeliveryOutcome
from querypulse.sidecar import Settings, SettingsError

SENDER, TO = "pulse@example.com", ("oncall@example.com", "team@example.com")


@pytest.fixture
def tls(authority):
    return authority.server("localhost")


@pytest.fixture
def server():
    with MailServer() as running:
        yield running


def email(port, **options):
    plain = {"host": "127.0.0.1", "port": port, "tls": "none", "sender": SENDER, "to": TO}
    return receiver("email", **{**plain, **options})


def send(server, reported=ONE, **options):
    email(server.port, **options).send(reported, STARTED + 1)


def refused(made) -> DeliveryError:
    with pytest.raises(DeliveryError) as error:
        made.send(ONE, STARTED)
    return error.value


def refusal(server, **options) -> DeliveryError:
    return refused(email(server.port, **options))


# -- the message ---------------------------------------------------------------------------------


def test_message_has_headers_and_the_headline_first(server):
    to = "On call <oncall@example.com>"
    send(server, to=(to,), external_url="https://driver.example")
    (message,) = server.messages

    assert message["Subject"] == "critical: bronze failed"
    assert (message["From"], message["To"]) == (SENDER, to)
    assert message["Importance"] == "high"
    assert message["Auto-Submitted"] == "auto-generated"
    lines = message.get_content().splitlines()
    assert lines[:3] == ["bronze failed", "", "reason: ConcurrentAppendException"]
    assert "Status page: https://driver.example" in lines
    assert server.recipients == [["oncall@example.com"]]


def test_resolve_joins_the_thread_of_its_incident(server):
    send(server, ONE)
    send(server, incident(revision=1))
    send(server, incident(ends_at=ENDED))
    first, second, end = server.messages

    assert first["In-Reply-To"] == second["In-Reply-To"] == end["In-Reply-To"]
    assert len({one["Message-ID"] for one in server.messages}) == 3
    assert end["Subject"] == "Resolved: [etl] bronze commits again after 60 s"
    assert end["Importance"] is None
    assert "https://" not in end.get_content()


FORGED = "=?utf-8?q?a=0D=0ABcc:_x@example.com=0D=0A=0D=0Abody?="
ODD = ["nul \0 and bell \a", "\udcff", "x" * 100_000, "\N{SNOWMAN}", "\n.\n"]


@pytest.mark.parametrize("text", ["a\r\nBcc: x@example.com", FORGED, *ODD])
def test_no_text_of_a_query_breaks_the_message(server, text):
    send(server, incident(summary=text, reason=text))
    (message,) = server.messages

    assert (message["Bcc"], message["From"]) == (None, SENDER)
    assert "\0" not in message["Subject"] + message.get_content()
    assert server.recipients == [list(TO)]
    assert len(message["Subject"]) <= 220
    assert len(message.get_content()) <= 20_002


def test_message_is_cut_and_its_subject_too():
    endless = incident(summary="s" * 300, reason="r" * 30_000)
    message = email_message(endless, "a@x.example", ["b@x.example"], STARTED)

    assert message["Subject"] == f"critical: {'s' * 189}…"
    assert len(message.get_content()) == 20_000 + len("\n")


def test_warning_is_not_marked_as_important(server):
    send(server, holding(alert(severity="warning")))
    (message,) = server.messages

    assert message["Importance"] is None
    assert message["Subject"].startswith("warning: ")


# -- TLS and login -------------------------------------------------------------------------------


def test_rotated_password_is_used_without_a_restart(tls, authority, tmp_path):
    """After STARTTLS; one that SMTP cannot carry is not sent."""
    file = tmp_path / "password"
    file.write_text("old")
    with MailServer(tls, login=True) as server:
        options = {"user": USER, "password_file": str(file), "ca_file": authority.ca_file}
        made = email(server.port, host="localhost", tls="starttls", **options)
        errors = [refused(made)]
        file.write_text("p\u00e4ss")
        errors.append(refused(made))
        file.write_text(f"{PASSWORD}\n")
        made.send(ONE, STARTED)

        assert {error.answer for error in errors} == {DeliveryOutcome.MISCONFIGURED}
        assert "\u00e4" not in str(errors)
        assert [one["Subject"] for one in server.messages] == ["critical: bronze failed"]
        assert server.logins[-1:] == [USER]


def test_implicit_tls_sends_the_message(tls, authority):
    with MailServer(tls, implicit=True) as server:
        send(server, host="localhost", tls="implicit", ca_file=authority.ca_file)

        assert len(server.messages) == 1


def test_missing_file_of_certificates_is_a_misconfiguration(server, authority, tmp_path):
    bundle = Path(shutil.copy(authority.ca_file, tmp_path))
    made = email(server.port, ca_file=str(bundle))
    bundle.unlink()
    error = refused(made)

    assert (error.answer, error.may_have_arrived) == (DeliveryOutcome.MISCONFIGURED, False)


@pytest.mark.parametrize(
    ("is_secured", "tls_wanted", "answer", "says"),
    [
        (True, "starttls", DeliveryOutcome.MISCONFIGURED, "is not trusted"),
        (False, "starttls", DeliveryOutcome.MISCONFIGURED, ""),
        (False, "implicit", DeliveryOutcome.TRANSIENT, ""),
    ],
    ids=["untrusted", "no STARTTLS", "no TLS"],
)
def test_server_without_trusted_tls_gets_no_message_and_no_password(
    tls, is_secured, tls_wanted, answer, says
):
    secured = {"tls": tls} if is_secured else {"login_without_tls": True}
    with MailServer(login=True, **secured) as server:
        login = {"user": USER, "password": PASSWORD}
        error = refusal(server, host="localhost", tls=tls_wanted, **login)

    assert error.answer is answer
    assert says in str(error)
    assert (server.messages, server.logins) == ([], [])


def test_slow_name_lookup_of_this_machine_delays_nothing(server, monkeypatch):
    monkeypatch.setattr(socket, "getfqdn", lambda *_: pytest.fail("it asks DNS"))
    send(server)

    assert len(server.messages) == 1


# -- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "answer", "outcome"),
    [
        ("DATA", "451 try again later", DeliveryOutcome.TRANSIENT),
        ("DATA", "554 it looks like spam", DeliveryOutcome.MISCONFIGURED),
        ("RCPT", "421 closing", DeliveryOutcome.TRANSIENT),
        ("RCPT", "550 no such user", DeliveryOutcome.MISCONFIGURED),
        ("RCPT", "450 greylisted", DeliveryOutcome.TRANSIENT),
        ("RCPT", {TO[0]: "450 later", TO[1]: "550 unknown"}, DeliveryOutcome.TRANSIENT),
    ],
)
def test_refused_message_is_kept(server, command, answer, outcome):
    """It has not arrived, and no word of the server is shown."""
    server.refusals[command] = answer.get if isinstance(answer, dict) else answer
    error = refusal(server)

    assert (error.answer, error.may_have_arrived) == (outcome, False)
    assert not any(
        word in str(error) for word in ("later", "spam", "closing", "user", "greylisted")
    )


def test_refused_message_is_sent_again_with_its_headline_only(server):
    server.refusals["DATA"] = lambda text: "554 spam" if "https://" in text else ""
    send(server)

    (message,) = server.messages
    assert message.get_content().strip() == "bronze failed"


def test_one_accepted_recipient_is_enough_and_the_other_is_logged(server, caplog):
    server.refusals["RCPT"] = lambda address: "550 unknown" if address == TO[1] else ""
    with caplog.at_level(logging.WARNING):
        send(server)

    assert server.recipients == [[TO[0]]]
    assert f"refused the recipient {TO[1]}: 550" in caplog.text


def test_server_that_is_down_is_tried_again():
    with closed_port() as port:
        error = refused(email(port))

    assert (error.answer, error.may_have_arrived) == (DeliveryOutcome.TRANSIENT, False)


def drip(listener: socket.socket) -> None:
    """Answer one byte at a time."""
    connection, _ = listener.accept()
    with connection:
        try:
            while True:
                connection.sendall(b"2")
                time.sleep(0.05)
        except OSError:
            return


def silent(listener: socket.socket) -> None:
    """Accept, and say nothing."""


@pytest.mark.parametrize(("tls", "server"), [("none", drip), ("implicit", silent)])
def test_server_that_is_slow_does_not_hold_the_receiver(monkeypatch, tls, server):
    """Whether it answers byte by byte, or never in the handshake."""
    monkeypatch.setattr("querypulse.alerting.receivers.email.TOTAL_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=server, args=(listener,), daemon=True).start()
        made = email(listener.getsockname()[1], tls=tls)
        error = ended(lambda: refused(made))

    assert error.answer is DeliveryOutcome.TRANSIENT


def test_close_ends_a_message_in_flight(server):
    server.answers = False
    made = email(server.port)
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(made.send, ONE, STARTED)
        assert server.arrived.wait(PATIENCE_SECONDS)
        made.close()
        with pytest.raises(DeliveryError) as error:
            sending.result(PATIENCE_SECONDS)

    assert error.value.may_have_arrived
    assert "closed" in str(refused(made))


# -- settings ------------------------------------------------------------------------------------

PLAIN = {"name": "m", "host": "mail.example.com", "sender": SENDER, "to": [TO[0]]}
BAD = [
    ({"sender": "nobody"}, "sender must be one e-mail address"),
    ({"to": [""]}, "to must be one e-mail address"),
    ({"to": ["a@example.com\r\nBcc: b@example.com"]}, "to must be one e-mail address"),
    ({"to": ["a@example.com, b@example.com"]}, "to must be one e-mail address"),
    ({"to": ["a@example.com; b@example.com"]}, "to must be one e-mail address"),
    ({"to": ["a@exa mple.com"]}, "to must be one e-mail address"),
    ({"to": ["\u00fc@example.com"]}, "to must be one e-mail address"),
    ({"user": "\u00fc", "password": "x"}, "user must be ASCII"),
    ({"user": "u", "password": "\u00fc"}, "password must be ASCII"),
    ({"tls": "none"}, "tls = 'none' is allowed only if host is this machine"),
    ({"user": USER}, "'user' and 'password' or 'password_file' go together"),
    ({"password": PASSWORD}, "'user' and 'password' or 'password_file' go together"),
    ({"user": USER, "password": PASSWORD, "password_file": "/p"}, "not both"),
    ({"user": USER, "password_file": "/nowhere"}, "password_file: cannot read /nowhere"),
    ({"ca_file": "/nowhere"}, "ca_file /nowhere"),
]


@pytest.mark.parametrize(("wrong", "message"), BAD)
def test_unusable_settings_are_rejected_with_the_receiver_and_without_secrets(wrong, message):
    with pytest.raises(SettingsError) as error:
        receiver("email", **{**PLAIN, **wrong})

    assert str(error.value).startswith("receiver 'm': ")
    assert message in str(error.value)
    assert PASSWORD not in str(error.value)


@pytest.mark.parametrize(
    "host", ["", "https://u:secret@mail", "mail example", "[::1]", "mail/", "mail:25", "-"]
)
def test_host_is_a_name_or_an_address(host):
    with pytest.raises(SettingsError) as error:
        Settings(receivers=[{"type": "email", **PLAIN, "host": host}])

    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ({}, "smtp://mail.example.com:587"),
        ({"tls": "implicit"}, "smtp://mail.example.com:465"),
        ({"port": 2525}, "smtp://mail.example.com:2525"),
        ({"host": "2001:db8::1"}, "smtp://[2001:db8::1]:587"),
        ({"host": "::1", "tls": "none"}, "smtp://[::1]:25"),
    ],
)
def test_port_follows_tls(given, place):
    (one,) = Settings(receivers=[{"type": "email", **PLAIN, **given}]).receivers

    assert one.targets() == (place,)
