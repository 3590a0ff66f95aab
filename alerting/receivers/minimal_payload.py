"""Retries with a minimal body if a receiver refuses the full one: a page must not depend on it."""

from __future__ import annotations

from collections.abc import Callable

from ...core.outcomes import DeliveryOutcome
from .http import HttpError

BODY_DISLIKED = frozenset({400, 413, 422})
"""The rejections that a smaller, plainer body may avoid."""


def post_or_less(post: Callable[[bytes], bytes], full: bytes, less: bytes) -> bytes:
    """Post ``full``; if the body is refused and ``less`` differs, post ``less``.

    Raises:
        HttpError: neither was accepted.

    """
    try:
        return post(full)
    except HttpError as error:
        in_vain = error.answer is not DeliveryOutcome.REJECTED or error.status not in BODY_DISLIKED
        if in_vain or less == full:
            raise
        doubt = error.may_have_arrived
    try:
        return post(less)
    except HttpError as error:
        raise error.with_doubt(doubt) from None
