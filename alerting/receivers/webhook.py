"""Sends incidents to a webhook, in Alertmanager's format."""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from hmac import digest
from typing import Any, ClassVar

from ...core.secret import SecretFile
from ...core.states import DeliveryOutcome
from ...core.text import rfc3339, shorten
from ..alert import Alert, Incident
from ..words.headlines import status
from ..words.messages import shown_annotations
from .http import HttpReceiver
from .receiver import DeliveryError, ReceiverCapabilities, ReceiverContext, UrlReceiverSettings

# -- alertmanager message ---------------------------------------------------------------------
# The shape was captured from Alertmanager 0.25;
# https://prometheus.io/docs/alerting/latest/configuration/#webhook_config describes it. Some 45
# receivers understand it.

NOT_ENDED = "0001-01-01T00:00:00Z"
"""Go's zero time: how Alertmanager says that an alert still fires."""

PLAIN = ("summary", "reason", "runbook_url")
"""The annotations that a person needs most, ..."""
PLAIN_CHARACTERS = 512
"""... and the most characters of each."""

FNV_OFFSET = 0xCBF29CE484222325
FNV_PRIME = 0x100000001B3


def message(
    incident: Incident, receiver: str, external_url: str = "", *, plain: bool = False
) -> dict[str, Any]:
    """The whole body; ``external_url`` is the link to more information.

    ``plain`` keeps only the annotations that a person needs most, and shortens them.
    """
    annotations = [
        _plain(alert) if plain else shown_annotations(alert) for alert in incident.alerts
    ]
    alerts = [
        {
            "status": status(alert),
            "labels": alert.labels,
            "annotations": shown,
            "startsAt": rfc3339(alert.starts_at),
            "endsAt": NOT_ENDED if alert.ends_at is None else rfc3339(alert.ends_at),
            "generatorURL": external_url,
            "fingerprint": fingerprint(alert.labels),
        }
        for alert, shown in zip(incident.alerts, annotations, strict=True)
    ]
    return {
        "receiver": receiver,
        "status": status(incident),
        "alerts": alerts,
        "groupLabels": incident.labels,
        "commonLabels": _common([alert.labels for alert in incident.alerts]),
        "commonAnnotations": _common(annotations),
        "externalURL": external_url,
        "version": "4",
        "groupKey": incident.key,
        "truncatedAlerts": 0,
    }


def fingerprint(labels: dict[str, str]) -> str:
    """Prometheus' own: FNV-1a 64 over the sorted ``name 0xff value 0xff``, 16 hex digits."""
    digest = FNV_OFFSET
    for name, value in sorted(labels.items()):
        for byte in b"%b\xff%b\xff" % (_utf8(name), _utf8(value)):
            digest = ((digest ^ byte) * FNV_PRIME) & 0xFFFFFFFFFFFFFFFF
    return f"{digest:016x}"


def _plain(alert: Alert) -> dict[str, str]:
    sent = shown_annotations(alert)
    return {name: shorten(sent[name], PLAIN_CHARACTERS) for name in PLAIN if name in sent}


def _common(members: list[dict[str, str]]) -> dict[str, str]:
    """The pairs that all members have: Alertmanager's common labels and annotations."""
    first, *others = members
    return {
        name: value
        for name, value in first.items()
        if all(other.get(name) == value for other in others)
    }


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "replace")


# -- signatures -------------------------------------------------------------------------------
# https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md

PREFIX = "whsec_"
MIN_KEY_BYTES, MAX_KEY_BYTES = 24, 64


def signing_key(secret: str, setting: str = "secret_files") -> bytes:
    """Decode ``whsec_...``, which ``setting`` names.

    Raises:
        ValueError: it is not ``whsec_`` and the base64 of 24 to 64 bytes.

    """
    encoded = secret.strip()
    try:
        key = b64decode(encoded.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not encoded.startswith(PREFIX) or not MIN_KEY_BYTES <= len(key) <= MAX_KEY_BYTES:
        raise ValueError(
            f"{setting} must hold '{PREFIX}' and the base64 "
            f"of {MIN_KEY_BYTES} to {MAX_KEY_BYTES} bytes"
        ) from None
    return key


def message_id(incident: Incident) -> str:
    """An id that is the same for every attempt to send the same message, also after a restart."""
    what = f"{incident.key}\n{incident.starts_at!r}\n{incident.revision}\n{status(incident)}"
    return f"msg_{sha256(what.encode('utf-8', 'replace')).hexdigest()[:32]}"


def signed_headers(
    keys: Sequence[bytes], identity: str, wall: float, body: bytes
) -> dict[str, str]:
    """The three headers of a message at Unix time ``wall``; receivers allow about 5 minutes.

    Each key signs: a receiver that knows one of them is content.
    """
    timestamp = str(int(wall))
    signed = b"%b.%b.%b" % (identity.encode(), timestamp.encode(), body)
    signatures = (b64encode(digest(key, signed, sha256)).decode() for key in keys)
    return {
        "webhook-id": identity,
        "webhook-timestamp": timestamp,
        "webhook-signature": " ".join(f"v1,{signature}" for signature in signatures),
    }


# -- webhook ----------------------------------------------------------------------------------


class Webhook(HttpReceiver):
    """One POST per incident, signed with each of ``secret_files``: two during a rotation.

    ``Idempotency-Key`` is the same for every attempt to send the same message.
    """

    capabilities = ReceiverCapabilities()
    max_bytes = 1024 * 1024
    """The largest body that nginx, in front of many receivers, takes by default."""

    def __init__(self, given: WebhookSettings, context: ReceiverContext) -> None:
        """Check the settings, and the secrets; see ``HttpReceiver``."""
        super().__init__(given, context)
        self._secrets = context.secret_files("secret_files")
        self._signing_keys()

    def message(self, incident: Incident, *, minimal: bool = False) -> dict[str, Any]:
        """See ``HttpReceiver.message``."""
        return message(incident, self.name, self.external_url, plain=minimal)

    def headers(self, incident: Incident, wall: float, body: bytes) -> Mapping[str, str]:
        """See ``HttpReceiver.headers``."""
        identity = message_id(incident)
        try:
            keys = self._signing_keys()
        except ValueError as error:
            raise DeliveryError(str(error), DeliveryOutcome.MISCONFIGURED) from None
        signed = signed_headers(keys, identity, wall, body) if keys else {}
        return {"Idempotency-Key": identity, **signed}

    def check(self, answer: bytes) -> None:
        """Any body will do: it is a server of our own."""

    def _signing_keys(self) -> list[bytes]:
        return [signing_key(secret.reveal(), secret.setting) for secret in self._secrets]


class WebhookSettings(
    UrlReceiverSettings, tag_field="type", tag="webhook", frozen=True, kw_only=True
):
    """The URL of a server that takes Alertmanager's version-4 JSON."""

    makes = Webhook

    short_form: ClassVar[Mapping[str, str]] = {
        "url": "webhook_url",
        "url_file": "webhook_url_file",
        "secret_files": "webhook_secret_file",
    }
    secret_files: tuple[SecretFile, ...] = ()
    """More than one during a rotation: each secret signs."""
