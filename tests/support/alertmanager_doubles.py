"""The shipped configuration of a real Alertmanager, with doubles of all its receivers on loopback.

Alertmanager 0.25 has no Teams: there, its templates are rendered through a second Slack.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from .http_double import DoubleHandler, HttpDouble, RecordedRequest, reply
from .mail_server import MailServer
from .observed import ALERTMANAGER
from .patience import until
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
        self.manager.send(alerts)

    def counts(self) -> dict[str, int]:
        return {way: len(self._messages(way)) for way in WAYS}

    def next_after(self, counts: Mapping[str, int], size: int = 1) -> dict[str, Any]:
        """The first message of each way that came after there were so many.

        It is about all ``size`` alerts: a slow Alertmanager notifies of some of them before.
        """
        whole: dict[str, Any] = {}

        def is_complete() -> bool:
            for way in WAYS:
                for message in self._messages(way)[counts[way] :]:
                    if size == 1 or f"(and {size - 1} more)" in _title(message):
                        whole.setdefault(way, message)
            return len(whole) == len(WAYS)

        until(is_complete, "every way is notified")
        return {way: whole[way] for way in WAYS}

    def _messages(self, way: str) -> list[Any]:
        return self.mail.messages if way == "E-mail" else self.chats.got[way]

    def notified_of(self, alerts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
        counts, sent = self.counts(), list(alerts)
        self.send(sent)
        return self.next_after(counts, len(sent))


def _title(message: Any) -> str:
    if not isinstance(message, dict):
        return " ".join(message["Subject"].split())
    if "payload" in message:
        return str(message["payload"]["summary"])
    return str(message["attachments"][0]["title"])


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
