"""``POST /silences``: a silence for this driver, from any client that has its token."""

from __future__ import annotations

import logging
from collections.abc import Collection
from datetime import datetime

import msgspec

from ..settings.silencing import Silencing, silence_until, unmatched

log = logging.getLogger("querypulse")

CREATED = 201
BAD_REQUEST = 400


class PostedSilence(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of the request: the arguments of ``Sidecar.silence``, and an app pattern."""

    queries: str
    minutes: float | None = None
    until: datetime | None = None
    alertname: str = "*"
    reason: str = ""
    app: str | None = None


def post_silence(
    body: bytes, silencing: Silencing, queries: Collection[str]
) -> tuple[int, dict[str, object]]:
    """Add the silence of ``body`` to this process; returns an HTTP status and the JSON answer.

    ``queries`` are the known names; ``note`` in the answer says which pattern matches none.
    """
    try:
        given = msgspec.json.decode(body, type=PostedSilence)
        more = {"alertname": given.alertname, "reason": given.reason, "app": given.app}
        silence = silence_until(given.queries, given.minutes, given.until, **more)
        silencing.add(silence)
    except (ValueError, msgspec.MsgspecError) as error:
        return BAD_REQUEST, {"error": str(error)}
    until = silence.until.isoformat(timespec="seconds")
    log.info("querypulse: silenced over HTTP: %r until %s", silence.queries, until)
    return CREATED, {**msgspec.structs.asdict(silence), "note": unmatched(silence, queries)}
