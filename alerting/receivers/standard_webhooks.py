"""Signatures by Standard Webhooks 1.0.0. Pure.

https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from collections.abc import Sequence
from hashlib import sha256
from hmac import digest

from ..alert import Incident
from ..headline import status

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
            f"webhook_secret_file must hold '{PREFIX}' and the base64 "
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
    """The three headers for one attempt at Unix time ``wall``; receivers allow about 5 minutes.

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
