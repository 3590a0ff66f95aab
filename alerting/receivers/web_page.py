"""Recognises the login page of a proxy, which answers 2xx in place of a receiver."""

from __future__ import annotations

from ...core.outcomes import DeliveryOutcome
from .http import HttpError


def not_a_page(answer: bytes, place: str) -> bytes:
    """The body of a 2xx answer of ``place``, if it is not HTML.

    Raises:
        HttpError: it is HTML, which this receiver never sends.

    """
    if answer.lstrip().startswith(b"<"):
        text = f"{place} answered 2xx with a page of HTML"
        raise HttpError(text, DeliveryOutcome.MISCONFIGURED, may_have_arrived=True)
    return answer
