"""What an HTTP answer means for an alert. Pure."""

from __future__ import annotations

from datetime import timezone
from email.utils import parsedate_to_datetime

from ...core.outcomes import DeliveryOutcome
from ..retries import GONE_WAIT_SECONDS, MAX_RETRY_AFTER_SECONDS, RATE_LIMIT_WAIT_SECONDS

TOO_MANY_REQUESTS = 429
TRY_AGAIN = frozenset({408, 425, TOO_MANY_REQUESTS})
"""Temporary client errors: timeout, too early (RFC 8470), too many requests."""

REJECTIONS = frozenset({400, 406, 411, 413, 414, 415, 422, 431})
GONE_STATUS = 410


def classify(status: int) -> DeliveryOutcome:
    """The outcome for an HTTP status; an unknown one is kept and tried again slowly.

    A redirect is a configuration error: following it turns a POST into a GET without its body
    (301 to 303), or sends body and signature to any ``Location`` (307, 308).
    """
    if 200 <= status < 300:  # noqa: PLR2004 - the numbers are RFC 9110's classes
        return DeliveryOutcome.DELIVERED
    if status in TRY_AGAIN or 500 <= status < 600:  # noqa: PLR2004 - as above
        return DeliveryOutcome.TRANSIENT
    if status in REJECTIONS:
        return DeliveryOutcome.REJECTED
    return DeliveryOutcome.MISCONFIGURED


def may_have_arrived(status: int) -> bool:
    """Whether the request may have succeeded despite this failure, as with a gateway's error."""
    return status in {408, 500, 502, 504}


def wait_asked_for(status: int, retry_after: str | None, now_wall: float) -> float | None:
    """Seconds to pause after a failure; None if the receiver did not ask for a pause."""
    if status == GONE_STATUS:
        return GONE_WAIT_SECONDS
    seconds = parse_retry_after(retry_after, now_wall)
    if seconds is None and status == TOO_MANY_REQUESTS:
        return RATE_LIMIT_WAIT_SECONDS
    return seconds


def parse_retry_after(text: str | None, now_wall: float) -> float | None:
    """Seconds to wait by a ``Retry-After`` header (RFC 9110, 10.2.3), or None if it says nothing.

    ``text`` is whole seconds or an HTTP-date, ``now_wall`` Unix seconds. The answer lies
    between 0 and ``MAX_RETRY_AFTER_SECONDS``.
    """
    text = (text or "").strip()
    if text.isascii() and text.isdigit():
        return min(float(text), MAX_RETRY_AFTER_SECONDS)
    try:
        date = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=timezone.utc)
    return min(max(0.0, date.timestamp() - now_wall), MAX_RETRY_AFTER_SECONDS)
