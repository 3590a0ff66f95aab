"""The shipped configuration of a real Alertmanager, with doubles of all its receivers on loopback.

Alertmanager 0.25 has no Teams: there, its templates are rendered through a second Slack.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import requests
import yaml

from .http_double import DoubleHandler, HttpDouble, RecordedRequest, reply
from .mail_server import MailServer
from .observed import ALERTMANAGER
from .patience import PATIENCE_SECONDS, until
from .prometheus import RealAlertmanager

TEMPLATES = ALERTMANAGER.parent / "querypulse.tmpl"
WAYS = ("PagerDuty", "Slack", "Teams", "E-mail")
KEY = "0" * 32


class Chats(HttpDouble):
    """PagerDuty, Slack and Teams: what each got, by the path of its URL."""

    def __init__(self) -> None:
        super().__init__(otherwise=reply(202, body=b'{"status":"success"}'))
        self.got: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}

    def handle(self, request: RecordedRequest, handler: DoubleHandler) -> None:
        self.got[request.path.strip("/")].append(json.loads(request.body))
        reply(200, body=b"ok")(handler) if "Pager" not in request.path else super().handle(
            request, handler
        )


class Everywhere:
    """An Alertmanager that notifies all ways of every alert."""

    def __init__(self, manager: RealAlertmanager, chats: Chats, mail: MailServer) -> None:
        self.manager, self.chats, self.mail = manager, chats, mail

    def send(self, alerts: Sequence[Mapping[str, Any]]) -> None:
        url = f"{self.manager.url}/api/v2/alerts"
        answer = requests.post(url, json=list(alerts), timeout=PATIENCE_SECONDS)
        assert answer.status_code == 200, answer.text

    def counts(self) -> dict[str, int]:
        return {way: len(got) for way, got in self.chats.got.items() if way != "E-mail"} | {
            "E-mail": len(self.mail.messages)
        }

    def next_after(self, counts: Mapping[str, int]) -> dict[str, Any]:
        """The first message of each way that came after there were so many."""
        until(
            lambda: all(count > counts[way] for way, count in self.counts().items()),
            "every way is notified",
        )
        chats = {way: self.chats.got[way][counts[way]] for way in WAYS if way != "E-mail"}
        return chats | {"E-mail": self.mail.messages[counts["E-mail"]]}

    def notified_of(self, alerts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        counts = self.counts()
        self.send(alerts)
        return self.next_after(counts)


def config_for(chats: str, mail_port: int) -> str:
    """The shipped receivers at the doubles' addresses; each group goes to all of them."""
    shipped = {
        receiver["name"]: receiver
        for receiver in yaml.safe_load(ALERTMANAGER.read_text())["receivers"]
    }
    (pagerduty,) = shipped["pager"]["pagerduty_configs"]
    (slack,) = shipped["chat"]["slack_configs"]
    email, teams = commented("email_configs"), commented("msteamsv2_configs")
    del pagerduty["routing_key_file"], slack["api_url_file"]
    return yaml.safe_dump(
        {
            "global": {
                "smtp_smarthost": f"127.0.0.1:{mail_port}",
                "smtp_from": "querypulse@example.com",
                "smtp_require_tls": False,
            },
            "templates": [str(TEMPLATES)],
            "route": {
                "receiver": "all",
                "group_by": ["app"],
                "group_wait": "200ms",
                "group_interval": "200ms",
                "repeat_interval": "1h",
            },
            "receivers": [
                {
                    "name": "all",
                    "pagerduty_configs": [
                        pagerduty | {"routing_key": KEY, "url": f"{chats}/PagerDuty"}
                    ],
                    "slack_configs": [
                        slack | {"api_url": f"{chats}/Slack"},
                        {
                            "api_url": f"{chats}/Teams",
                            "channel": "teams",
                            "send_resolved": True,
                            "title": teams["title"],
                            "text": teams["text"],
                        },
                    ],
                    "email_configs": [email],
                }
            ],
        }
    )


def commented(name: str) -> dict[str, Any]:
    """A receiver that the shipped configuration has as a comment."""
    lines = ALERTMANAGER.read_text().splitlines()
    begin = lines.index(f"    #{name}:")
    block = []
    for line in lines[begin + 1 :]:
        if not line.startswith("    #  "):
            break
        block.append(line.replace("    #", "", 1))
    (config,) = yaml.safe_load("\n".join(block))
    return config


@contextmanager
def everywhere(folder: Path) -> Iterator[Everywhere]:
    """A real Alertmanager with the shipped templates, and doubles of all receivers."""
    with (
        Chats() as chats,
        MailServer() as mail,
        RealAlertmanager(folder, chats, config_for(chats.url, mail.port)) as manager,
    ):
        yield Everywhere(manager, chats, mail)
