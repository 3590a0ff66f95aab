"""One more try with less, where a receiver disliked the body: a decoration must not cost a page."""

from __future__ import annotations

from collections.abc import Callable

from .answer import DeliveryOutcome
from .http import HttpError

BODY_DISLIKED = frozenset({400, 413, 422})
"""Of the answers that are poison, those that a smaller, plainer body may turn."""


def post_or_less(post: Callable[[bytes], bytes], full: bytes, less: bytes) -> bytes:
    """Post ``full``; if the body was disliked and ``less`` is another, post that.

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
        error.may_have_arrived = error.may_have_arrived or doubt
        raise
