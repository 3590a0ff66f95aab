"""Signatures by Standard Webhooks 1.0.0. Pure.

https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from hashlib import sha256
from hmac import digest

from ..alert import Alert
from .alertmanager_message import status

PREFIX = "whsec_"
MIN_KEY_BYTES, MAX_KEY_BYTES = 24, 64


def signing_key(secret: str) -> bytes:
    """Decode ``whsec_...``.

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
            f"webhook_secret must be '{PREFIX}' and the base64 "
            f"of {MIN_KEY_BYTES} to {MAX_KEY_BYTES} bytes"
        ) from None
    return key


def message_id(alert: Alert) -> str:
    """The same for every attempt to tell the same thing, also after a restart of the sending."""
    what = f"{alert.key}\n{alert.starts_at!r}\n{status(alert)}"
    return f"msg_{sha256(what.encode('utf-8', 'replace')).hexdigest()[:32]}"


def signed_headers(key: bytes, identity: str, wall: float, body: bytes) -> dict[str, str]:
    """The three headers for one attempt at Unix time ``wall``; receivers allow about 5 minutes."""
    timestamp = str(int(wall))
    signature = digest(key, b"%b.%b.%b" % (identity.encode(), timestamp.encode(), body), sha256)
    return {
        "webhook-id": identity,
        "webhook-timestamp": timestamp,
        "webhook-signature": f"v1,{b64encode(signature).decode()}",
    }
